"""Inverse-probability FedAvg: updates are divided by the client's participation rate."""

from typing import Any

from fedlatest.algorithms.base import (
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
)
from fedlatest.algorithms.fedavg import select_uniformly
from fedlatest.algorithms.participation_rate import (
    Rates,
    check_rates,
    initial_count,
    participation_rate,
    required_by,
)
from fedlatest.algorithms.server_optimizer import check_positive
from fedlatest.algorithms.weighting import Weighting, refuse_update_weighting, weighted_direction


def inverse_probability(
    *, rates: Rates = "counts", server_step: float = 1.0, weighting: Weighting = "loss"
) -> Algorithm:
    r"""A client divides its update by its participation rate, so that the expected step is that of all clients.

        x = x + server_step (1/N) \sum_{i in S} u_i / p_i

    p_i is the probability that client i takes part in a round. K of the available clients are drawn uniformly, so p_i
    is its availability only if K is not smaller than the number of available clients. A round with an empty cohort
    changes nothing.

    Nothing is remembered; with `rates="counts"` each client keeps one number. An upload has the size of the model. The
    expected step is that of all clients if participation does not depend on the model; its variance grows as 1/p_i.

    Args:
        rates: "known" uses the rates of `simulate(rates=...)`; "counts" estimates p_i as the share of the rounds so
            far, including the current one, in which the client has taken part.
        server_step: The server's step size.
        weighting: "loss" multiplies a client's loss by its share of the samples, "none" ignores it.

    >>> inverse_probability(rates="known").requires
    ('rates',)
    """
    check_rates(rates)
    check_positive("server_step", server_step)
    refuse_update_weighting(weighting, "updates are weighted by 1/p_i")

    def init_client(params: Params) -> ClientState:
        del params
        return ClientState(private=initial_count(rates))

    def contribute(broadcast: Any, local: Params, client: ClientState, facts: ClientFacts) -> Contribution:
        rate, private = participation_rate(rates, client, facts)
        return Contribution(fresh={"update": scale(subtract(local, broadcast.params), 1.0 / rate)}, private=private)

    def merge(server: ModelOnly, sums: Sums, facts: RoundFacts) -> ModelOnly:
        step = facts.numbers["server_step"] / facts.num_clients
        return ModelOnly(add(server.params, sums.fresh["update"], step))

    return Algorithm(
        name="inverse_probability",
        title="Inverse-probability FedAvg",
        paper="Horvitz & Thompson 1952, A Generalization of Sampling Without Replacement from a Finite Universe",
        init_server=keep_model,
        init_client=init_client,
        select=select_uniformly,
        direction=weighted_direction(weighting),
        contribute=contribute,
        merge=merge,
        requires=required_by(rates),
        settings={"rates": rates, "server_step": server_step, "weighting": weighting},
        numbers={"server_step": server_step},
    )
