"""How much noise a guarantee leaves in the model, for each way of training, to compare them before a run."""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fedlatest.privacy.guarantee import Mechanism, Privacy
from fedlatest.privacy.noise_plan import NoisePlan
from fedlatest.privacy.planning import plan_noise

SMALL, LARGE = 0.1, 0.5  # shares of noise up to which it hardly matters, and from which on it dominates


class MethodNoise(NamedTuple):
    """The noise of one method."""

    title: str
    plan: NoisePlan
    model_stddev: float
    """Standard deviation of the noise in each number of the last model, for a server step of 1."""
    share: float
    """Norm of that noise, divided by the distance that the model moves if all updates have the same direction."""

    @property
    def verdict(self) -> str:
        """The share in words."""
        if self.share <= SMALL:
            return "small"
        return "noticeable" if self.share <= LARGE else "large"


def compare_methods(privacy: Privacy, *, num_clients: int, cohort_size: int, num_parameters: int) -> list[MethodNoise]:
    r"""Return the noise of FedLaAvg, FedLaAvg fresh, and FedAvg with both of its mechanisms, for one guarantee.

    With the noise s z_r of the total in round r, the model after R rounds holds the noise

        FedLaAvg           (s / N) (z_1 + ... + z_R)
        FedLaAvg, fresh    (s / N) (z_1 + ... + z_{R-1}) + (s / K) z_R        as differences of totals cancel
        FedAvg             (1 / K) (w_1 + ... + w_R)

    if every cohort has K clients. The model moves by at most R clip_norm in these rounds. Real updates partly cancel,
    so that the noise is a larger share of the distance than `share`; compare the methods by it.

    Args:
        privacy: The guarantee; its mechanism is not used.
        num_clients: N.
        cohort_size: K.
        num_parameters: The size of the model.
    """
    rounds, farthest = privacy.rounds, privacy.rounds * privacy.clip_norm

    def noise(title: str, mechanism: Mechanism, norm: float) -> MethodNoise:
        uploads = "remembered" if mechanism == "total" else "fresh"
        plan = plan_noise(replace(privacy, mechanism=mechanism), uploads)  # type: ignore[arg-type]
        if mechanism == "correlated":  # w_1 + ... + w_R, with the partial sums of the coefficients as weights
            weights = np.cumsum(np.resize([*plan.coefficients, *[0.0] * rounds], rounds))
            norm = float(np.linalg.norm(weights)) / cohort_size
        stddev = plan.stddev * norm
        return MethodNoise(title, plan, stddev, stddev * math.sqrt(num_parameters) / farthest)

    fresh = math.sqrt((rounds - 1) / num_clients**2 + 1 / cohort_size**2)
    return [
        noise("FedLaAvg", "total", math.sqrt(rounds) / num_clients),
        noise("FedLaAvg, fresh", "total", fresh),
        noise("FedAvg", "independent", math.sqrt(rounds) / cohort_size),
        noise("FedAvg, correlated noise", "correlated", math.nan),
    ]
