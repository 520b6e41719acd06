"""A client's participation rate p_i: given by the caller, or estimated from the client's participations so far."""

from typing import Any, Literal, get_args

import jax.numpy as jnp

from fedlatest.algorithms.base import ClientFacts, ClientState, Parts, Requirement
from fedlatest.errors import ConfigError

Rates = Literal["counts", "known"]
COUNT = "num_participations"


def check_rates(rates: str, known: Any = Rates) -> None:
    """Raise ConfigError if a source of participation rates is unknown."""
    if rates not in get_args(known):
        raise ConfigError(f"rates={rates!r}: choose one of {', '.join(get_args(known))}")


def required_by(rates: str) -> tuple[Requirement, ...]:
    """Return what the caller must provide for a source of participation rates."""
    return ("rates",) if rates == "known" else ()


def initial_count(rates: str) -> Parts:
    """Return the private parts of a client before its first round."""
    return {COUNT: jnp.float32(0)} if rates == "counts" else {}


def participation_rate(rates: str, client: ClientState, facts: ClientFacts) -> tuple[Any, Parts]:
    """Return p_i and the private parts after this round, for a client that takes part in it.

    "known" is the rate that the caller gives. "counts" divides the number of rounds in which the client has taken
    part, including this one, by the number of rounds so far; it is never 0.
    """
    if rates == "known":
        return facts.rate, {}
    count = client.private[COUNT] + 1
    return count / (facts.round + 1).astype(jnp.float32), {COUNT: count}
