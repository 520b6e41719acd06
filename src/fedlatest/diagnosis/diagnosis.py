"""The diagnosis of a fleet: all facts, the recommendation, and what the figure shows. Saved as JSON."""

import dataclasses
import json
import types
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from fedlatest.diagnosis.correlation import CorrelationFacts, correlation_facts
from fedlatest.diagnosis.fedavg_bias import FedAvgBias, fedavg_bias
from fedlatest.diagnosis.fleet import Fleet
from fedlatest.diagnosis.pictures import FleetPictures, fleet_pictures
from fedlatest.diagnosis.recommendation import Findings, Recommendation, recommend, recommended_cohort, round_up
from fedlatest.diagnosis.resonance import ResonanceFacts, resonance_facts
from fedlatest.diagnosis.round_rates import RoundRate, round_rates
from fedlatest.diagnosis.statistics import AvailabilityFacts, availability_facts
from fedlatest.errors import ConfigError, DataError
from fedlatest.files import write_text
from fedlatest.theory import staleness_bound

DIAGNOSIS = "diagnosis.json"
FORMAT = 1
SHORTEST_DEADLINE = 1.0  # seconds


@dataclass(frozen=True)
class Training:
    """What the user wants to train with; None where it is not decided.

    Args:
        cohort_size: K.
        deadline: Seconds after which a round ends.
        learning_rate: The step of the clients.
        curvature: The largest curvature of the objective.
        num_local_steps: C.
    """

    cohort_size: int | None = None
    deadline: float | None = None
    learning_rate: float | None = None
    curvature: float | None = None
    num_local_steps: int = 1


@dataclass(frozen=True)
class Diagnosis:
    """What is known about a fleet, and what to use for it."""

    source: str
    known: list[str]
    """What is known besides availability: "labels", "sizes", "delays"."""
    availability: AvailabilityFacts
    correlation: CorrelationFacts
    bias: FedAvgBias
    cohort_size: int
    staleness_bound: int
    """I of Lemma 1, for the clients that were available at least once."""
    resonance: ResonanceFacts | None
    rates: list[RoundRate]
    recommendation: Recommendation
    pictures: FleetPictures


def diagnose(fleet: Fleet, training: Training | None = None) -> Diagnosis:
    """Return the diagnosis of a fleet.

    Args:
        fleet: The fleet.
        training: What the user has decided already.

    Raises:
        ConfigError: If the cohort size or another number is not possible.
    """
    training = training or Training()
    _check(training, fleet.num_clients)
    availability, correlation = availability_facts(fleet), correlation_facts(fleet)
    bias = fedavg_bias(fleet, cycle=correlation.cycle, cycle_is_day=correlation.cycle_is_day)
    cohort_size = training.cohort_size or recommended_cohort(availability)
    deadline = _safe_deadline(fleet)
    rates = _rates(fleet, training, cohort_size, deadline)
    resonance = resonance_facts(
        fleet,
        cohort_size=cohort_size,
        num_local_steps=training.num_local_steps,
        learning_rate=training.learning_rate,
        curvature=training.curvature,
    )
    found = Findings(
        availability,
        correlation,
        bias,
        resonance,
        [rate for rate in rates if rate.cohort_size == cohort_size],
        cohort_size,
        training.cohort_size is not None,
        deadline if rates else None,
        job=fleet.job,
        num_unknown_delays=0 if fleet.delays is None else int(np.isnan(fleet.delays).sum()),
        curvature=training.curvature,
    )
    names = ("labels", "sizes", "delays")
    return Diagnosis(
        source=fleet.source,
        known=[name for name in names if getattr(fleet, name) is not None],
        availability=availability,
        correlation=correlation,
        bias=bias,
        cohort_size=cohort_size,
        staleness_bound=staleness_bound(
            num_clients=availability.num_seen,
            cohort_size=min(cohort_size, availability.num_seen),
            smallest_e=availability.smallest_e,
        ),
        resonance=resonance,
        rates=rates,
        recommendation=recommend(found),
        pictures=fleet_pictures(fleet, correlation.cycle),
    )


