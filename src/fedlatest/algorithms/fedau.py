"""FedAU: updates are weighted by the mean gap between a client's participations (Wang & Ji 2024)."""

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
)
from fedlatest.algorithms.fedavg import select_uniformly
from fedlatest.algorithms.server_optimizer import check_positive
from fedlatest.algorithms.weighting import Weighting, refuse_update_weighting, weighted_direction
from fedlatest.errors import ConfigError


def fedau(*, cutoff: int = 50, server_step: float = 1.0, weighting: Weighting = "loss") -> Algorithm:
    r"""A client weights its update by its mean gap, an estimate of 1 / (its participation rate).

        x = x + server_step (1/N) \sum_{i in S} omega_i u_i

    omega_i is the mean of client i's gaps so far, 1 before the first. A gap is the number of rounds from one
    participation to the next; one that reaches `cutoff` rounds is recorded as `cutoff`, and counting starts again.
    The gap that ends in the current round is included in omega_i only from the client's next participation. u_i is the
    client's update.

    Args:
        cutoff: K in the paper: the longest gap that is recorded.
        server_step: eta in the paper: the server's step size.
        weighting: "loss" multiplies a client's loss by its share of the samples, "none" ignores it.

    >>> fedau(cutoff=20).numbers
    {'cutoff': 20, 'server_step': 1.0}
    """
    if not (cutoff >= 1 and cutoff == int(cutoff)):
        raise ConfigError(f"cutoff={cutoff!r}: must be a whole number of rounds, at least 1")
    check_positive("server_step", server_step)
    refuse_update_weighting(weighting, "FedAU weights updates itself")

    def init_client(params: Params) -> ClientState:
        del params
        return ClientState(private={"mean_gap": jnp.float32(1), "num_gaps": jnp.float32(0)})

    def contribute(broadcast: Any, local: Params, client: ClientState, facts: ClientFacts) -> Contribution:
        cutoff = facts.numbers["cutoff"]
        elapsed = (facts.round - facts.last_round).astype(jnp.float32)
        num_cut = jnp.floor((elapsed - 1) / cutoff)  # gaps that reached the cutoff before this round
        past = _record(client.private, cutoff, num_cut)
        update = scale(subtract(local, broadcast.params), past["mean_gap"])
        return Contribution(fresh={"update": update}, private=_record(past, elapsed - num_cut * cutoff, 1.0))

    def merge(server: ModelOnly, sums: Sums, facts: RoundFacts) -> ModelOnly:
        step = facts.numbers["server_step"] / facts.num_clients
        return ModelOnly(add(server.params, sums.fresh["update"], step))

    numbers = {"cutoff": cutoff, "server_step": server_step}
    return Algorithm(
        name="fedau",
        title="FedAU",
        paper="Wang & Ji 2024, A Lightweight Method for Tackling Unknown Participation Statistics in Federated "
        "Averaging",
        init_server=keep_model,
        init_client=init_client,
        select=select_uniformly,
        direction=weighted_direction(weighting),
        contribute=contribute,
        merge=merge,
        settings={**numbers, "weighting": weighting},
        numbers=numbers,
    )


def _record(gaps: Parts, gap: Any, times: Any) -> Parts:
    """Return the mean and the number of gaps after one gap has been recorded a number of times (possibly 0)."""
    total = gaps["num_gaps"] + times
    mean = (gaps["num_gaps"] * gaps["mean_gap"] + times * gap) / jnp.maximum(total, 1)
    return {"mean_gap": jnp.where(total > 0, mean, gaps["mean_gap"]).astype(jnp.float32), "num_gaps": total}
