"""How a client's share of the data, w_i N, enters: through its loss, through its update, or not at all."""

from typing import Literal, get_args

from fedlatest.algorithms.base import (
    ClientFacts,
    Contribute,
    Contribution,
    Direction,
    Params,
    scale,
    subtract,
)
from fedlatest.errors import ConfigError

Weighting = Literal["loss", "update", "none"]


def weighted(weighting: Weighting) -> tuple[Direction, Contribute]:
    """The local step and the contribution of plain local SGD under a weighting.

    "loss" multiplies the local loss by w_i N (the paper: f_i = w_i N f~_i), "update" multiplies the update by it,
    "none" counts every client alike.
    """
    if weighting not in get_args(Weighting):
        raise ConfigError(f"weighting={weighting!r}: choose one of {', '.join(get_args(Weighting))}")

    def direction(
        gradient: Params, local: Params, broadcast: Params, memory: Contribution, facts: ClientFacts
    ) -> Params:
        del local, broadcast, memory
        return scale(gradient, facts.weight) if weighting == "loss" else gradient

    def contribute(broadcast: Params, local: Params, memory: Contribution, facts: ClientFacts) -> Contribution:
        del memory
        update = subtract(local, broadcast)
        return {"update": scale(update, facts.weight) if weighting == "update" else update}

    return direction, contribute
