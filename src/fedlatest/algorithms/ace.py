"""ACE: every arrival steps along the latest updates of all clients (Chang et al. 2025)."""

from typing import Any

import jax.numpy as jnp

from fedlatest.algorithms.base import NEVER, Algorithm, ModelOnly, RoundFacts, Sums, UpdateUpload, add, keep_model
from fedlatest.algorithms.fedavg import select_uniformly
from fedlatest.algorithms.server_optimizer import server_numbers
from fedlatest.algorithms.weighting import Weighting, refuse_update_weighting, weighted_direction

PAPER = "Chang et al. 2025, Mitigating Participation Imbalance Bias in Asynchronous Federated Learning"


def ace(*, server_step: float = 1.0, weighting: Weighting = "loss") -> Algorithm:
    r"""After every arrival the server steps along the average of the clients' latest updates.

        u_i = x_local - x        of the client that arrives, relative to the model with which it started
        x   = x + server_step (1/|A|) \sum_{i in A} u_i

    A is the set of clients that have arrived at least once. This differs from the paper in three ways. The paper first
    asks all clients for an update and steps along their average, so that A is everyone; here the average grows as
    clients arrive. In the paper all clients are at work at any time, and one that has arrived starts again at once;
    here `cohort_size` clients are, and they are replaced by available ones, drawn uniformly. A client uploads the
    result of its local steps; in the paper it is one stochastic gradient. `fedlaavg_async` divides by N from the start
    and prefers clients that started long ago.

    Each client's latest update is remembered. An upload has the size of the model.

    Args:
        server_step: eta, the server's step size. A step is taken after every arrival: for the progress per arrival of
            synchronous rounds of K clients, use about 1 / K.
        weighting: How a client's share of the samples is used; "loss" or "none".

    >>> ace().buffer
    1
    """
    refuse_update_weighting(weighting, "the average over the clients does not depend on their weights")
    numbers = server_numbers(server_step)
    return Algorithm(
        name="ace",
        title="ACE",
        paper=PAPER,
        init_server=keep_model,
        select=select_uniformly,
        direction=weighted_direction(weighting),
        contribute=UpdateUpload(remembered=True),
        merge=step_along_average,
        buffer=1,
        settings={**numbers, "weighting": weighting},
        numbers=numbers,
    )


def step_along_average(server: Any, sums: Sums, facts: RoundFacts) -> ModelOnly:
    """Move along the average of the updates that are remembered."""
    number = jnp.maximum(jnp.sum(facts.last_round != NEVER), 1)
    return ModelOnly(add(server.params, sums.total["update"], facts.numbers["server_step"] / number))
