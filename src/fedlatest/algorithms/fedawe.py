"""FedAWE: clients continue from their own model and amplify their update by their absence (Xiang et al. 2024)."""

from typing import Any

import jax.numpy as jnp

from fedlatest.algorithms.base import (
    Algorithm,
    ClientFacts,
    ClientState,
    Contribution,
    ModelOnly,
    Params,
    Parts,
    RoundFacts,
    Sums,
    add,
    keep_model,
    scale,
    subtract,
    where,
)
from fedlatest.algorithms.fedavg import select_uniformly
from fedlatest.algorithms.server_optimizer import check_positive
from fedlatest.algorithms.weighting import Weighting, refuse_update_weighting, weighted_direction


def fedawe(*, server_step: float = 1.0, weighting: Weighting = "loss") -> Algorithm:
    r"""A client trains from its own model x_i, which is replaced by the merged model only when it takes part.

        x_i_local = C local steps from x_i
        x = (1/|S|) \sum_{i in S} (x_i + server_step (t - tau_i) (x_i_local - x_i))
        x_i = x for i in S

    t is the current round and tau_i the last one in which client i took part, -1 before its first. A round with an
    empty cohort changes nothing. The authors' code also shortens the mean of the amplified updates to a norm of 0.5;
    that is no part of their algorithm and is not done here.

    Args:
        server_step: eta_g, the step size along the amplified updates.
        weighting: "loss" multiplies a client's loss by its share of the samples, "none" ignores it.

    >>> sorted(fedawe().client_state(jnp.zeros(2)).private)
    ['model']
    """
    check_positive("server_step", server_step)
    refuse_update_weighting(weighting, "FedAWE averages models")

    def init_client(params: Params) -> ClientState:
        return ClientState(private={"model": params})

    def start(broadcast: Any, client: ClientState) -> Params:
        del broadcast
        return client.private["model"]

    def contribute(broadcast: Any, local: Params, client: ClientState, facts: ClientFacts) -> Contribution:
        del broadcast
        own = client.private["model"]
        absence = (facts.round - facts.last_round).astype(jnp.float32)
        return Contribution(
            fresh={"model": add(own, subtract(local, own), facts.numbers["server_step"] * absence)},
        )

    def merge(server: ModelOnly, sums: Sums, facts: RoundFacts) -> ModelOnly:
        del facts
        mean = scale(sums.fresh["model"], 1.0 / jnp.maximum(sums.num, 1))
        return where(sums.num > 0, ModelOnly(mean), server)

    def after_merge(broadcast: ModelOnly, client: ClientState, facts: ClientFacts) -> Parts:
        del client, facts
        return {"model": broadcast.params}

    return Algorithm(
        name="fedawe",
        title="FedAWE",
        paper="Xiang et al. 2024, Efficient Federated Learning against Heterogeneous and Non-stationary Client "
        "Unavailability",
        init_server=keep_model,
        init_client=init_client,
        select=select_uniformly,
        start=start,
        direction=weighted_direction(weighting),
        contribute=contribute,
        merge=merge,
        after_merge=after_merge,
        settings={"server_step": server_step, "weighting": weighting},
        numbers={"server_step": server_step},
    )
