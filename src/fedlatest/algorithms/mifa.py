"""MIFA: the server uses the latest gradients of all clients, available or not (Gu et al. 2021)."""

from typing import Any

import jax.numpy as jnp

from fedlatest.algorithms.base import (
    Algorithm,
    ClientFacts,
    ClientState,
    Contribution,
    ModelOnly,
    Params,
    RoundFacts,
    Sums,
    UpdateUpload,
    add,
    keep_model,
    scale,
    where,
    zeros_like,
)
from fedlatest.algorithms.fedavg import select_uniformly
from fedlatest.algorithms.server_optimizer import server_numbers
from fedlatest.algorithms.weighting import Weighting, weighted_direction


def mifa(*, server_step: float = 1.0, weighting: Weighting = "loss") -> Algorithm:
    r"""Remember each client's latest sum of gradients; every step uses all of them with today's learning rate.

        G_i = (x - x_local) / eta_t                        for i in S, otherwise unchanged
        x   = x - server_step (eta_t/N) \sum_i G_i         in every round, also when S is empty

    In the paper every available client takes part: run it with K = N. With a smaller K, K of the available clients are
    drawn uniformly. The paper also assumes that all clients are available in the first round; here a client that has
    not taken part yet counts as G_i = 0, as in the variant of the authors' code that does not wait. With a constant
    learning rate, MIFA is FedLaAvg with another selection.

    Each client keeps G_i, one vector of the size of the model; the server keeps their sum. An upload has the size of
    the model. Participation rates are not needed. It cannot be deployed: there the server does not know the clients'
    learning rate. A round with a learning rate of 0 leaves G_i unchanged.

    Args:
        server_step: The server's step size; 1 in the paper.
        weighting: How a client's share of the samples is used; see `fedlaavg`.

    >>> sorted(mifa().client_state(jnp.zeros(2)).remembered)
    ['direction']
    """
    numbers = server_numbers(server_step)
    upload = UpdateUpload(weighted=weighting == "update")

    def init_client(params: Params) -> ClientState:
        return ClientState(remembered={"direction": zeros_like(params)})

    def contribute(broadcast: Any, local: Params, client: ClientState, facts: ClientFacts) -> Contribution:
        update = upload(broadcast, local, client, facts).fresh["update"]
        rate = facts.learning_rate
        direction = scale(update, 1.0 / jnp.where(rate > 0, rate, 1.0))  # -G_i
        return Contribution(remembered={"direction": where(rate > 0, direction, client.remembered["direction"])})

    def merge(server: ModelOnly, sums: Sums, facts: RoundFacts) -> ModelOnly:
        divisor = facts.total_weight if weighting == "update" else facts.num_clients
        step = facts.numbers["server_step"] * (facts.learning_rate / divisor)
        return ModelOnly(add(server.params, sums.total["direction"], step))

    return Algorithm(
        name="mifa",
        title="MIFA",
        paper="Gu et al. 2021, Fast Federated Learning in the Presence of Arbitrary Device Unavailability",
        init_server=keep_model,
        init_client=init_client,
        select=select_uniformly,
        direction=weighted_direction(weighting),
        contribute=contribute,
        merge=merge,
        settings={**numbers, "weighting": weighting},
        numbers=numbers,
    )
