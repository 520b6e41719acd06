"""What an availability model is: a pure function of (round, seed) that says for all N clients who is here.

Models are frozen dataclasses and JAX trees: their arrays travel into a compiled program as arguments, and two models of
one kind share one program. They are made by the lower-case factories, which check their arguments.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.typing import ArrayLike

from fedlatest.digest import digest
from fedlatest.errors import ConfigError

MOST_ROUNDS = 2**30  # what a pattern may span: round arithmetic is int32


class Assumption(NamedTuple):
    """What Assumption 4 of the paper looks like over rounds 0 .. horizon - 1."""

    horizon: int
    smallest_e: int | None
    """Every client is here at least once in any E successive rounds; None if some client never is."""
    longest_absence: npt.NDArray[np.int32]  # [N]

    @property
    def never_available(self) -> npt.NDArray[np.intp]:
        """Positions of the clients that are never here."""
        return np.flatnonzero(self.longest_absence >= self.horizon)


class Availability(ABC):
    """Who is here in round r; evaluable at any round, without history, under `jit`."""

    @property
    @abstractmethod
    def num_clients(self) -> int:
        """N."""

    @abstractmethod
    def available(self, round: ArrayLike, seed: ArrayLike) -> jax.Array:
        """bool[N]: who is here in `round` (counted from 0)."""

    def __and__(self, other: Availability) -> Availability:
        from fedlatest.availability.composition import both

        return both(self, other)

    def __or__(self, other: Availability) -> Availability:
        from fedlatest.availability.composition import either

        return either(self, other)

    def fingerprint(self) -> str:
        """A digest of the model and its parameters: equal for models that say the same."""
        return digest(self._described())

    def _described(self) -> str:
        parts = [getattr(self, part.name) for part in dataclasses.fields(self)]  # type: ignore[arg-type]
        texts = [part._described() if isinstance(part, Availability) else digest(part) for part in parts]
        return f"{type(self).__name__}({', '.join(texts)})"

    def table(self, horizon: int, seed: int = 0) -> npt.NDArray[np.bool_]:
        """bool[horizon, N]: who is here in rounds 0 .. horizon - 1."""
        return np.asarray(_table(self, jnp.arange(horizon), jnp.uint32(seed)))

    def assumption(self, horizon: int, seed: int = 0) -> Assumption:
        """The smallest E for which Assumption 4 holds over a horizon, or that it does not.

        >>> from fedlatest.availability import diurnal
        >>> diurnal([True, False], period=100).assumption(1000).smallest_e
        101
        """
        if horizon < 1:
            raise ConfigError(f"horizon={horizon}: Assumption 4 is about at least one round")
        longest = np.asarray(_longest_absence(self, jnp.int32(horizon), jnp.uint32(seed)))
        smallest = int(longest.max()) + 1
        return Assumption(horizon, smallest if smallest <= horizon else None, longest)


@jax.jit
def _table(model: Availability, rounds: jax.Array, seed: jax.Array) -> jax.Array:
    return jax.lax.map(lambda round: model.available(round, seed), rounds)


@jax.jit
def _longest_absence(model: Availability, horizon: jax.Array, seed: jax.Array) -> jax.Array:
    def step(round: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        absence, longest = carry
        absence = jnp.where(model.available(round, seed), 0, absence + 1)
        return absence, jnp.maximum(longest, absence)

    nothing = jnp.zeros(model.num_clients, jnp.int32)
    return jax.lax.fori_loop(0, horizon, step, (nothing, nothing))[1]
