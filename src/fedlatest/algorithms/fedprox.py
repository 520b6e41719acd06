"""FedProx: FedAvg whose clients are pulled back to the model they started from (Li et al. 2020)."""

import math
from dataclasses import replace
from typing import Any

from fedlatest.algorithms.base import Algorithm, ClientFacts, Direction
from fedlatest.algorithms.fedavg import fedavg
from fedlatest.algorithms.weighting import Weighting, weighted_direction
from fedlatest.errors import ConfigError


def fedprox(*, mu: float = 1.0, server_step: float = 1.0, weighting: Weighting = "loss") -> Algorithm:
    """FedAvg with (mu/2) ||x_local - x||^2 added to the local loss; the weight w_i N does not scale that term.

    Args:
        mu: The proximal coefficient.
        server_step: The server's step size.
        weighting: How a client's share of the samples is used; see `fedavg`.

    >>> fedprox(mu=0.01).settings["mu"]
    0.01
    """
    direction = proximal_direction(mu, weighting)
    plain = fedavg(weighting=weighting, server_step=server_step)
    return replace(
        plain,
        name="fedprox",
        title="FedProx",
        paper="Li et al. 2020, Federated Optimization in Heterogeneous Networks",
        direction=direction,
        settings={"mu": mu, **plain.settings},
        numbers={"mu": mu, **plain.numbers},
    )


def proximal_direction(mu: float, weighting: Weighting) -> Direction:
    """Return the local step with (mu/2) ||x_local - x||^2 added to the loss; mu is read from the algorithm's numbers.

    Raises:
        ConfigError: If mu is negative or not finite, or the weighting is unknown.
    """
    if not (math.isfinite(mu) and mu >= 0):
        raise ConfigError(f"mu={mu!r}: the proximal coefficient must be a finite number, 0 or larger")
    return replace(weighted_direction(weighting), pull=_proximal_coefficient)


def _proximal_coefficient(facts: ClientFacts) -> Any:
    return facts.numbers["mu"]
