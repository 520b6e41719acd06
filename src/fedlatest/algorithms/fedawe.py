"""FedAWE: clients continue from their own model and amplify their update by their absence (Xiang et al. 2024)."""

import math
from typing import Any

import jax
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
from fedlatest.errors import ConfigError


def fedawe(*, server_step: float = 1.0, max_norm: float = 0.0, weighting: Weighting = "loss") -> Algorithm:
    r"""A client trains from its own model x_i, which is replaced by the merged model only when it takes part.

        x_i_local = C local steps from x_i
        x = (1/|S|) \sum_{i in S} (x_i + server_step (t - tau_i) (x_i_local - x_i))
        x_i = x for i in S

    t is the current round and tau_i the last one in which client i took part, -1 before its first. A round with an
    empty cohort changes nothing. The authors' code also shortens the mean of the amplified updates to a norm of 0.5,
    which is no part of their algorithm; `max_norm=0.5` does the same.

    Args:
        server_step: eta_g, the step size along the amplified updates.
        max_norm: The largest norm of the mean of the amplified updates; 0 for no limit. With a limit, clients upload
            x_i and the amplified update separately.
        weighting: "loss" multiplies a client's loss by its share of the samples, "none" ignores it.

    >>> sorted(fedawe().client_state(jnp.zeros(2)).private)
    ['model']
    """
    check_positive("server_step", server_step)
    if not (math.isfinite(max_norm) and max_norm >= 0):
        raise ConfigError(f"max_norm={max_norm!r}: must be a finite number, 0 (no limit) or larger")
    limits = max_norm > 0
    numbers = {"server_step": server_step, **({"max_norm": max_norm} if limits else {})}
    refuse_update_weighting(weighting, "FedAWE averages models")

    def init_client(params: Params) -> ClientState:
        return ClientState(private={"model": params})

    def start(broadcast: Any, client: ClientState) -> Params:
        del broadcast
        return client.private["model"]

    def contribute(broadcast: Any, local: Params, client: ClientState, facts: ClientFacts) -> Contribution:
        del broadcast
        own = client.private["model"]
        amplification = facts.numbers["server_step"] * (facts.round - facts.last_round).astype(jnp.float32)
        if limits:
            return Contribution(fresh={"model": own, "update": scale(subtract(local, own), amplification)})
        return Contribution(fresh={"model": add(own, subtract(local, own), amplification)})

    def merge(server: ModelOnly, sums: Sums, facts: RoundFacts) -> ModelOnly:
        share = 1.0 / jnp.maximum(sums.num, 1)
        mean = scale(sums.fresh["model"], share)
        if limits:
            update = scale(sums.fresh["update"], share)
            norm = jnp.sqrt(sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(update)))
            mean = add(mean, update, jnp.minimum(1.0, facts.numbers["max_norm"] / jnp.maximum(norm, 1e-30)))
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
        settings={"server_step": server_step, "max_norm": max_norm, "weighting": weighting},
        numbers=numbers,
    )
