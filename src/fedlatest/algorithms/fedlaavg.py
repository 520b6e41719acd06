"""FedLaAvg: every client's latest update stays in the average while the client is away.

Yan et al., "Distributed Non-Convex Optimization with Sublinear Speedup under Intermittent Client Availability",
Algorithm 2 (Algorithm 1 when there is one local step).
"""

from typing import Literal

import jax
import jax.numpy as jnp

from fedlatest.algorithms.base import Algorithm, Cohort, ModelOnly, RoundFacts, Sums, add, keep_model
from fedlatest.algorithms.selection import oldest_first
from fedlatest.algorithms.weighting import Weighting, weighted
from fedlatest.errors import ConfigError


def fedlaavg(*, weighting: Weighting = "loss", empty_round: Literal["step", "hold"] = "step") -> Algorithm:
    r"""The K available clients absent longest train; the server steps along the average of everybody's latest update.

        B_r = the K clients of C_r with the lowest R_i
        u   = u + (1/N) \sum_{i in B_r} (u_i_new - u_i)          so that u = (1/N) \sum_i u_i at all times
        x   = x + u

    With `weighting="update"` the updates are weighted by the clients' data, and N is the weight of all.

    `empty_round` says what happens when nobody takes part: "step" moves along u all the same, as the paper is written;
    "hold" leaves the model where it is.

    >>> fedlaavg().remembers
    ('update',)
    """
    if empty_round not in ("step", "hold"):
        raise ConfigError(f"empty_round={empty_round!r}: choose 'step' (the paper) or 'hold'")
    direction, contribute = weighted(weighting)

    def select(server: ModelOnly, available: jax.Array, facts: RoundFacts) -> Cohort:
        del server
        return oldest_first(available, facts)

    def merge(server: ModelOnly, sums: Sums, facts: RoundFacts) -> ModelOnly:
        still = (sums.num == 0) if empty_round == "hold" else False
        share = facts.total_weight if weighting == "update" else facts.num_clients
        step = jnp.where(still, 0.0, 1.0 / share)
        return ModelOnly(add(server.params, sums.total["update"], step))

    return Algorithm(
        name="fedlaavg",
        init=keep_model,
        select=select,
        direction=direction,
        contribute=contribute,
        merge=merge,
        remembers=("update",),
        oldest_first=True,
        settings={"weighting": weighting, "empty_round": empty_round},
    )
