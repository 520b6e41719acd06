"""Naive: wait for everybody. Each client trains once per cycle on the same model; then the server steps once."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedlatest.algorithms.base import Algorithm, Cohort, Params, RoundFacts, Sums, add, zeros_like
from fedlatest.algorithms.selection import uniform
from fedlatest.algorithms.weighting import Weighting, weighted


class Waiting(NamedTuple):
    """The model, what this cycle has gathered so far, and when the cycle began."""

    params: Params
    gathered: Params
    num_gathered: jax.Array
    cycle_start: jax.Array


def naive(*, weighting: Weighting = "loss") -> Algorithm:
    r"""K of the available clients that this cycle has not yet seen train on the cycle's model.

    Once all N are in:  x = x + (1/N) \sum_i u_i,  and a new cycle begins. Unbiased, and as slow as the slowest client.

    >>> naive().name
    'naive'
    """
    direction, contribute = weighted(weighting)

    def init(params: Params, num_clients: int) -> Waiting:
        del num_clients
        return Waiting(params, zeros_like(params), jnp.int32(0), jnp.int32(0))

    def select(server: Waiting, available: jax.Array, facts: RoundFacts) -> Cohort:
        return uniform(available & (facts.last_round < server.cycle_start), facts)

    def merge(server: Waiting, sums: Sums, facts: RoundFacts) -> Waiting:
        gathered = add(server.gathered, sums.fresh["update"])
        num_gathered = server.num_gathered + sums.num
        full = num_gathered == facts.num_clients
        return Waiting(
            params=add(server.params, gathered, jnp.where(full, 1.0 / facts.num_clients, 0.0)),
            gathered=jax.tree.map(lambda x: jnp.where(full, 0.0, x), gathered),
            num_gathered=jnp.where(full, 0, num_gathered),
            cycle_start=jnp.where(full, facts.round + 1, server.cycle_start),
        )

    return Algorithm(
        name="naive",
        init=init,
        select=select,
        direction=direction,
        contribute=contribute,
        merge=merge,
        settings={"weighting": weighting},
    )
