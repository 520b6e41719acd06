"""FedDyn: a linear and a proximal term align local optima with the global one (Acar et al. 2021)."""

from dataclasses import replace
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
    where,
    zeros_like,
)
from fedlatest.algorithms.fedavg import mean_update, select_uniformly
from fedlatest.algorithms.server_optimizer import check_positive, server_numbers
from fedlatest.algorithms.weighting import Weighting, refuse_update_weighting, weighted_direction


def feddyn(*, penalty: float = 0.1, server_step: float = 1.0, weighting: Weighting = "loss") -> Algorithm:
    r"""Clients minimise f_i(y) - <g_i, y> + (penalty/2) ||y - x||^2; the server corrects the mean model.

        x_local = x_local - gamma (g(x_local) - g_i + penalty (x_local - x))      C times, from x
        g_i = g_i - penalty (x_local - x)                                         for i in S
        h   = (1/N) \sum_i g_i
        x   = x + server_step ((1/|S|) \sum_{i in S} (x_local - x) - h / penalty)

    The paper writes `h = h - (penalty/N) \sum_{i in S} (x_local - x)`, which is the same, and has no server step (it
    is 1). It assumes that local problems are solved exactly; here, as in its experiments, clients take a number of
    SGD steps. The weight w_i N scales f_i only; the authors' code divides penalty by it instead, which leaves the
    local optimum the same. A round with an empty cohort changes nothing.

    Each client keeps g_i, one vector of the size of the model; the server keeps their sum. The change of g_i is
    -penalty times the update, so an upload needs the size of one model. The analysis assumes that every client is
    equally likely to take part.

    Args:
        penalty: alpha in the paper: the coefficient of the proximal term.
        server_step: The server's step size.
        weighting: "loss" multiplies a client's loss by its share of the samples, "none" ignores it.

    >>> sorted(feddyn().client_state(0.0).remembered)
    ['gradient']
    """
    check_positive("penalty", penalty)
    numbers = {"penalty": penalty, **server_numbers(server_step)}
    refuse_update_weighting(weighting, "FedDyn averages models")

    def init_client(params: Params) -> ClientState:
        return ClientState(remembered={"gradient": zeros_like(params)})

    def linear_term(broadcast: Any, client: ClientState, facts: ClientFacts) -> Params:
        del broadcast, facts
        return scale(client.remembered["gradient"], -1.0)

    def contribute(broadcast: Any, local: Params, client: ClientState, facts: ClientFacts) -> Contribution:
        update = subtract(local, broadcast.params)
        gradient = add(client.remembered["gradient"], update, -facts.numbers["penalty"])
        return Contribution(fresh={"update": update}, remembered={"gradient": gradient})

    def merge(server: ModelOnly, sums: Sums, facts: RoundFacts) -> ModelOnly:
        step = facts.numbers["server_step"]
        mean = add(server.params, mean_update(sums, weighting), step)
        correction = -step / (facts.numbers["penalty"] * facts.num_clients)
        return where(sums.num > 0, ModelOnly(add(mean, sums.total["gradient"], correction)), server)

    return Algorithm(
        name="feddyn",
        title="FedDyn",
        paper="Acar et al. 2021, Federated Learning Based on Dynamic Regularization",
        init_server=keep_model,
        init_client=init_client,
        select=select_uniformly,
        direction=replace(weighted_direction(weighting), pull=_proximal_coefficient, offset=linear_term),
        contribute=contribute,
        merge=merge,
        settings={**numbers, "weighting": weighting},
        numbers=numbers,
    )


def _proximal_coefficient(facts: ClientFacts) -> Any:
    return facts.numbers["penalty"]
