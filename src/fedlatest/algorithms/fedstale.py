"""FedStale: stale updates of absent clients count with a weight beta (Rodio & Neglia 2024)."""

import math
from typing import Any, Literal

import jax.numpy as jnp

from fedlatest.algorithms.base import (
    NO_PARTS,
    Algorithm,
    ClientFacts,
    ClientState,
    Contribution,
    ModelOnly,
    Params,
    RoundFacts,
    Sums,
    add,
    keep_model,
    scale,
    subtract,
    where,
    zeros_like,
)
from fedlatest.algorithms.fedavg import select_uniformly
from fedlatest.algorithms.participation_rate import (
    check_rates,
    initial_count,
    participation_rate,
    required_by,
)
from fedlatest.algorithms.server_optimizer import check_positive
from fedlatest.algorithms.weighting import Weighting, refuse_update_weighting, weighted_direction
from fedlatest.errors import ConfigError

StaleRates = Literal["cohort", "counts", "known"]


def fedstale(
    *, beta: float = 0.5, rates: StaleRates = "counts", server_step: float = 1.0, weighting: Weighting = "loss"
) -> Algorithm:
    r"""The step combines fresh updates, divided by participation rates, with beta times the stale ones.

        v   = (1/N) \sum_{i in S} (u_i - beta h_i) / p_i + (beta/N) \sum_i h_i
        x   = x + server_step v
        h_i = u_i                                                      for i in S

    beta = 0 is `inverse_probability`; beta = 1 with p_i = |S|/N is FedVARP, and beta = 0 with it is FedAvg. In the
    paper clients take part independently of each other; here at most K of the available ones are drawn uniformly. A
    round with an empty cohort moves along beta times the stale average, as the rule says, except with `rates="cohort"`,
    where p_i would be 0 and nothing changes. (The authors' code skips all rounds with an empty cohort.)

    Each client keeps its latest update h_i (and one number with `rates="counts"`); the server keeps the sum of all h_i.
    An upload has twice the size of the model: u_i - beta h_i, divided by p_i, and the change of h_i. A server that
    keeps all h_i itself, as in the paper, needs u_i only.

    Args:
        beta: The weight of stale updates, in [0, 1].
        rates: p_i: "known" uses the rates of `simulate(rates=...)`; "counts" estimates p_i as the share of the rounds
            so far, including the current one, in which the client has taken part; "cohort" is |S|/N for all clients.
        server_step: The server's step size.
        weighting: "loss" multiplies a client's loss by its share of the samples, "none" ignores it.

    >>> fedstale(beta=0.3).numbers
    {'beta': 0.3, 'server_step': 1.0}
    """
    if not (math.isfinite(beta) and 0 <= beta <= 1):
        raise ConfigError(f"beta={beta!r}: the weight of stale updates must be in [0, 1]")
    check_rates(rates, StaleRates)
    check_positive("server_step", server_step)
    refuse_update_weighting(weighting, "updates are weighted by 1/p_i")

    def init_client(params: Params) -> ClientState:
        return ClientState(remembered={"update": zeros_like(params)}, private=initial_count(rates))

    def contribute(broadcast: Any, local: Params, client: ClientState, facts: ClientFacts) -> Contribution:
        update = subtract(local, broadcast.params)
        difference = add(update, client.remembered["update"], -facts.numbers["beta"])
        private = NO_PARTS
        if rates != "cohort":
            rate, private = participation_rate(rates, client, facts)
            difference = scale(difference, 1.0 / rate)
        return Contribution(fresh={"difference": difference}, remembered={"update": update}, private=private)

    def merge(server: ModelOnly, sums: Sums, facts: RoundFacts) -> ModelOnly:
        share = jnp.maximum(sums.num, 1) if rates == "cohort" else facts.num_clients
        stale = scale(subtract(sums.total["update"], sums.delta["update"]), 1.0 / facts.num_clients)
        step = add(scale(sums.fresh["difference"], 1.0 / share), stale, facts.numbers["beta"])
        moved = ModelOnly(add(server.params, step, facts.numbers["server_step"]))
        return where(sums.num > 0, moved, server) if rates == "cohort" else moved

    numbers = {"beta": beta, "server_step": server_step}
    return Algorithm(
        name="fedstale",
        title="FedStale",
        paper="Rodio & Neglia 2024, FedStale: Leveraging Stale Client Updates in Federated Learning",
        init_server=keep_model,
        init_client=init_client,
        select=select_uniformly,
        direction=weighted_direction(weighting),
        contribute=contribute,
        merge=merge,
        requires=required_by(rates),
        settings={**numbers, "rates": rates, "weighting": weighting},
        numbers=numbers,
    )
