"""Predictions of the stability of FedLaAvg and its relatives for a table of availability: gains, methods, results."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.errors import ConfigError
from fedlatest.theory.stability import (
    Draw,
    Fresh,
    Selection,
    StableGain,
    Table,
    select_cohorts,
    stable_gain,
    staleness,
)


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
AVERAGE, FRESH = METHODS[0], METHODS[3]


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


class MethodStability(NamedTuple):
    """The stability of one method in one setting."""

    method: Method
    stable: StableGain
    mean_staleness: float
    rarest_visits: float
    """Rounds between two participations of the client that takes part least often, on average."""


def stability_of_table(
    available: Table,
    training: LocalTraining,
    *,
    cohort_size: int,
    methods: Sequence[Method] = METHODS,
    draw: Draw | None = None,
    tolerance: float = 0.0,
) -> list[MethodStability]:
    """Return the stability of each method for the cohorts that it selects.

    Args:
        available: bool [rounds, N]; the first half of the rounds is not measured.
        training: Determines the gains.
        cohort_size: K.
        methods: The methods.
        draw: The random numbers of the selections, see `select_cohorts`.
        tolerance: The growth rate per round above which a deviation counts as growing, see `stable_gain`.
    """
    rounds = len(available)
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
                    num_local_steps=training.num_local_steps, tolerance=tolerance,
                ),
                float(late[late >= 0].mean()) if (late >= 0).any() else math.nan,
                len(late) / max(int(visits.min()), 1),
            )
        )  # fmt: skip
    return found
