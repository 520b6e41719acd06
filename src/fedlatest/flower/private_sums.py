"""The noise of a private job, added to the sums of a round before the algorithm sees them.

The ledger keeps the exact sum: its file is secret, and the audit works as in other jobs. Everything that leaves the
server is computed from noisy sums.

Noise is made of floating-point Gaussians, which are rounded to multiples of the job's unit and added to the integers of
the sum. As the exact sum is a multiple of the unit, this equals rounding the sum with its noise. The generator is
Philox, with a key of 128 bits from the operating system for each round. It passes statistical tests but is not a
cryptographic generator, and Gaussians in floating point are not exact: the guarantee is that of ideal Gaussians.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedlatest.algorithms import Algorithm
from fedlatest.algorithms.base import UpdateUpload
from fedlatest.errors import ConfigError
from fedlatest.ledger import Ledger, RoundSums
from fedlatest.ledger.fixed_point import SUM_DTYPE, FixedPointSum
from fedlatest.privacy import NoisePlan, Privacy, Uploads, plan_noise


def check_algorithm(algorithm: Algorithm) -> Uploads:
    """Return whether the updates of an algorithm are fresh or remembered.

    Raises:
        ConfigError: If a deployment cannot give a guarantee for the algorithm.
    """
    upload, settings = algorithm.contribute, algorithm.settings
    if not isinstance(upload, UpdateUpload) or settings.get("weighting", "none") != "none":
        raise ConfigError(
            f"privacy: weighting={settings.get('weighting')!r} uses the clients' numbers of samples, which the "
            "guarantee does not protect; choose weighting='none'"
        )
    if not upload.remembered:
        return "fresh"
    if algorithm.name != "fedlaavg" or settings.get("fresh") != "average" or settings.get("damping"):
        raise ConfigError(
            f"privacy: {algorithm.name} {dict(settings)} uses the round's differences beside the total, and both have "
            "the same noise; choose fedlaavg with fresh='average' and damping=0, or an algorithm without remembered "
            "updates"
        )
    return "remembered"


def privacy_settings(privacy: Privacy, algorithm: Algorithm, *, share_metrics: bool) -> dict[str, Any]:
    """Return the privacy settings of a job, as its configuration holds them."""
    values = privacy.as_dict()
    numbers = {name: values[name] for name in ("epsilon", "delta", "clip_norm")}
    return {
        **values,
        **{name: None if value is None else float(value) for name, value in numbers.items()},  # 8 and 8.0 are one job
        "max_participations": privacy.participations,
        "mechanism": privacy.mechanism_for(check_algorithm(algorithm)),
        "share_metrics": share_metrics,
    }


def make_plan(privacy: Privacy, algorithm: Algorithm) -> dict[str, Any]:
    """Return the noise plan of a new job as plain values, for its ledger."""
    return plan_noise(privacy, check_algorithm(algorithm)).as_dict()


def add_noise(sums: RoundSums, ledger: Ledger) -> RoundSums:
    """Return the sums of the open round with the noise of the job's plan; without a plan, they stay exact.

    Each call draws a new seed, and `Ledger.close_round` stores the last one.
    """
    if ledger.noise_plan is None:
        return sums
    plan = NoisePlan.from_dict(ledger.noise_plan)
    noise = noise_of_round(plan, ledger, ledger.draw_noise_seed())
    if sums.old_total is not None:
        return replace(sums, old_total=sums.old_total + noise)
    return replace(sums, delta_or_none=sums.delta + noise)


def noise_of_round(plan: NoisePlan, ledger: Ledger, seed: str) -> FixedPointSum:
    """Return the noise of the sum of the open round, in units.

    Args:
        plan: The noise plan of the job.
        ledger: Knows the number of releases so far, and the seeds of the closed rounds.
        seed: The seed of the open round.
    """
    releases, size = ledger.releases, ledger.layout.size

    def normals(release: int) -> npt.NDArray[np.float64]:
        return standard_normals(seed if release == releases else ledger.noise_seed(releases - release), size)

    noise = (plan.total_noise if plan.mechanism == "total" else plan.round_noise)(releases, normals)
    return np.rint(noise / ledger.config.unit).astype(SUM_DTYPE)


def standard_normals(seed: str | None, size: int) -> npt.NDArray[np.float64]:
    """Return independent standard normal numbers; zeros without a seed, where a sequence of noise starts.

    >>> standard_normals("ab", 3).round(3).tolist() == standard_normals("ab", 3).round(3).tolist()
    True
    """
    if seed is None:
        return np.zeros(size)
    return np.random.Generator(np.random.Philox(key=int(seed, 16))).standard_normal(size)
