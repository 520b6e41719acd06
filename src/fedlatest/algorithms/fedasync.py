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
from fedlatest.algorithms.fedprox import proximal_direction
from fedlatest.algorithms.staleness import polynomial, staleness_numbers
from fedlatest.algorithms.weighting import Weighting, refuse_update_weighting, weighted_direction
from fedlatest.errors import ConfigError


def fedasync(
    *, mixing: float = 0.6, staleness_power: float = 0.5, mu: float = 0.0, weighting: Weighting = "loss"
) -> Algorithm:
    r"""The server moves towards every model that arrives, less far if it is stale.

        alpha = mixing (1 + tau)^{-a}
        x     = (1 - alpha) x + alpha x_local

    tau is the number of server steps between the start of the client and its arrival, 0 if there was none, as in the
    authors' code. This is the paper's polynomial discount; a = 0 is its constant one. Its hinge discount is left out.
    The paper adds (rho/2) ||x_local - x||^2 to the local loss, where x is the model with which the client started; here
    rho is `mu`. Clients that have arrived are replaced by available ones, drawn uniformly.

    Clients keep nothing. An upload has the size of the model.

    Args:
        mixing: alpha of an update without staleness, in (0, 1].
        staleness_power: a, 0 for no discount.
        mu: rho, the proximal coefficient; the client's weight does not scale the term.
        weighting: How a client's share of the samples is used; "loss" or "none".

    >>> fedasync().buffer
    1
    """
    refuse_update_weighting(weighting, "clients upload their models")
    if not 0 < mixing <= 1:
        raise ConfigError(f"mixing={mixing!r}: must be in (0, 1]")
    numbers = {"mixing": float(mixing), "mu": float(mu), **staleness_numbers(staleness_power)}
    proximal = proximal_direction(mu, weighting)

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
        direction=proximal if mu else weighted_direction(weighting),
        contribute=contribute,
        merge=merge,
        buffer=1,
        discount=polynomial,
        settings={**numbers, "weighting": weighting},
        numbers=numbers,
    )
