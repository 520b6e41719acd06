"""What asynchronous algorithms share: the polynomial discount of stale updates, and checks of their arguments."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from fedlatest.errors import ConfigError


def polynomial(staleness: jax.Array, numbers: Mapping[str, Any]) -> jax.Array:
    """Return (1 + tau)^-a for an update whose client started tau server steps ago.

    >>> polynomial(jnp.array([0, 3]), {"staleness_power": 0.5}).tolist()
    [1.0, 0.5]
    """
    return (1.0 + staleness.astype(jnp.float32)) ** -numbers["staleness_power"]


def staleness_numbers(power: float) -> dict[str, float]:
    """Return the exponent as a number that `polynomial` reads.

    Raises:
        ConfigError: If it is negative or not finite.
    """
    if not 0 <= power < float("inf"):
        raise ConfigError(f"staleness_power={power!r}: must be a finite number, 0 or larger")
    return {"staleness_power": float(power)}


def check_whole(name: str, value: int) -> int:
    """Return a number of arrivals or of server steps; raise ConfigError unless it is whole and at least 1."""
    if value != int(value) or value < 1:
        raise ConfigError(f"{name}={value!r}: must be a whole number, at least 1")
    return int(value)
