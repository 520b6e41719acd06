"""Whether FedLaAvg would resonate with the availability of a fleet."""

from dataclasses import dataclass

import numpy as np

from fedlatest.diagnosis.fleet import Fleet
from fedlatest.theory.method_stability import AVERAGE, FRESH, LocalTraining, stability_of_table

ROUNDS = 2000  # of availability that are examined; a shorter record is repeated
FEWEST_ROUNDS = 100
MAX_CELLS = 2**24  # rounds times clients
MARGIN = 0.8  # a gain below this share of the stable gain counts as stable


@dataclass(frozen=True)
class ResonanceFacts:
    """The stability of FedLaAvg's step and of FedLaAvg fresh, for the cohorts that they would select."""

    cohort_size: int
    stable_gain: float
    """The gain from which FedLaAvg swings, or the largest gain examined."""
    swings: bool
    """Whether FedLaAvg swings for one of the gains examined."""
    swing_rounds: float | None
    """The period of the swing at the stable gain."""
    fresh_gain: float
    fresh_swings: bool
    rounds: int
    """Rounds that were examined, from the beginning of the record on; a shorter record is repeated."""
    mean_staleness: float | None
    """Rounds since a client last took part, with FedLaAvg; None if not all of the record was examined."""
    num_local_steps: int
    gain: float | None
    """The gain of the user's step; None if the step or the curvature is unknown."""

    @property
    def verdict(self) -> str:
        """ "no", "possible" (the gain of the step is unknown or close to the stable gain) or "yes"."""
        if not self.swings or (self.gain is not None and self.gain < MARGIN * self.stable_gain):
            return "no"
        return "yes" if self.gain is not None and self.gain >= self.stable_gain else "possible"


def resonance_facts(
    fleet: Fleet,
    *,
    cohort_size: int,
    num_local_steps: int = 1,
    learning_rate: float | None = None,
    curvature: float | None = None,
) -> ResonanceFacts | None:
    """Return whether FedLaAvg would resonate; None if there are too many clients to examine.

    Args:
        fleet: The fleet.
        cohort_size: K.
        num_local_steps: C.
        learning_rate: The step; with the curvature, it gives the gain.
        curvature: The largest curvature of the objective.
    """
    rounds = min(ROUNDS, MAX_CELLS // fleet.num_clients)
    if rounds < FEWEST_ROUNDS:
        return None
    repeated = np.resize(fleet.available, (rounds, fleet.num_clients))
    training = LocalTraining(fleet.num_clients * fleet.weights, num_local_steps, learning_rate)
    average, fresh = stability_of_table(
        repeated, training, cohort_size=cohort_size, methods=[AVERAGE, FRESH], tolerance=1 / rounds
    )
    known = learning_rate is not None and curvature is not None
    return ResonanceFacts(
        cohort_size=cohort_size,
        stable_gain=average.stable.gain,
        swings=average.stable.exists,
        swing_rounds=average.stable.swing if average.stable.exists and np.isfinite(average.stable.swing) else None,
        fresh_gain=fresh.stable.gain,
        fresh_swings=fresh.stable.exists,
        rounds=rounds,
        mean_staleness=average.mean_staleness if fleet.num_rounds <= rounds else None,
        num_local_steps=num_local_steps,
        gain=training.gain(curvature) if known and curvature is not None else None,
    )
