"""Predictions of the stability of FedLaAvg and its relatives for the availability and cohorts of an experiment.

The cohorts are those that the simulator would select: they depend on the availability and the seed, not on the model.
"""

from collections.abc import Sequence

import jax
import numpy as np
import numpy.typing as npt

from fedlatest.availability import Availability
from fedlatest.errors import ConfigError
from fedlatest.simulation import ExperimentSpec
from fedlatest.streams import Purpose, bits
from fedlatest.theory.advice import Resonance
from fedlatest.theory.method_stability import (
    AVERAGE,
    FRESH,
    METHODS,
    LocalTraining,
    Method,
    MethodStability,
    stability_of_table,
)

ROUNDS = 4000  # of availability that are examined by default
ADVICE_ROUNDS, FEWEST_ROUNDS = 2000, 100
MAX_CELLS = 2**26  # rounds times clients


def local_training(spec: ExperimentSpec, learning_rate: float) -> LocalTraining:
    """Return what determines the gains of an experiment; clients count alike unless weights multiply their losses."""
    weights = np.asarray(spec.federation.weights, float)
    if spec.algorithm.settings.get("weighting", "loss") != "loss":
        weights = np.ones_like(weights)
    return LocalTraining(weights, spec.num_local_steps, learning_rate)


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

    return stability_of_table(available, training, cohort_size=cohort_size, methods=methods, draw=draw)


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
        methods=[AVERAGE, FRESH],
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
