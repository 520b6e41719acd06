"""From a recorded job to simulations: one spec for each algorithm, under the recorded availability and delays."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fedlatest.algorithms import ASYNCHRONOUS, Algorithm
from fedlatest.algorithms.fedavg import select_uniformly
from fedlatest.availability import Availability, Interval, trace
from fedlatest.availability.tabulated import from_table
from fedlatest.data import Samples, TweetSet
from fedlatest.delays import Delays, Timing, empirical, recorded
from fedlatest.errors import ConfigError
from fedlatest.experiments.known_rates import participation_rates
from fedlatest.experiments.server_scale import server_scale
from fedlatest.experiments.settings import COMPONENTS, applicable, build_component, key_of, keywords, resolve
from fedlatest.models import softmax_cross_entropy
from fedlatest.replay.fleet_federation import federation_like, model_like
from fedlatest.replay.recorded_fleet import RecordedFleet
from fedlatest.replay.recorded_outcomes import Outcomes, outcomes_of, task_durations
from fedlatest.replay.schedule import Schedule, depends_on_server, make_schedule
from fedlatest.simulation import ExperimentSpec

EVALUATIONS = 40  # about as many in each run
PARTS_OF_A_ROUND = 8  # availability over time has about this resolution
MOST_STEPS = 10**6
MARGIN = 2  # asynchronous runs end with the record, or after so many times the expected number of steps
TRAINING_KEYS = ("local_steps", "batch_size", "learning_rate")
FROM_THE_RECORD = {  # keys that the record determines
    *("algorithm", "availability", "num_clients", "participation", "rounds", "delays", "deadline", "answers"),
    *("seconds_per_round", "interruption", "download_seconds", "training_seconds", "training_sigma", "upload_seconds"),
}
NOT_REPLAYED = {  # keys of other simulations
    *("partition", "augmentation", "schedule", "schedule_rounds", "remembered_dtype", "epsilon", "delta", "clip_norm"),
    *("min_separation", "max_participations", "mechanism"),
}


class ReplayedRun(NamedTuple):
    """One algorithm of a replay."""

    name: str
    spec: ExperimentSpec
    schedule: Schedule | None  # None if the simulator selects the clients
    is_own: bool  # whether it is the job's own algorithm, with its settings


@dataclass(frozen=True)
class Replay:
    """The runs of a replay, and what of them is recorded and what is assumed."""

    fleet: RecordedFleet
    runs: Sequence[ReplayedRun]
    rounds: int
    recorded: Sequence[str]
    assumed: Sequence[str]


def plan_replay(
    fleet: RecordedFleet,
    samples: Samples | TweetSet,
    defaults: Mapping[str, Any],
    *,
    algorithms: Sequence[str],
    settings: Sequence[str] = (),
    training: Mapping[str, Any] | None = None,
    num_seeds: int = 1,
    rounds: int | None = None,
) -> Replay:
    """Plan the replay of a recorded job with some algorithms.

    Args:
        fleet: The record.
        samples: The data set in place of the fleet's own data.
        defaults: The values of a recipe on that data set.
        algorithms: Names, each with further keys: NAME or NAME:KEY=VALUE:...
        settings: KEY=VALUE changes for all algorithms that have the key.
        training: The `local_steps`, `batch_size` and `learning_rate` of the clients, where they are known.
        num_seeds: Number of seeds; they vary the initial model and the batches, not who is asked.
        rounds: Replay only so many rounds.

    Raises:
        ConfigError: A value is invalid, or no model has the shapes of the job's.
    """
    total = fleet.num_rounds if rounds is None else rounds
    if not 1 <= total <= fleet.num_rounds:
        raise ConfigError(f"rounds={rounds}: must be in 1 .. {fleet.num_rounds}, the number of recorded rounds")
    if len(set(algorithms)) < len(algorithms):
        raise ConfigError(f"--algorithms {','.join(algorithms)}: an algorithm is given twice")
    _check_keys(settings)
    if not isinstance(samples, Samples):
        raise ConfigError(f"dataset {samples.name}: its texts belong to accounts; choose digits, mnist or cifar10")
    base = {**defaults, "partition": "dirichlet", "alpha": 0.5, "availability": "always", **(training or {})}
    methods = [_Method.parse(text, fleet, base, settings) for text in algorithms]
    for setting in settings:
        if not any(key_of(setting) in method.values for method in methods):
            raise ConfigError(f"--set {setting}: no algorithm of this replay has this key")
    chooses_model = any(key_of(setting) == "model" for setting in settings)
    fitted = _fit_to_fleet(fleet, samples, methods[0].values, chooses_model=chooses_model)
    seeds = range(fleet.config.seed, fleet.config.seed + num_seeds)
    outcomes = outcomes_of(fleet, seed=fleet.config.seed)
    runs = [_run(method, fleet, outcomes, total, {**fitted.parts, "seeds": tuple(seeds)}) for method in methods]
    assumed = [
        *fitted.notes,
        "clients that were not asked in a round take as long, or fail, as in one of their own tasks, drawn at random",
        *(["no noise is added, although the job is private"] if fleet.config.privacy is not None else []),
        *dict.fromkeys(note for method in methods for note in method.notes),
        *dict.fromkeys(note for run in runs for note in _notes(run)),
    ]
    return Replay(fleet, runs, total, _recorded_facts(fleet, total), assumed)


class _Fitted(NamedTuple):
    """What all runs of a replay share: arguments of `ExperimentSpec`, and what of them is assumed."""

    parts: Mapping[str, Any]
    notes: Sequence[str]


def _fit_to_fleet(fleet: RecordedFleet, samples: Samples, values: Mapping[str, Any], *, chooses_model: bool) -> _Fitted:
    """Return a federation like the fleet's, the job's model, and how clients train."""
    federation, note = federation_like(
        samples, fleet.weights, list(fleet.names), alpha=values["alpha"], seed=values["partition_seed"]
    )
    sizes = {"num_features": samples.features.shape[1], "num_classes": federation.num_labels}
    model = build_component("model", values, **sizes) if chooses_model else model_like(fleet.layout, **sizes)
    shape = "chosen with --set" if chooses_model else "the one with the shapes of the job's model"
    parts = {
        "federation": federation, "model": model, "loss": softmax_cross_entropy,
        "num_local_steps": values["local_steps"], "batch_size": values["batch_size"],
        "learning_rate": values["learning_rate"],
    }  # fmt: skip
    notes = [
        f"data: {samples.name} in place of the fleet's own; {note}",
        f"model: {model.settings['name']}, {shape}; its initial values are those of the simulator",
        f"training: {', '.join(f'{key} {values[key]:g}' for key in TRAINING_KEYS)}",
    ]
    return _Fitted(parts, notes)


def _check_keys(settings: Sequence[str]) -> None:
    """Raise ConfigError for a key that cannot be set in a replay."""
    for setting in settings:
        key = key_of(setting)
        if key in FROM_THE_RECORD:
            raise ConfigError(f"--set {setting}: in a replay, {key} comes from the record or has an option of its own")
        if key in NOT_REPLAYED:
            raise ConfigError(f"--set {setting}: a replay does not use {key}")


class _Method(NamedTuple):
    """An algorithm to replay, with all values of its experiment."""

    name: str
    algorithm: Algorithm
    values: Mapping[str, Any]
    is_own: bool
    sets_evaluations: bool
    notes: Sequence[str]

    @classmethod
    def parse(cls, text: str, fleet: RecordedFleet, base: Mapping[str, Any], settings: Sequence[str]) -> "_Method":
        """Return the method that NAME or NAME:KEY=VALUE:... describes, by default with the settings of the job."""
        name, *changes = text.split(":")
        is_own = name == fleet.config.algorithm
        defaults = {**base, "algorithm": name}
        chosen = [f"algorithm={name}", *applicable(settings, algorithm=name, availability="always"), *changes]
        plain = resolve(defaults, chosen)  # raises ConfigError for an unknown name or key
        keys = set(keywords(COMPONENTS["algorithm"][name]))
        inherited = [
            f"{key}={_text(value)}"
            for key, value in fleet.config.settings.items()
            if key in keys and (is_own or key == "weighting")
        ]
        values, notes = resolve(defaults, [*inherited, *chosen]), list[str]()
        try:
            algorithm = build_component("algorithm", values)
        except ConfigError:
            if is_own:
                raise
            algorithm, values = build_component("algorithm", plain), plain
            notes.append(f"{name}: weighting={plain.get('weighting')}, because it does not have that of the job")
        given = {key_of(each) for each in chosen}
        scale = server_scale(algorithm, fleet.cohort_size)
        if "server_step" in keys - given and scale < 1:
            step = float(f"{scale:.3g}")
            values = {**values, "server_step": step}
            algorithm = build_component("algorithm", values)
            notes.append(f"{name}: server_step={step}, buffer / cohort size: it takes more steps than there are rounds")
        if is_own and "server_optimizer" in fleet.config.settings and "server_optimizer" not in algorithm.settings:
            notes.append(f"{name}: without the server optimizer of the job, which a name cannot describe")
        is_same = is_own and not (given - {"algorithm"}) & keys
        return cls(text.replace(":", "-"), algorithm, values, is_same, "evaluate_every" in given, notes)


def _run(
    method: _Method, fleet: RecordedFleet, outcomes: Outcomes, rounds: int, common: Mapping[str, Any]
) -> ReplayedRun:
    algorithm, schedule = method.algorithm, None
    rates = None
    if algorithm.name in ASYNCHRONOUS:
        availability, timing, steps = _over_time(fleet, algorithm, rounds)
        size = fleet.cohort_size
    elif depends_on_server(algorithm):
        availability, steps, size = from_table(fleet.candidates[:rounds]), rounds, fleet.cohort_size
        table = recorded(outcomes.seconds[:rounds], fails=outcomes.fails[:rounds])
        timing = Timing(Delays(training=table))
    else:
        schedule = make_schedule(algorithm, fleet, outcomes).first(rounds)
        availability, steps = from_table(schedule.waited_for), rounds
        size = max(1, int(schedule.waited_for.sum(axis=1).max()))
        timing = Timing(Delays(training=recorded(schedule.seconds, fails=~schedule.answered)))
        algorithm = replace(algorithm, select=select_uniformly, oldest_first=False)  # the schedule has selected
    if "rates" in algorithm.requires:
        share = participation_rates(availability, rounds=steps, cohort_size=size)
        rates = share if schedule is None else np.clip(schedule.answered.mean(axis=0), 1 / steps, 1)
    often = max(1, _expected(algorithm, steps) // EVALUATIONS)
    every = method.values["evaluate_every"] if method.sets_evaluations else often
    hidden = {"availability", "num_clients", "participation", "rounds", "evaluate_every"}
    values = {key: value for key, value in method.values.items() if key not in hidden}
    spec = ExperimentSpec(
        **common, algorithm=algorithm, availability=availability, cohort_size=size, rates=rates, rounds=steps,
        evaluate_every=every, timing=timing, config={**values, "availability": "recorded", "replay_of": fleet.job},
    )  # fmt: skip
    return ReplayedRun(method.name, spec, schedule, method.is_own)


def _expected(algorithm: Algorithm, steps: int) -> int:
    """Return about how many rounds or server steps a run will have."""
    return steps if algorithm.buffer is None else max(1, steps // MARGIN)


def _over_time(fleet: RecordedFleet, algorithm: Algorithm, rounds: int) -> tuple[Availability, Timing, int]:
    """Return availability over time, the timing and the number of server steps of an asynchronous algorithm.

    A client is available during the rounds in which it was, or was asked: one that missed its round was available. Its
    tasks fail as often as it has failed, also by going offline; they do not fail once more at the end of the
    availability. The run ends with the record. The number of steps is about what fits into it, with a margin.
    """
    lengths, available = fleet.lengths[:rounds], (fleet.available | fleet.asked)[:rounds]
    starts = np.concatenate([[0.0], np.cumsum(lengths)])
    seconds = max(1, round(float(np.median(lengths)) / PARTS_OF_A_ROUND))
    intervals = [
        Interval(int(client), float(starts[round]), float(starts[round + 1]))
        for round, client in np.argwhere(available)
    ]
    if not intervals:
        raise ConfigError(f"{algorithm.name}: no client was available in the recorded rounds")
    durations, fails = task_durations(fleet)
    timing = Timing(
        Delays(training=empirical(durations, fails=fails)), seconds_per_round=seconds, interruption="finish",
        until=float(starts[-1]),
    )  # fmt: skip
    at_work = np.minimum(fleet.cohort_size, available.sum(axis=1))
    mean = max(0.001, float(np.mean([np.mean(own) for own in durations])))
    answers = 1 - float(np.mean([np.mean(own) for own in fails]))
    steps = math.ceil(answers * float(at_work @ lengths) / (mean * (algorithm.buffer or 1)))
    model = trace(intervals, num_clients=fleet.num_clients, round_length=seconds, wrap=True)
    return model, timing, max(1, min(MARGIN * steps, MOST_STEPS))


def _notes(run: ReplayedRun) -> list[str]:
    """Return what is assumed about the selection of clients in a run."""
    if run.spec.algorithm.name in ASYNCHRONOUS:
        return [
            "asynchronous algorithms: availability over the time in which rounds were open; each task takes as long, "
            "or fails, as one of the client's own tasks, drawn at random, also if the client becomes unavailable; a "
            "reply that was missed is awaited until the deadline"
        ]
    if run.schedule is None:
        return [f"{run.name}: selects by the state of the server; clients that fail are not replaced within a round"]
    late = (run.schedule.answered & ~run.schedule.asked).any()
    return ["an upload that arrived in a later round is trained from the model of that round"] if late else []


def _recorded_facts(fleet: RecordedFleet, rounds: int) -> list[str]:
    asked, took_part = fleet.asked[:rounds], fleet.took_part[:rounds]
    first, last = fleet.rounds[0].round, fleet.rounds[-1].round
    is_part = fleet.num_rounds < fleet.num_closed
    return [
        f"{rounds} rounds of {fleet.config.algorithm}, {fleet.num_clients} clients, cohort size {fleet.cohort_size}, "
        f"deadline {fleet.rounds[rounds - 1].deadline:g} s",
        f"{asked.sum()} requests to train, {took_part.sum()} uploads that counted, "
        f"{fleet.ends[rounds - 1]:.0f} s in which rounds were open",
        *(
            [f"only rounds {first} .. {last} of {fleet.num_closed}: an earlier version of fedlatest has run others"]
            if is_part
            else []
        ),
        "who could be asked when, who was asked, when they answered, the clients' numbers of samples",
    ]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
