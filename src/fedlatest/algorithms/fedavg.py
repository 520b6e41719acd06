"""FedAvg: average the updates of whoever takes part (McMahan et al. 2017)."""

import jax
import jax.numpy as jnp

from fedlatest.algorithms.base import Algorithm, Cohort, ModelOnly, RoundFacts, Sums, add, keep_model
from fedlatest.algorithms.selection import uniform
from fedlatest.algorithms.weighting import Weighting, weighted


def fedavg(*, weighting: Weighting = "loss") -> Algorithm:
    r"""K of the available clients, drawn uniformly, train; the server adds the mean of their updates.

        x = x + (1/|S|) \sum_{i in S} u_i

    With `weighting="update"` the mean is weighted by the clients' data. A round without participants changes nothing.

    >>> fedavg().remembers
    ()
    """
    direction, contribute = weighted(weighting)

    def select(server: ModelOnly, available: jax.Array, facts: RoundFacts) -> Cohort:
        del server
        return uniform(available, facts)

    def merge(server: ModelOnly, sums: Sums, facts: RoundFacts) -> ModelOnly:
        del facts
        return ModelOnly(add(server.params, sums.fresh["update"], mean_share(sums, weighting)))

    return Algorithm(
        name="fedavg",
        init=keep_model,
        select=select,
        direction=direction,
        contribute=contribute,
        merge=merge,
        settings={"weighting": weighting},
    )


def mean_share(sums: Sums, weighting: Weighting) -> jax.Array:
    """What turns the sum of the cohort's updates into their mean; 0 when nobody took part."""
    share = sums.weight if weighting == "update" else sums.num
    return jnp.where(sums.num > 0, 1.0 / jnp.where(sums.num > 0, share, 1.0), 0.0)
