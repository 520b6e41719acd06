"""Selection of the cohort: K of the available clients, oldest first or uniformly at random.

Both rank all N clients by a number and take the K highest with `top_k`, so the cohort has a fixed size under `jit`;
slots beyond the available clients are masked. A rank is a float whose bit pattern carries 30 hashed bits: on a CPU
`top_k` is a hundred times faster on float32 than on integers, and positive floats sort like their bits.
"""

import jax
import jax.numpy as jnp
from jax import lax

from fedlatest.algorithms.base import Cohort, RoundFacts
from fedlatest.streams import Purpose, bits


def oldest_first(available: jax.Array, facts: RoundFacts) -> Cohort:
    """Return the K available clients with the lowest R_i; ties are broken by a hash of (seed, id, R_i).

    The first pass finds the K-th lowest R_i; the second takes all clients below it and draws among the equal ones.
    """
    staleness = jnp.where(available, facts.round - facts.last_round, 0).astype(jnp.float32)  # >= 1 when available
    threshold = jnp.min(lax.top_k(staleness, facts.cohort_size)[0])  # not [-1]: XLA would then sort all N
    draw = _random_ranks(facts, facts.last_round)
    rank = jnp.where(staleness > threshold, jnp.inf, jnp.where(staleness == threshold, draw, 0.0))
    return _highest(jnp.where(available, rank, -1.0), facts.cohort_size)


def uniform(available: jax.Array, facts: RoundFacts) -> Cohort:
    """Return K of the available clients, every subset equally likely, by a hash of (seed, id, round)."""
    return _highest(jnp.where(available, _random_ranks(facts, facts.round), -1.0), facts.cohort_size)


def _random_ranks(facts: RoundFacts, when: jax.Array) -> jax.Array:
    """Return a positive normal float for each client, in random order."""
    hashed = bits(facts.seed, Purpose.SELECTION, facts.ids, when)
    return lax.bitcast_convert_type((hashed >> 2) + jnp.uint32(0x00800000), jnp.float32)


def _highest(rank: jax.Array, cohort_size: int) -> Cohort:
    highest, clients = lax.top_k(rank, cohort_size)
    return Cohort(clients, highest >= 0)
