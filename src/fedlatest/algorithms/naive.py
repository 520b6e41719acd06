"""Naive: synchronous over all clients. Each client trains once per cycle on the same model, then the server steps."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedlatest.algorithms.base import (
    Algorithm,
    Cohort,
    Params,
    RoundFacts,
    Sums,
    UpdateUpload,
    add,
    zeros_like,
)
from fedlatest.algorithms.selection import uniform
from fedlatest.algorithms.server_optimizer import server_numbers
from fedlatest.algorithms.weighting import Weighting, weighted_direction


class CycleState(NamedTuple):
    """The model, the updates collected in this cycle, and the round in which the cycle began."""

    params: Params
    collected: Params
    num_collected: jax.Array
    cycle_start: jax.Array


def naive(*, server_step: float = 1.0, weighting: Weighting = "loss") -> Algorithm:
    r"""K of the available clients that have not trained in this cycle train on the cycle's model.

    After all N have trained once, a new cycle begins with

        x = x + server_step (1/N) \sum_i u_i

    It is unbiased, and as slow as the least available client. It cannot be deployed: a cycle would never end if a
    client left for good.

    Args:
        server_step: The server's step size, once per cycle.
        weighting: How a client's share of the samples is used; see `fedavg`.

    >>> naive().requires
    ('fixed_clients',)
    """
    numbers = server_numbers(server_step)

    def init_server(params: Params, num_clients: int) -> CycleState:
        del num_clients
        return CycleState(params, zeros_like(params), jnp.int32(0), jnp.int32(0))

    def select(server: CycleState, available: jax.Array, facts: RoundFacts) -> Cohort:
        return uniform(available & (facts.last_round < server.cycle_start), facts)

    def merge(server: CycleState, sums: Sums, facts: RoundFacts) -> CycleState:
        step = facts.numbers["server_step"]
        collected = add(server.collected, sums.fresh["update"])
        num_collected = server.num_collected + sums.num
        complete = num_collected == facts.num_clients
        return CycleState(
            params=add(server.params, collected, jnp.where(complete, step / facts.num_clients, 0.0)),
            collected=jax.tree.map(lambda x: jnp.where(complete, 0.0, x), collected),
            num_collected=jnp.where(complete, 0, num_collected),
            cycle_start=jnp.where(complete, facts.round + 1, server.cycle_start),
        )

    return Algorithm(
        name="naive",
        title="Naive",
        paper="the baseline of Yan et al. 2020",
        init_server=init_server,
        select=select,
        direction=weighted_direction(weighting),
        contribute=UpdateUpload(weighted=weighting == "update"),
        merge=merge,
        requires=("fixed_clients",),
        settings={**numbers, "weighting": weighting},
        numbers=numbers,
    )
