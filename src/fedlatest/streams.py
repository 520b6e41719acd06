"""Stateless random numbers: every draw is a hash of (seed, purpose, round, client id, ...).

The result of a run therefore does not depend on chunking, resuming, vectorisation or order. All functions work on
arrays and under `jit` and `vmap`; a draw costs a few integer operations.
"""

from enum import IntEnum, unique

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

PERMUTATION_ROUNDS = 24


@unique
class Purpose(IntEnum):
    """The purpose of a random stream; streams of different purposes are independent."""

    AVAILABILITY = 1
    SELECTION = 2
    BATCHES = 3
    INITIAL_MODEL = 4
    BRIDGE = 5
    COMPOSITION = 6
    WORK = 7
    AUGMENTATION = 8
    PRIVACY_NOISE = 9
    DELAY = 10


def bits(seed: ArrayLike, purpose: Purpose, *words: ArrayLike) -> jax.Array:
    """Return 32 random bits for each combination of the words.

    Args:
        seed: Seed of the run.
        purpose: Purpose of the draw; different purposes give independent streams.
        *words: Further keys such as round and client id, broadcast against each other.

    >>> bits(0, Purpose.SELECTION, 7, jnp.arange(3)).shape
    (3,)
    """
    state = _mix(_unsigned(seed) * jnp.uint32(0x9E3779B1) + jnp.uint32(purpose))
    for word in words:
        state = _mix(_mix(state ^ _unsigned(word)) + jnp.uint32(0x6D2B79F5))
    return state


def uniform(seed: ArrayLike, purpose: Purpose, *words: ArrayLike) -> jax.Array:
    """Return uniform numbers in [0, 1), multiples of 2^-24, for the same arguments as `bits`.

    `uniform(...) < rate` is therefore always true for a rate of 1 and never for a rate of 0.
    """
    return (bits(seed, purpose, *words) >> 8).astype(jnp.float32) * jnp.float32(2**-24)


def permute(key: ArrayLike, size: ArrayLike, position: ArrayLike) -> jax.Array:
    """Return the image of `position` under a pseudo-random permutation of range(size).

    This is the swap-or-not shuffle (Hoang, Morris, Rogaway 2012): in each of its rounds, a position x and its partner
    p - x are swapped if a random bit of the pair is 1. The cost per element does not depend on `size`, no array is
    sorted, and the arguments broadcast, so each element may have its own `size`.

    Args:
        key: 32 random bits that select the permutation.
        size: Number of elements of the permutation.
        position: Element to map, in 0 .. size - 1.

    >>> sorted(permute(jnp.uint32(3), 5, jnp.arange(5)).tolist())
    [0, 1, 2, 3, 4]
    """
    key, size = _unsigned(key), jnp.asarray(size, jnp.int32)
    shape = jnp.broadcast_shapes(key.shape, size.shape, jnp.shape(position))
    return _shuffle(key, size, jnp.broadcast_to(jnp.asarray(position, jnp.int32), shape))


@jax.jit  # traced once instead of once per program: these rounds dominated the tracing time
def _shuffle(key: jax.Array, size: jax.Array, position: jax.Array) -> jax.Array:
    for number in range(1, PERMUTATION_ROUNDS + 1):
        position = _swap_or_not(_mix(key + jnp.uint32(0x9E3779B9) * jnp.uint32(number)), size, position)
    return position


@jax.jit
def _swap_or_not(round_key: jax.Array, size: jax.Array, position: jax.Array) -> jax.Array:
    pivot = jnp.minimum((_unit(round_key) * size).astype(jnp.int32), size - 1)
    partner = pivot - position
    partner = jnp.where(partner < 0, partner + size, partner)
    swap = _mix(round_key ^ jnp.maximum(position, partner).astype(jnp.uint32)) >> 31
    return jnp.where(swap == 1, partner, position)


def _unsigned(word: ArrayLike) -> jax.Array:
    return jnp.asarray(word).astype(jnp.uint32)


def _unit(word: jax.Array) -> jax.Array:
    return (word >> 8).astype(jnp.float32) * jnp.float32(2**-24)


def _mix(word: jax.Array) -> jax.Array:
    """Apply the finaliser of MurmurHash3 (Appleby, public domain): a bijection in which each bit affects all others."""
    word = (word ^ (word >> 16)) * jnp.uint32(0x85EBCA6B)
    word = (word ^ (word >> 13)) * jnp.uint32(0xC2B2AE35)
    return word ^ (word >> 16)
