"""`plan_noise`: the noise that a guarantee takes, with jax-privacy and dp-accounting."""

import math
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fedlatest.errors import ConfigError, MissingExtraError
from fedlatest.privacy.guarantee import Privacy, Uploads
from fedlatest.privacy.noise_plan import NoisePlan

NUM_CHECKPOINTS = 24  # of the epsilon spent, spread over the rounds


def plan_noise(privacy: Privacy, uploads: Uploads) -> NoisePlan:
    r"""Return the least noise that gives a guarantee.

    The released sums are a linear function of Y = A G + s Z, where G [rounds, d] holds the rounds' sums, Z independent
    standard normal numbers, and A is lower triangular: the noise of the sums is s A^{-1} Z. Y is one Gaussian mechanism
    whose sensitivity is the largest norm of A G over what one client can contribute, and what follows from it is
    post-processing. This also holds if later updates depend on earlier models (Denisov et al. 2022). A is a Toeplitz
    matrix with the first column 1, c, c^2, ..., so that A^{-1} has the coefficients (1, -c):

    - "independent", c = 0: a client contributes to at most k sums, the sensitivity is \sqrt{k}.
    - "correlated", 0 <= c < 1: as A is not negative and its first column does not increase, the worst client takes part
      k times, exactly `min_separation` rounds apart (jax-privacy computes the norm). c minimises the mean squared error
      of the prefix sums of G, which are what the model adds up.
    - "total", c = 1: A G is the totals of the remembered updates after each round. A client's share in each of them is
      its remembered update, of norm 1 at most: the sensitivity is \sqrt{rounds}, whatever its participation. The model
      adds the totals up. For a client that is in every one of them, no other c has a smaller error (docs/privacy.md).

    Amplification by sampling is not used: who takes part depends on availability, which is not random as it requires.

    Args:
        privacy: The guarantee.
        uploads: Whether the algorithm's uploads are fresh or remembered.

    Raises:
        ConfigError: If the mechanism does not fit the uploads, or epsilon is too small to be computed.
        MissingExtraError: If the extra `privacy` is not installed.

    >>> plan = plan_noise(Privacy(epsilon=8, delta=1e-5, clip_norm=0.5, rounds=400), "remembered")
    >>> plan.mechanism, plan.sensitivity, round(plan.noise_multiplier, 3)
    ('total', 20.0, 0.6)
    """
    mechanism = privacy.mechanism_for(uploads)
    limits = privacy.rounds, privacy.min_separation, privacy.participations
    correlation = {"independent": 0.0, "total": 1.0}.get(mechanism)
    if correlation is None:
        correlation = _best_correlation(*limits)
    contribution = np.ones(privacy.rounds) if mechanism == "total" else worst_contribution(correlation, *limits)
    norms = np.sqrt(np.cumsum(contribution**2))  # [r]: of what is released in the rounds 0 .. r
    multiplier = 0.0 if math.isinf(privacy.epsilon) else _calibrated(privacy.epsilon, privacy.delta)
    spent = [
        (number, _epsilon(multiplier * float(norms[-1] / norms[number - 1]), privacy.delta))
        for number in _checkpoints(privacy.rounds)
    ]
    return NoisePlan(
        mechanism=mechanism,  # type: ignore[arg-type]  # not "auto"
        epsilon=spent[-1][1],
        delta=privacy.delta,
        clip_norm=float(privacy.clip_norm),
        rounds=privacy.rounds,
        min_separation=privacy.min_separation,
        max_participations=privacy.participations,
        sensitivity=float(norms[-1]),
        noise_multiplier=multiplier,
        coefficients=(1.0, -correlation) if correlation else (1.0,),
        spent=tuple(spent),
    )


def worst_contribution(
    correlation: float, rounds: int, min_separation: int, max_participations: int
) -> npt.NDArray[np.float64]:
    """Return C g for a client that takes part in rounds 0, b, 2b, ..., k times, each time with 1.

    No other participation with at least b = `min_separation` rounds in between, at most k = `max_participations` times,
    has a larger norm, in the first r rounds for any r, because the entries of C are not negative and its columns do not
    increase downwards (Theorem 2 of Kalinin and Lampert 2024, arXiv:2405.13763).

    >>> worst_contribution(0.5, rounds=5, min_separation=2, max_participations=2).tolist()
    [1.0, 0.5, 1.25, 0.625, 0.3125]
    """
    contribution = np.zeros(rounds)
    contribution[: min_separation * max_participations : min_separation] = 1.0
    for number in range(1, rounds):
        contribution[number] += correlation * contribution[number - 1]
    return contribution


@lru_cache(maxsize=64)
def _best_correlation(rounds: int, min_separation: int, max_participations: int) -> float:
    """Return the c with the smallest product of the sensitivity and the mean squared error of all prefix sums."""
    from scipy.optimize import minimize_scalar

    toeplitz, in_64_bits = _factorization()

    def loss(correlation: float) -> float:
        noising = np.zeros(rounds)
        noising[:2] = (1.0, -correlation)[:rounds]
        error = toeplitz.per_query_error(noising_coef=noising, n=rounds).mean()
        strategy = correlation ** np.arange(rounds)
        sensitivity = toeplitz.minsep_sensitivity_squared(strategy, min_separation, max_participations)
        return float(error * sensitivity)

    found = in_64_bits(lambda: minimize_scalar(loss, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-4}))()
    return float(found.x) if found.fun < in_64_bits(loss)(0.0) else 0.0


def _checkpoints(rounds: int) -> list[int]:
    """Return increasing numbers of rounds, the last of which is the number of all rounds."""
    return sorted({max(1, math.ceil(rounds * number / NUM_CHECKPOINTS)) for number in range(1, NUM_CHECKPOINTS + 1)})


def _calibrated(epsilon: float, delta: float) -> float:
    """Return the noise of a Gaussian mechanism of sensitivity 1, slightly rounded up."""
    accounting = _extra("dp_accounting")
    sigma = float(accounting.get_sigma_gaussian(epsilon, delta))
    if not (math.isfinite(sigma) and sigma > 0):
        raise ConfigError(f"epsilon={epsilon}, delta={delta}: no noise could be found for these; choose larger ones")
    return sigma * (1 + 1e-9)


def _epsilon(noise_multiplier: float, delta: float) -> float:
    """Return the epsilon of a Gaussian mechanism of sensitivity 1."""
    return (
        math.inf
        if noise_multiplier == 0
        else float(_extra("dp_accounting").get_epsilon_gaussian(noise_multiplier, delta))
    )


def _factorization() -> tuple[Any, Any]:
    """Return jax-privacy's functions for Toeplitz matrices, and its decorator for 64-bit numbers."""
    _extra("jax_privacy")
    from jax_privacy.matrix_factorization import optimization, toeplitz

    return toeplitz, optimization.jax_enable_x64


def _extra(name: str) -> Any:
    """Import a library of the extra.

    Raises:
        MissingExtraError: If it is not installed.
    """
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError("a plan for differential privacy", "privacy") from error
