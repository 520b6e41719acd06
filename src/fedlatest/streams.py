"""Random numbers without state: every draw is a hash of (seed, purpose, round, client id, ...).

A run therefore does not depend on how it was chunked, resumed, vectorised or ordered. Everything works on arrays, under
`jit` and `vmap`, and costs a few integer operations a draw.
"""

from enum import IntEnum

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

PERMUTATION_ROUNDS = 24


class Purpose(IntEnum):
    """What a stream is for; streams of different purposes are unrelated."""

    AVAILABILITY = 1
    SELECTION = 2
    BATCHES = 3
    INITIAL_MODEL = 4
    BRIDGE = 5
    COMPOSITION = 6
    WORK = 7


def bits(seed: ArrayLike, purpose: Purpose, *words: ArrayLike) -> jax.Array:
    """32 random bits for each combination of the words, which broadcast against each other.

    >>> bits(0, Purpose.SELECTION, 7, jnp.arange(3)).shape
    (3,)
    """
    state = _mix(_unsigned(seed) * jnp.uint32(0x9E3779B1) + jnp.uint32(purpose))
    for word in words:
        state = _mix(_mix(state ^ _unsigned(word)) + jnp.uint32(0x6D2B79F5))
    return state


def uniform(seed: ArrayLike, purpose: Purpose, *words: ArrayLike) -> jax.Array:
    """Uniform in [0, 1), on a grid of 2^-24 so that a rate of 1 is certain and a rate of 0 impossible."""
    return (bits(seed, purpose, *words) >> 8).astype(jnp.float32) * jnp.float32(2**-24)


def permute(key: ArrayLike, size: ArrayLike, position: ArrayLike) -> jax.Array:
    """Where `position` goes in a pseudo-random permutation of range(size) that `key` names.

    The swap-or-not shuffle (Hoang, Morris, Rogaway 2012): in each round a position x and its partner p - x change
    places if a coin, common to the pair, says so. One element costs the same whatever the size, no array is sorted, and
    every `size` may differ.

    >>> sorted(permute(jnp.uint32(3), 5, jnp.arange(5)).tolist())
    [0, 1, 2, 3, 4]
    """
    key, size = _unsigned(key), jnp.asarray(size, jnp.int32)
    shape = jnp.broadcast_shapes(key.shape, size.shape, jnp.shape(position))
    return _shuffle(key, size, jnp.broadcast_to(jnp.asarray(position, jnp.int32), shape))


@jax.jit  # traced once, not for every program anew: these rounds were most of what tracing a program took
def _shuffle(key: jax.Array, size: jax.Array, place: jax.Array) -> jax.Array:
    for number in range(1, PERMUTATION_ROUNDS + 1):
        place = _swap_or_not(_mix(key + jnp.uint32(0x9E3779B9) * jnp.uint32(number)), size, place)
    return place


@jax.jit
def _swap_or_not(round_key: jax.Array, size: jax.Array, place: jax.Array) -> jax.Array:
    pivot = jnp.minimum((_unit(round_key) * size).astype(jnp.int32), size - 1)
    partner = pivot - place
    partner = jnp.where(partner < 0, partner + size, partner)
    coin = _mix(round_key ^ jnp.maximum(place, partner).astype(jnp.uint32)) >> 31
    return jnp.where(coin == 1, partner, place)


def _unsigned(word: ArrayLike) -> jax.Array:
    return jnp.asarray(word).astype(jnp.uint32)


def _unit(word: jax.Array) -> jax.Array:
    return (word >> 8).astype(jnp.float32) * jnp.float32(2**-24)


def _mix(word: jax.Array) -> jax.Array:
    """Murmur3's finaliser (Appleby, public domain): a bijection of 32 bits in which every bit moves every other."""
    word = (word ^ (word >> 16)) * jnp.uint32(0x85EBCA6B)
    word = (word ^ (word >> 13)) * jnp.uint32(0xC2B2AE35)
    return word ^ (word >> 16)