def write_diagnosis(diagnosis: Diagnosis, folder: Path) -> Path:
    """Write diagnosis.json into a folder, which must exist; return its path."""
    content = {"format": FORMAT, **dataclasses.asdict(diagnosis)}
    write_text(folder / DIAGNOSIS, json.dumps(content, indent=1, allow_nan=False) + "\n")
    return folder / DIAGNOSIS


def read_diagnosis(folder: Path) -> Diagnosis:
    """Read the diagnosis.json of a folder.

    Raises:
        DataError: If the file cannot be read, is damaged or of another version.
    """
    path = folder / DIAGNOSIS
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise DataError(f"{path}: has the format {content['format']}; run `fedlatest diagnose` again")
        found = _rebuild(Diagnosis, content)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: cannot be read as a diagnosis ({error}); run `fedlatest diagnose` again") from error
    assert isinstance(found, Diagnosis)
    return found


def _check(training: Training, num_clients: int) -> None:
    if training.cohort_size is not None and not 1 <= training.cohort_size <= num_clients:
        raise ConfigError(f"cohort_size={training.cohort_size}: must be in 1 .. {num_clients}, the number of clients")
    if training.num_local_steps < 1:
        raise ConfigError(f"num_local_steps={training.num_local_steps}: must be at least 1")
    for name in ("deadline", "learning_rate", "curvature"):
        value = getattr(training, name)
        if value is not None and not (np.isfinite(value) and value > 0):
            raise ConfigError(f"{name}={value:g}: must be a finite number above 0")


def _safe_deadline(fleet: Fleet) -> float | None:
    """Return a deadline that all clients meet whose delays are known; None if none are known.

    It is not below that of a job in which clients were asked but have no accepted upload: they may be slower.
    """
    if fleet.delays is None:
        return None
    slowest = max(SHORTEST_DEADLINE, round_up(float(np.nanmax(fleet.delays))))
    if fleet.job is None or fleet.job.deadline is None or not fleet.job.num_unanswered:
        return slowest
    return max(slowest, fleet.job.deadline)


def _rates(fleet: Fleet, training: Training, cohort_size: int, deadline: float | None) -> list[RoundRate]:
    """Return the rounds per day for some cohort sizes and deadlines; none if delays or the unit of time are unknown."""
    if fleet.delays is None or fleet.unit is None or deadline is None:
        return []
    delays = fleet.delays[~np.isnan(fleet.delays)]
    sizes = sorted({min(max(1, size), fleet.num_clients) for size in (cohort_size // 2, cohort_size, 2 * cohort_size)})
    limits = {max(SHORTEST_DEADLINE, float(np.ceil(np.quantile(delays, share)))) for share in (0.5, 0.9)} | {deadline}
    if training.deadline is not None:
        limits.add(training.deadline)
    return round_rates(fleet, cohort_sizes=sizes, deadlines=sorted(limits))


def _rebuild(kind: Any, value: Any) -> Any:
    """Return JSON as the type that `dataclasses.asdict` was applied to."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(value, Mapping):
            raise TypeError(f"{value!r} is not an object")
        hints = get_type_hints(kind)
        return kind(*(_rebuild(hints[field.name], value[field.name]) for field in dataclasses.fields(kind)))
    if get_origin(kind) in (Union, types.UnionType):
        [inner] = [option for option in get_args(kind) if option is not type(None)]
        return None if value is None else _rebuild(inner, value)
    if get_origin(kind) is list:
        return [_rebuild(get_args(kind)[0], item) for item in value]
    if get_origin(kind) is tuple:
        return tuple(_rebuild(inner, item) for inner, item in zip(get_args(kind), value, strict=True))
    return kind(value) if kind in (int, float, str) else value
