"""The interface of an availability model: a pure function of (round, seed) that returns one bool for each of N clients.

Models are frozen dataclasses and JAX pytrees. Their arrays are arguments of a compiled program, so two models of the
same class and shapes share one program. Create models with the lower-case factories, which check their arguments.
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

MAX_ROUNDS = 2**30  # the longest period or shift: round arithmetic is int32


class Assumption(NamedTuple):
    """Whether, and for which E, Assumption 4 of the paper holds in rounds 0 .. horizon - 1."""

    horizon: int
    smallest_e: int | None
    """The smallest E such that every client is available at least once in any E consecutive rounds, or None if a
    client is never available."""
    longest_absence: npt.NDArray[np.int32]  # [N] rounds

    @property
    def never_available(self) -> npt.NDArray[np.intp]:
        """Positions of the clients that are never available."""
        return np.flatnonzero(self.longest_absence >= self.horizon)


class Availability(ABC):
    """Which clients are available in round r. Any round can be evaluated without history, also under `jit`."""

    @property
    @abstractmethod
    def num_clients(self) -> int:
        """The number of clients, N."""

    @abstractmethod
    def available(self, round: ArrayLike, seed: ArrayLike) -> jax.Array:
        """Return bool[N]: which clients are available in `round` (counted from 0)."""

    def __and__(self, other: Availability) -> Availability:
        from fedlatest.availability.composition import both

        return both(self, other)

    def __or__(self, other: Availability) -> Availability:
        from fedlatest.availability.composition import either

        return either(self, other)

    def fingerprint(self) -> str:
        """Return a digest of the model's class and parameters; equal models have equal fingerprints."""
        return digest(self._description())

    def _description(self) -> str:
        values = [getattr(self, field.name) for field in dataclasses.fields(self)]  # type: ignore[arg-type]
        texts = [value._description() if isinstance(value, Availability) else digest(value) for value in values]
        return f"{type(self).__name__}({', '.join(texts)})"

    def table(self, horizon: int, seed: int = 0) -> npt.NDArray[np.bool_]:
        """Return bool[horizon, N]: which clients are available in rounds 0 .. horizon - 1."""
        return np.asarray(_table(self, jnp.arange(horizon), jnp.uint32(seed)))

    def assumption(self, horizon: int, seed: int = 0) -> Assumption:
        """Return whether Assumption 4 holds in rounds 0 .. horizon - 1, the smallest E and the longest absences.

        >>> from fedlatest.availability import diurnal
        >>> diurnal([True, False], period=100).assumption(1000).smallest_e
        101
        """
        if horizon < 1:
            raise ConfigError(f"horizon={horizon}: must be at least 1 round")
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

    zeros = jnp.zeros(model.num_clients, jnp.int32)
    return jax.lax.fori_loop(0, horizon, step, (zeros, zeros))[1]
