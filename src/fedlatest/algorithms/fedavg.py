"""FedAvg: average the updates of the clients that take part (McMahan et al. 2017)."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from fedlatest.algorithms.base import Algorithm, Cohort, Params, RoundFacts, Sums, UpdateUpload, scale
from fedlatest.algorithms.selection import uniform
from fedlatest.algorithms.server_optimizer import make_server_step, server_numbers, server_settings
from fedlatest.algorithms.weighting import Weighting, weighted_direction


def fedavg(
    *,
    weighting: Weighting = "loss",
    server_optimizer: optax.GradientTransformation | None = None,
    server_step: float = 1.0,
) -> Algorithm:
    r"""K of the available clients, drawn uniformly, train; the server adds the mean of their updates.

        x = x + server_step (1/|S|) \sum_{i in S} u_i

    A round with an empty cohort changes nothing.

    Args:
        weighting: How a client's share of the samples is used: "loss" multiplies its local loss by it, "update" its
            update (and the mean is weighted), "none" ignores it.
        server_optimizer: An optax transformation of the mean update, such as `optax.scale_by_adam()`; the server then
            adds `server_step` times its result.
        server_step: The server's step size.

    >>> fedavg().obstacles_to_deployment()
    ['it changes the local steps (direction)']
    >>> fedavg(weighting="update").obstacles_to_deployment()
    []
    """
    numbers = server_numbers(server_step)
    init_server, step = make_server_step(server_optimizer)

    def merge(server: Any, sums: Sums, facts: RoundFacts) -> Any:
        return step(server, mean_update(sums, weighting), sums.num > 0, facts)

    return Algorithm(
        name="fedavg",
        title="FedAvg",
        paper="McMahan et al. 2017, Communication-Efficient Learning of Deep Networks from Decentralized Data",
        init_server=init_server,
        select=select_uniformly,
        direction=weighted_direction(weighting),
        contribute=UpdateUpload(weighted=weighting == "update"),
        merge=merge,
        settings={"weighting": weighting, **server_settings(server_optimizer, numbers)},
        numbers=numbers,
    )


def select_uniformly(server: Any, available: jax.Array, facts: RoundFacts) -> Cohort:
    """`select` of the algorithms that draw K of the available clients."""
    del server
    return uniform(available, facts)


def mean_update(sums: Sums, weighting: Weighting) -> Params:
    """Return the mean of the cohort's updates, weighted with `weighting="update"`; 0 when nobody took part."""
    total = sums.weight if weighting == "update" else sums.num
    share = jnp.where(sums.num > 0, 1.0 / jnp.where(sums.num > 0, total, 1.0), 0.0)
    return scale(sums.fresh["update"], share)
