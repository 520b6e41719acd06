"""FedAsync: every arriving model is mixed into the server's model (Xie et al. 2019)."""

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
from fedlatest.algorithms.staleness import polynomial, staleness_numbers
from fedlatest.algorithms.weighting import Weighting, refuse_update_weighting, weighted_direction
from fedlatest.errors import ConfigError


def fedasync(*, mixing: float = 0.6, staleness_power: float = 0.5, weighting: Weighting = "loss") -> Algorithm:
    r"""The server moves towards every model that arrives, less far if it is stale.

        alpha = mixing (1 + tau)^{-a}
        x     = (1 - alpha) x + alpha x_local

    tau is the number of server steps between the start of the client and its arrival, 0 if there was none. This is the
    paper's polynomial discount; a = 0 is its constant one. The paper's hinge discount and its local regularisation are
    left out. Clients that have arrived are replaced by available ones, drawn uniformly.

    Clients keep nothing. An upload has the size of the model.

    Args:
        mixing: alpha of an update without staleness, in (0, 1].
        staleness_power: a, 0 for no discount.
        weighting: How a client's share of the samples is used; "loss" or "none".

    >>> fedasync().buffer
    1
    """
    refuse_update_weighting(weighting, "clients upload their models")
    if not 0 < mixing <= 1:
        raise ConfigError(f"mixing={mixing!r}: must be in (0, 1]")
    numbers = {"mixing": float(mixing), **staleness_numbers(staleness_power)}

    def contribute(broadcast: Any, local: Params, client: ClientState, facts: ClientFacts) -> Contribution:
        del broadcast, client, facts
        return Contribution(fresh={"model": local})

    def merge(server: ModelOnly, sums: Sums, facts: RoundFacts) -> ModelOnly:
        towards = subtract(sums.fresh["model"], scale(server.params, sums.discount))
        return ModelOnly(add(server.params, towards, facts.numbers["mixing"]))

    return Algorithm(
        name="fedasync",
        title="FedAsync",
        paper="Xie et al. 2019, Asynchronous Federated Optimization",
        init_server=keep_model,
        select=select_uniformly,
        direction=weighted_direction(weighting),
        contribute=contribute,
        merge=merge,
        buffer=1,
        discount=polynomial,
        settings={**numbers, "weighting": weighting},
        numbers=numbers,
    )
