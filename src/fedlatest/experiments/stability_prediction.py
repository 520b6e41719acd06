"""Predictions of the stability of FedLaAvg and its relatives for the availability and cohorts of an experiment.

The cohorts are those that the simulator would select: they depend on the availability and the seed, not on the model.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from fedlatest.availability import Availability
from fedlatest.errors import ConfigError
from fedlatest.simulation import ExperimentSpec
from fedlatest.streams import Purpose, bits
from fedlatest.theory.advice import Resonance
from fedlatest.theory.stability import (
    Fresh,
    Selection,
    StableGain,
    select_cohorts,
    stable_gain,
    staleness,
)

ROUNDS = 4000  # of availability that are examined by default
ADVICE_ROUNDS, FEWEST_ROUNDS = 2000, 100
MAX_CELLS = 2**26  # rounds times clients


class Method(NamedTuple):
    """A step along remembered updates and the selection of the cohort."""

    title: str
    algorithm: str  # whose style a figure uses
    selection: Selection
    fresh: Fresh


METHODS = (
    Method("FedLaAvg", "fedlaavg", "oldest", "average"),
    Method("FedLaAvg, uniform", "mifa", "uniform", "average"),
    Method("FedLaAvg, step 1/K", "fedstale", "oldest", "cohort"),
    Method("FedLaAvg, fresh", "fedlaavg_fresh", "weighted", "cohort"),
    Method("FedVARP", "fedvarp", "uniform", "cohort"),
)


class LocalTraining(NamedTuple):
    """What determines the clients' gains, besides the curvature."""

    weights: npt.NDArray[np.float64]  # [N] w_i N, by which the losses are multiplied
    num_local_steps: int
    learning_rate: float | None = None

    @property
    def largest_gain(self) -> float:
        """The gain at which a local step takes the client with the largest weight to its own minimum."""
        return float(1 - (1 - 1 / self.weights.max()) ** self.num_local_steps)

    def gain(self, curvature: float) -> float:
        """Return the gain of a client of weight 1 for a curvature."""
        if self.learning_rate is None:
            raise ConfigError("learning_rate: is needed to compute the gain")
        return float(1 - (1 - min(self.learning_rate * curvature, 1.0)) ** self.num_local_steps)

    def curvature(self, gain: float) -> float | None:
        """Return the curvature for which a client of weight 1 has this gain; None without a learning rate."""
        if self.learning_rate is None:
            return None
        return float((1 - (1 - gain) ** (1 / self.num_local_steps)) / self.learning_rate)


def local_training(spec: ExperimentSpec, learning_rate: float) -> LocalTraining:
    """Return what determines the gains of an experiment; clients count alike unless weights multiply their losses."""
    weights = np.asarray(spec.federation.weights, float)
    if spec.algorithm.settings.get("weighting", "loss") != "loss":
        weights = np.ones_like(weights)
    return LocalTraining(weights, spec.num_local_steps, learning_rate)


class MethodStability(NamedTuple):
    """The stability of one method in one setting."""

    method: Method
    stable: StableGain
    mean_staleness: float
    rarest_visits: float
    """Rounds between two participations of the client that takes part least often, on average."""


def predict_stability(
    availability: Availability,
    training: LocalTraining,
    *,
    cohort_size: int,
    rounds: int = ROUNDS,
    seed: int = 0,
    ids: npt.NDArray[np.int32] | None = None,
    methods: Sequence[Method] = METHODS,
) -> list[MethodStability]:
    """Return the stability of each method for the cohorts that the simulator selects.

    Args:
        availability: The availability model.
        training: Determines the gains.
        cohort_size: K.
        rounds: The number of rounds to examine; the first half is not measured.
        seed: Seed of the availability and of the selection.
        ids: [N] the clients' ids, from which the selection draws; by default 0 .. N - 1.
        methods: The methods.

    Raises:
        ConfigError: If the table of rounds and clients would be too large.
    """
    num_clients = availability.num_clients
    if rounds * num_clients > MAX_CELLS:
        raise ConfigError(
            f"{num_clients:,} clients, {rounds:,} rounds: too many to examine every round; use fewer than "
            f"{MAX_CELLS // num_clients:,} rounds"
        )
    available = availability.table(rounds, seed)
    known = np.arange(num_clients, dtype=np.int32) if ids is None else ids
    hashed = jax.jit(lambda when: bits(seed, Purpose.SELECTION, known, when) >> 2)

    def draw(when: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.asarray(hashed(when.astype(np.int32)), np.int64)

    selections: dict[Selection, npt.NDArray[np.bool_]] = {}
    found = []
    for method in methods:
        if method.selection not in selections:
            selections[method.selection] = select_cohorts(
                available, cohort_size=cohort_size, selection=method.selection, draw=draw
            )
        cohorts = selections[method.selection]
        late = staleness(cohorts)[rounds // 2 :]
        visits = cohorts[rounds // 2 :].sum(axis=0)
        found.append(
            MethodStability(
                method,
                stable_gain(
                    cohorts, fresh=method.fresh, largest=training.largest_gain, weights=training.weights,
                    num_local_steps=training.num_local_steps,
                ),
                float(late[late >= 0].mean()) if (late >= 0).any() else math.nan,
                len(late) / max(int(visits.min()), 1),
            )
        )  # fmt: skip
    return found


def predict_resonance(
    availability: Availability,
    training: LocalTraining,
    *,
    cohort_size: int,
    curvature: float | None = None,
    ids: npt.NDArray[np.int32] | None = None,
    rounds_per_day: int | None = None,
) -> Resonance | None:
    """Return the stability of FedLaAvg's step for `advise`; None if there are too many clients to examine.

    Args:
        availability: The availability model.
        training: Determines the gains.
        cohort_size: K.
        curvature: The largest curvature of the objective, if it is known.
        ids: [N] the clients' ids.
        rounds_per_day: The length of a day in rounds, if there is one.
    """
    rounds = min(ADVICE_ROUNDS, MAX_CELLS // availability.num_clients)
    if rounds < FEWEST_ROUNDS:
        return None
    average, fresh = predict_stability(
        availability, training, cohort_size=cohort_size, rounds=rounds, ids=ids,
        methods=[method for method in METHODS if method.title in ("FedLaAvg", "FedLaAvg, fresh")],
    )  # fmt: skip
    known = curvature is not None and training.learning_rate is not None
    return Resonance(
        average.stable,
        fresh.stable,
        average.rarest_visits,
        training.gain(curvature) if curvature is not None and known else None,
        curvature,
        training.curvature(average.stable.gain),
        rounds_per_day,
    )
