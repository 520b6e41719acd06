"""FedProx: FedAvg whose clients are pulled back to the model they started from (Li et al. 2020)."""

import math
from dataclasses import replace

from fedlatest.algorithms.base import Algorithm, ClientFacts, Contribution, Params, add, subtract
from fedlatest.algorithms.fedavg import fedavg
from fedlatest.algorithms.weighting import Weighting
from fedlatest.errors import ConfigError


def fedprox(*, mu: float = 1.0, weighting: Weighting = "loss") -> Algorithm:
    """FedAvg with (mu/2) ||x_local - x||^2 added to the local loss; the weight w_i N does not scale that term.

    >>> fedprox(mu=0.01).settings["mu"]
    0.01
    """
    if not (math.isfinite(mu) and mu >= 0):
        raise ConfigError(f"mu={mu!r}: the proximal coefficient must be a finite number, 0 or larger")
    plain = fedavg(weighting=weighting)

    def direction(
        gradient: Params, local: Params, broadcast: Params, memory: Contribution, facts: ClientFacts
    ) -> Params:
        descent = plain.direction(gradient, local, broadcast, memory, facts)
        return add(descent, subtract(local, broadcast), facts.numbers["mu"])

    numbers = {"mu": mu}
    return replace(plain, name="fedprox", direction=direction, settings={**numbers, **plain.settings}, numbers=numbers)
