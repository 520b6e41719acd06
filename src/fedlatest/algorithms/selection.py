"""Selection of the cohort: K of the available clients, oldest first, lowest value first or at random.

All rank all N clients and take the K highest, so the cohort has a fixed size under `jit`; slots beyond the available
clients are masked. On a CPU a rank is a float whose bit pattern carries 30 hashed bits: there, `top_k` is a hundred
times faster on float32 than on integers, and positive floats sort like their bits. On an accelerator `top_k` sorts all
N clients in many small steps; counting how many clients rank higher takes one.
"""

import jax
import jax.numpy as jnp
from jax import lax

from fedlatest.algorithms.base import Cohort, RoundFacts
from fedlatest.streams import Purpose, bits

MAX_COUNTED = 4096  # up to this number of clients, all pairs are compared
GROUP = 32  # above it, groups of this size are ranked by their highest client first


def oldest_first(available: jax.Array, facts: RoundFacts) -> Cohort:
    """Return the K available clients with the lowest R_i; ties are broken by a hash of (seed, id, R_i)."""
    staleness = jnp.where(available, facts.round - facts.last_round, 0)  # >= 1 when available
    if _counts():
        return _count_highest(staleness, _hashed(facts, facts.last_round), facts.cohort_size)
    if facts.cohort_size == 1:
        return _first_highest(
            jnp.where(staleness == jnp.max(staleness), _hashed(facts, facts.last_round), 0), available
        )
    # The first pass finds the K-th lowest R_i; the second takes all clients below it and draws among the equal ones.
    staleness = staleness.astype(jnp.float32)
    threshold = jnp.min(lax.top_k(staleness, facts.cohort_size)[0])  # not [-1]: XLA would then sort all N
    draw = _as_float(_hashed(facts, facts.last_round))
    rank = jnp.where(staleness > threshold, jnp.inf, jnp.where(staleness == threshold, draw, 0.0))
    return _highest(jnp.where(available, rank, -1.0), facts.cohort_size)


def lowest_first(values: jax.Array, available: jax.Array, facts: RoundFacts) -> Cohort:
    """Return the K available clients with the lowest values; ties are broken by a hash of (seed, id, round).

    Args:
        values: float32 [N], finite and not negative.
        available: bool [N].
        facts: The round's facts.
    """
    draw = _hashed(facts, facts.round)
    if _counts():  # floats that are not negative sort like their bits
        first = jnp.int32(0x7F800000) - lax.bitcast_convert_type(values, jnp.int32)
        return _count_highest(jnp.where(available, first, 0), draw, facts.cohort_size)
    score = jnp.where(available, -values, -jnp.inf)
    threshold = jnp.min(lax.top_k(score, facts.cohort_size)[0])  # as in `oldest_first`
    rank = jnp.where(score > threshold, jnp.inf, jnp.where(score == threshold, _as_float(draw), 0.0))
    return _highest(jnp.where(available, rank, -1.0), facts.cohort_size)


def age_weighted(available: jax.Array, facts: RoundFacts) -> Cohort:
    """Return K of the available clients, drawn without replacement with probabilities proportional to (r - R_i)^2.

    Client i has the value -log(U_i) / (r - R_i)^2 with U_i uniform in (0, 1), and those with the lowest values are
    taken: the method of Efraimidis and Spirakis (2006). Unlike `oldest_first`, it does not visit clients in a fixed
    order, so that the ages of clients do not repeat from cycle to cycle.
    """
    draw = (_hashed(facts, facts.round).astype(jnp.float32) + 0.5) / 2.0**30
    age = jnp.maximum(facts.round - facts.last_round, 1).astype(jnp.float32)
    return lowest_first(jnp.abs(jnp.log(draw)) / age**2, available, facts)  # abs: -log(1) would be -0.0


def uniform(available: jax.Array, facts: RoundFacts) -> Cohort:
    """Return K of the available clients, every subset equally likely, by a hash of (seed, id, round)."""
    draw = _hashed(facts, facts.round)
    if _counts():
        return _count_highest(available.astype(jnp.int32), draw, facts.cohort_size)
    if facts.cohort_size == 1:
        return _first_highest(draw, available)
    return _highest(jnp.where(available, _as_float(draw), -1.0), facts.cohort_size)


def _hashed(facts: RoundFacts, when: jax.Array) -> jax.Array:
    """Return 30 random bits for each client."""
    return bits(facts.seed, Purpose.SELECTION, facts.ids, when) >> 2


def _as_float(hashed: jax.Array) -> jax.Array:
    """Return positive normal floats in the order of the hashed bits."""
    return lax.bitcast_convert_type(hashed + jnp.uint32(0x00800000), jnp.float32)


def _highest(rank: jax.Array, cohort_size: int) -> Cohort:
    highest, clients = lax.top_k(rank, cohort_size)
    return Cohort(clients, highest >= 0)


def _first_highest(draw: jax.Array, available: jax.Array) -> Cohort:
    """Return the first of the available clients with the highest draw; faster than `top_k` for one client."""
    rank = jnp.where(available, draw.astype(jnp.int32), -1)
    highest = jnp.max(rank)
    client = jnp.min(jnp.where(rank == highest, jnp.arange(rank.shape[0], dtype=jnp.int32), rank.shape[0]))
    return Cohort(client[None], highest[None] >= 0)


def _counts() -> bool:
    return jax.default_backend() != "cpu"


def _count_highest(first: jax.Array, second: jax.Array, cohort_size: int) -> Cohort:
    """Return the clients that are highest by `first`, then by `second`, then by the lowest position.

    Args:
        first: int32 [N], 0 for clients that must not be selected and positive for all others.
        second: uint32 [N].
        cohort_size: K.
    """
    clients = _highest_positions(first, second, cohort_size)
    return Cohort(clients, first[clients] > 0)


def _higher(left: tuple[jax.Array, ...], right: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    takes_right = (right[0] > left[0]) | ((right[0] == left[0]) & (right[1] > left[1]))
    return tuple(jnp.where(takes_right, y, x) for x, y in zip(left, right, strict=True))


def _highest_positions(first: jax.Array, second: jax.Array, count: int) -> jax.Array:
    """Return the positions [count] of the highest entries.

    All of them lie in the `count` groups whose own highest entries are the highest, so that only the entries of these
    groups must be compared with each other.
    """
    size = first.shape[0]
    positions = jnp.arange(size, dtype=jnp.int32)
    if size > MAX_COUNTED and count * GROUP < size:
        spare = -size % GROUP
        groups = tuple(jnp.pad(part, (0, spare)).reshape(-1, GROUP) for part in (first, second))
        highest = lax.reduce(groups, (jnp.int32(-1), jnp.uint32(0)), _higher, (1,))
        chosen = _highest_positions(highest[0], highest[1], count)
        positions = (chosen[:, None] * GROUP + jnp.arange(GROUP, dtype=jnp.int32)).reshape(-1)
        inside = positions < size
        first, second = (jnp.where(inside, part[positions], 0) for part in (first, second))
        first = jnp.where(inside, first, -1)

    def above(part: jax.Array) -> jax.Array:
        return part[None, :] > part[:, None]

    def equal(part: jax.Array) -> jax.Array:
        return part[None, :] == part[:, None]

    higher = above(first) | (equal(first) & (above(second) | (equal(second) & above(-positions))))
    rank = jnp.sum(higher, axis=1, dtype=jnp.int32)
    return jnp.zeros(count, jnp.int32).at[rank].set(positions, mode="drop", unique_indices=True)
