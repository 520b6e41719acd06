"""The interface of an availability model: a pure function of (round, seed) that returns one bool for each of N clients.

Models are frozen dataclasses and JAX pytrees. Their arrays are arguments of a compiled program, so two models of the
same class and shapes share one program. Create models with the lower-case factories, which check their arguments.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.tree_util import register_dataclass
from jax.typing import ArrayLike
from numpy.typing import ArrayLike as Values

from fedlatest.availability.intervals import RoundIntervals, available_rounds, longest_absences
from fedlatest.digest import digest
from fedlatest.errors import ConfigError

MAX_ROUNDS = 2**30  # the longest period or shift: round arithmetic is int32
ROUNDS_PER_SUM = 64  # probabilities of so many rounds are added in float32, then the sums in float64


class Assumption(NamedTuple):
    """Whether, and for which E, Assumption 4 of the paper holds in rounds 0 .. horizon - 1 for the clients examined."""

    horizon: int
    smallest_e: int | None
    """The smallest E such that every client is available at least once in any E consecutive rounds, or None if a
    client is never available. Of a sample of clients it is a lower bound."""
    longest_absence: npt.NDArray[np.int32]  # [clients examined] rounds
    clients: npt.NDArray[np.intp]  # [clients examined] positions
    num_clients: int

    @property
    def is_sample(self) -> bool:
        """Whether only some of the clients were examined."""
        return self.clients.size < self.num_clients

    @property
    def never_available(self) -> npt.NDArray[np.intp]:
        """Positions of the clients, among those examined, that are never available."""
        return self.clients[self.longest_absence >= self.horizon]


class Availability(ABC):
    """Which clients are available in round r. Any round can be evaluated without history, also under `jit`."""

    @property
    @abstractmethod
    def num_clients(self) -> int:
        """The number of clients, N."""

    @abstractmethod
    def available(self, round: ArrayLike, seed: ArrayLike) -> jax.Array:
        """Return bool[N]: which clients are available in `round` (counted from 0)."""

    def subset(self, clients: Values) -> Availability:
        """Return the model of the clients at some positions, in that order; each is available as in this model.

        A model of your own may override this, so that a few of many clients are evaluated without the others.
        """
        return Subset(self, jnp.asarray(clients, jnp.int32))

    def intervals(self) -> RoundIntervals | None:
        """Return the rounds in which clients are available as intervals; None for a model that has no such form."""
        return None

    def probability(self, round: ArrayLike) -> jax.Array | None:
        """Return [N] the probability of each client to be available in `round`, over all seeds; None if unknown."""
        del round
        return None

    def cycle(self) -> int | None:
        """Return a number of rounds after which `probability` repeats; None if there is none or it is unknown."""
        return None

    def mean_rates(self, horizon: int, seed: int = 0) -> npt.NDArray[np.float64]:
        """Return [N] the mean availability of each client in rounds 0 .. horizon - 1.

        Models with `intervals` or with a `probability` give the exact mean over all seeds; it takes time proportional
        to N times the number of rounds after which the model repeats. Other models are evaluated in every round, with
        `seed`. The memory is proportional to N.

        Args:
            horizon: The number of rounds.
            seed: Seed of the model's random draws, for a model whose probabilities are unknown.

        >>> from fedlatest.availability import diurnal, staircase
        >>> diurnal([True, False], period=100).mean_rates(150).round(3).tolist()
        [0.667, 0.333]
        >>> staircase([0.5], low=0.4, period=20).mean_rates(1000).round(3).tolist()
        [0.35]
        """
        _check_horizon(horizon)
        intervals = self.intervals()
        if intervals is not None:
            return available_rounds(intervals, num_clients=self.num_clients, horizon=horizon) / horizon
        if self.probability(0) is None:
            return np.asarray(_count_available(self, jnp.int32(horizon), jnp.uint32(seed)), float) / horizon
        cycle = min(self.cycle() or horizon, horizon)
        cycles, rest = divmod(horizon, cycle)
        first = _sum_probabilities(self, 0, rest)
        return (cycles * (first + _sum_probabilities(self, rest, cycle)) + first) / horizon

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

    def assumption(self, horizon: int, seed: int = 0, *, max_clients: int | None = None) -> Assumption:
        """Return whether Assumption 4 holds in rounds 0 .. horizon - 1, the smallest E and the longest absences.

        Models with `intervals` take time proportional to N. Others are evaluated in every round.

        Args:
            horizon: The number of rounds.
            seed: Seed of the model's random draws.
            max_clients: Where every round must be evaluated, examine a random sample of so many clients.

        >>> from fedlatest.availability import diurnal
        >>> diurnal([True, False], period=100).assumption(1000).smallest_e
        101
        """
        _check_horizon(horizon)
        clients, intervals = np.arange(self.num_clients), self.intervals()
        if intervals is not None:
            longest = longest_absences(intervals, num_clients=self.num_clients, horizon=horizon)
        else:
            clients = _sample(self.num_clients, max_clients)
            model = self if clients.size == self.num_clients else self.subset(clients)
            longest = np.asarray(_longest_absence(model, jnp.int32(horizon), jnp.uint32(seed)))
        smallest = int(longest.max()) + 1
        return Assumption(horizon, smallest if smallest <= horizon else None, longest, clients, self.num_clients)


class Deterministic(Availability):
    """A model without random draws, whose probabilities are 0 and 1."""

    def probability(self, round: ArrayLike) -> jax.Array:
        """Return 1 for the clients that are available in `round` and 0 for the others."""
        return self.available(round, 0).astype(jnp.float32)


@dataclass(frozen=True)
class FingerprintedModel:
    """A model that is compared by its fingerprint, as a key of caches."""

    fingerprint: str
    structure: Any  # contains the classes, so that two classes of the same name differ
    model: Availability = dataclasses.field(compare=False)

    @classmethod
    def of(cls, model: Availability) -> FingerprintedModel:
        """Return the model with its fingerprint."""
        return cls(model.fingerprint(), jax.tree.structure(model), model)


@register_dataclass
@dataclass(frozen=True)
class Subset(Availability):
    """Some clients of another model, which is evaluated for all its clients."""

    model: Availability
    clients: jax.Array  # int32[n] positions

    @property
    def num_clients(self) -> int:
        """The number of clients chosen."""
        return self.clients.shape[0]

    def available(self, round: ArrayLike, seed: ArrayLike) -> jax.Array:
        """Return the availability of the chosen clients in `model`."""
        return self.model.available(round, seed)[self.clients]

    def probability(self, round: ArrayLike) -> jax.Array | None:
        """Return the probabilities of the chosen clients in `model`."""
        probability = self.model.probability(round)
        return None if probability is None else probability[self.clients]

    def cycle(self) -> int | None:
        """Return the cycle of `model`."""
        return self.model.cycle()


def _check_horizon(horizon: int) -> None:
    if horizon < 1:
        raise ConfigError(f"horizon={horizon}: must be at least 1 round")


def _sample(num_clients: int, most: int | None) -> npt.NDArray[np.intp]:
    """Return the positions of all clients, or of a random sample of `most` of them, ascending."""
    if most is None or num_clients <= most:
        return np.arange(num_clients)
    return np.sort(np.random.default_rng(0).choice(num_clients, most, replace=False))


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


@jax.jit
def _count_available(model: Availability, horizon: jax.Array, seed: jax.Array) -> jax.Array:
    def step(round: jax.Array, count: jax.Array) -> jax.Array:
        return count + model.available(round, seed)

    return jax.lax.fori_loop(0, horizon, step, jnp.zeros(model.num_clients, jnp.int32))


def _sum_probabilities(model: Availability, first: int, end: int) -> npt.NDArray[np.float64]:
    """Return [N] the sum of the model's probabilities in rounds first .. end - 1."""
    total = np.zeros(model.num_clients)
    for start in range(first, end, ROUNDS_PER_SUM):
        total += np.asarray(_add_probabilities(model, jnp.int32(start), jnp.int32(min(start + ROUNDS_PER_SUM, end))))
    return total


@jax.jit
def _add_probabilities(model: Availability, first: jax.Array, end: jax.Array) -> jax.Array:
    def step(round: jax.Array, total: jax.Array) -> jax.Array:
        probability = model.probability(round)
        assert probability is not None, "the caller has checked that the model has probabilities"
        return total + probability

    return jax.lax.fori_loop(first, end, step, jnp.zeros(model.num_clients))
