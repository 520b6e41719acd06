"""Differential privacy in a compiled round: limits of participation, clipping and noise.

The server's total of remembered updates and the clients' rows stay exact; only what `merge` receives is noisy. The
noise is a function of (seed, round), so that it does not depend on chunking, resuming or devices. See
`fedlatest.privacy.NoisePlan` for its formula.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedlatest.algorithms.base import NEVER, Algorithm, Contribution, Params, Parts, Sums, UpdateUpload
from fedlatest.errors import ConfigError
from fedlatest.privacy import NoisePlan, Uploads
from fedlatest.streams import Purpose, bits


class TrialPrivacy(NamedTuple):
    """The numbers of a noise plan, as arguments of a compiled program: plans of equal length share one."""

    clip_norm: jax.Array
    min_separation: jax.Array
    max_participations: jax.Array
    coefficients: jax.Array  # [p] of the noise of a round's sum, times the standard deviation
    total_coefficients: jax.Array  # [p] of the noise of the total; zeros if nothing is remembered


def trial_privacy(plan: NoisePlan) -> TrialPrivacy:
    """Return the numbers of a plan."""
    total = plan.total_coefficients if plan.mechanism == "total" else (0.0,) * len(plan.coefficients)
    return TrialPrivacy(
        jnp.float32(plan.clip_norm),
        jnp.int32(plan.min_separation),
        jnp.int32(plan.max_participations),
        jnp.asarray(plan.stddev * np.asarray(plan.coefficients), jnp.float32),
        jnp.asarray(plan.stddev * np.asarray(total), jnp.float32),
    )


def kind_of_uploads(algorithm: Algorithm) -> Uploads:
    """Return whether the updates of an algorithm are fresh or remembered.

    Raises:
        ConfigError: If the guarantee cannot be given for the algorithm.
    """
    upload = algorithm.contribute
    if algorithm.pooled or not isinstance(upload, UpdateUpload):
        raise ConfigError(
            f"privacy: algorithm {algorithm.name} uploads something else than one update (UpdateUpload), which cannot "
            "be clipped; use fedlaavg, fedlaavg_fresh or fedavg"
        )
    if upload.weighted or algorithm.settings.get("weighting", "none") != "none":
        raise ConfigError(
            f"privacy: weighting={algorithm.settings.get('weighting')} uses the clients' numbers of samples, which the "
            "guarantee does not protect; use weighting=none"
        )
    return "remembered" if upload.remembered else "fresh"


def within_limits(
    privacy: TrialPrivacy, round: jax.Array, last_round: jax.Array, participations: jax.Array
) -> jax.Array:
    """Return which clients [N] may take part in a round without exceeding their limits."""
    rested = (last_round == NEVER) | (round - last_round >= privacy.min_separation)
    return rested & (participations < privacy.max_participations)


def clip_contribution(contribution: Contribution, clip_norm: jax.Array) -> Contribution:
    """Return the contribution of one client with its update scaled down to a norm of at most `clip_norm`."""
    clipped = clip_tree((contribution.fresh, contribution.remembered), clip_norm)
    return contribution._replace(fresh=clipped[0], remembered=clipped[1])


def clip_tree(tree: Params, clip_norm: jax.Array) -> Params:
    """Return a tree scaled down to a joint norm of at most `clip_norm`; one that is within it stays unchanged."""
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree)))
    factor = jnp.where(norm > clip_norm, clip_norm / norm, 1.0)
    return jax.tree.map(lambda leaf: leaf * factor.astype(leaf.dtype), tree)


def add_noise(sums: Sums, privacy: TrialPrivacy, seed: jax.Array, round: jax.Array) -> Sums:
    """Return the sums of a round with noise."""

    def noisy(parts: Parts, coefficients: jax.Array) -> Parts:
        noise = combine(parts, coefficients, seed, round)
        return jax.tree.map(lambda part, own: part + own.astype(part.dtype), parts, noise)

    return sums._replace(
        fresh=noisy(sums.fresh, privacy.coefficients),
        delta=noisy(sums.delta, privacy.coefficients),
        total=noisy(sums.total, privacy.total_coefficients),
    )


def combine(like: Params, coefficients: jax.Array, seed: jax.Array, round: jax.Array) -> Params:
    """Return sum_j a_j z_{r-j} for the coefficients a [p] in round r, a tree with the shapes of `like`."""
    noise = jax.tree.map(jnp.zeros_like, like)
    for age in range(coefficients.shape[0]):
        factor = jnp.where(round >= age, coefficients[age], 0.0)
        normals = standard_normals(like, seed, round - age)
        noise = jax.tree.map(lambda total, z, factor=factor: total + factor * z, noise, normals)
    return noise


def standard_normals(like: Params, seed: jax.Array, round: jax.Array) -> Params:
    """Return z_r of a round: independent standard normal numbers with the shapes of a tree."""
    leaves, structure = jax.tree.flatten(like)
    key = jax.random.key(bits(seed, Purpose.PRIVACY_NOISE, round))

    def draw(number: int, leaf: Any) -> jax.Array:
        return jax.random.normal(jax.random.fold_in(key, number), jnp.shape(leaf), jnp.float32)

    return jax.tree.unflatten(structure, [draw(number, leaf) for number, leaf in enumerate(leaves)])
