"""How a client's share of the data, w_i N, enters: through its loss, through its update, or not at all."""

from typing import Any, Literal, get_args

from fedlatest.algorithms.base import ClientFacts, Direction
from fedlatest.errors import ConfigError

Weighting = Literal["loss", "update", "none"]


def by_weight(facts: ClientFacts) -> Any:
    """Return the scale w_i N of a client's gradients: the paper's f_i = w_i N f~_i."""
    return facts.weight


def weighted_direction(weighting: Weighting) -> Direction:
    """Return the local step of plain SGD under a weighting.

    "loss" multiplies the local loss by w_i N, "update" multiplies the upload by it (see `UpdateUpload`), "none" counts
    all clients alike.

    Raises:
        ConfigError: If the weighting is unknown.
    """
    if weighting not in get_args(Weighting):
        raise ConfigError(f"weighting={weighting!r}: choose one of {', '.join(get_args(Weighting))}")
    return Direction(scale=by_weight if weighting == "loss" else None)


def refuse_update_weighting(weighting: Weighting, reason: str) -> None:
    """Raise ConfigError if weighting is "update", for an algorithm whose updates must not be multiplied by w_i N.

    Args:
        weighting: The argument of the algorithm's factory.
        reason: Why it must not, for the error message.
    """
    if weighting == "update":
        raise ConfigError(f"weighting='update': {reason}; choose 'loss' or 'none'")
