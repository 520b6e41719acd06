"""Availability built from other models: and, or, shift, restrict, and clients that arrive late or leave for good."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_dataclass
from jax.typing import ArrayLike
from numpy.typing import ArrayLike as Values

from fedlatest.availability.base import MAX_ROUNDS, Availability, Deterministic
from fedlatest.availability.intervals import RoundIntervals, shifted
from fedlatest.errors import ConfigError
from fedlatest.streams import Purpose, bits

FOREVER = np.iinfo(np.int32).max


def both(left: Availability, right: Availability) -> Availability:
    """Return a model in which a client is available if it is available in both models; same as `left & right`.

    >>> from fedlatest.availability import alternating
    >>> both(alternating([True], t1=2, t2=1), alternating([True], t1=1, t2=1)).table(4)[:, 0].tolist()
    [True, False, False, False]
    """
    _check_same_size(left, right)
    return Both(left, right)


def either(left: Availability, right: Availability) -> Availability:
    """Return a model in which a client is available if it is available in one of the models; same as `left | right`."""
    _check_same_size(left, right)
    return Either(left, right)


def shift(model: Availability, *, rounds: int) -> Availability:
    """Return `model` started at round `rounds`: round r of the result is round r + rounds of `model`.

    >>> from fedlatest.availability import diurnal
    >>> shift(diurnal([True], period=2), rounds=1).table(3)[:, 0].tolist()
    [True, False, False]
    """
    if not 0 <= rounds <= MAX_ROUNDS:
        raise ConfigError(f"rounds={rounds}: must be in 0 .. {MAX_ROUNDS}")
    return Shifted(model, jnp.int32(rounds))


def restrict(model: Availability, clients: Values) -> Availability:
    """Return `model` limited to the clients marked True in `clients` (bool[N]); the others are never available.

    >>> from fedlatest.availability import always
    >>> restrict(always(2), [True, False]).available(0, seed=0).tolist()
    [True, False]
    """
    marked = np.asarray(clients)
    if marked.dtype != np.bool_ or marked.shape != (model.num_clients,):
        raise ConfigError(f"clients: give one true or false for each of the {model.num_clients} clients")
    return Restricted(model, jnp.asarray(marked))


def lifetime(arrival: Values, *, departure: Values = FOREVER) -> Availability:
    """Return a model in which client i is available in rounds arrival[i] .. departure[i] - 1 and in no other.

    >>> lifetime([0, 2], departure=[3, 9]).table(4).astype(int).tolist()
    [[1, 0], [1, 0], [1, 1], [0, 1]]
    """
    first, end = np.asarray(arrival), np.asarray(departure)
    if first.ndim != 1 or first.size == 0:
        raise ConfigError("arrival: give one round per client")
    if end.shape not in ((), first.shape):
        raise ConfigError(f"departure: give one round, or one for each of the {first.size} clients")
    first, end = np.broadcast_arrays(first, end)
    for name, rounds in (("arrival", first), ("departure", end)):
        invalid = ~((rounds >= 0) & (rounds <= FOREVER) & (rounds == np.floor(rounds)))
        if invalid.any():
            raise ConfigError(f"{name}={rounds[invalid][0]}: must be a whole number in 0 .. {FOREVER}")
    return Lifetime(jnp.asarray(first, jnp.int32), jnp.asarray(end, jnp.int32))


@dataclass(frozen=True)
class _Pair(Availability):
    left: Availability
    right: Availability

    @property
    def num_clients(self) -> int:
        """The number of clients, N."""
        return self.left.num_clients

    def subset(self, clients: Values) -> Availability:
        """Return the model of the clients at some positions."""
        return replace(self, left=self.left.subset(clients), right=self.right.subset(clients))

    def _evaluate(self, round: ArrayLike, seed: ArrayLike) -> tuple[jax.Array, jax.Array]:
        """Evaluate both models with different seeds, so that the draws of nested random models are independent."""
        seeds = [bits(seed, Purpose.COMPOSITION, part) for part in (0, 1)]
        return self.left.available(round, seeds[0]), self.right.available(round, seeds[1])


@register_dataclass
@dataclass(frozen=True)
class Both(_Pair):
    """Available in both models."""

    def available(self, round: ArrayLike, seed: ArrayLike) -> jax.Array:
        """Return left and right."""
        return jnp.logical_and(*self._evaluate(round, seed))

    def probability(self, round: ArrayLike) -> jax.Array | None:
        """Return the product of the probabilities: the draws of the two models are independent."""
        left, right = self.left.probability(round), self.right.probability(round)
        return None if left is None or right is None else left * right


@register_dataclass
@dataclass(frozen=True)
class Either(_Pair):
    """Available in at least one of the two models."""

    def available(self, round: ArrayLike, seed: ArrayLike) -> jax.Array:
        """Return left or right."""
        return jnp.logical_or(*self._evaluate(round, seed))

    def probability(self, round: ArrayLike) -> jax.Array | None:
        """Return 1 minus the probability of being available in neither model."""
        left, right = self.left.probability(round), self.right.probability(round)
        return None if left is None or right is None else left + right - left * right


@register_dataclass
@dataclass(frozen=True)
class Shifted(Availability):
    """Another model, started at a later round."""

    model: Availability
    rounds: jax.Array

    @property
    def num_clients(self) -> int:
        """The number of clients, N."""
        return self.model.num_clients

    def available(self, round: ArrayLike, seed: ArrayLike) -> jax.Array:
        """Return the availability of `model` in round + rounds."""
        return self.model.available(jnp.asarray(round) + self.rounds, seed)

    def probability(self, round: ArrayLike) -> jax.Array | None:
        """Return the probabilities of `model` in round + rounds."""
        return self.model.probability(jnp.asarray(round) + self.rounds)

    def cycle(self) -> int | None:
        """Return the cycle of `model`."""
        return self.model.cycle()

    def subset(self, clients: Values) -> Availability:
        """Return the model of the clients at some positions."""
        return replace(self, model=self.model.subset(clients))

    def intervals(self) -> RoundIntervals | None:
        """Return the intervals of `model`, counted from the later round."""
        intervals = self.model.intervals()
        return None if intervals is None else shifted(intervals, int(self.rounds))


@register_dataclass
@dataclass(frozen=True)
class Restricted(Availability):
    """Another model in which only some clients can be available."""

    model: Availability
    clients: jax.Array  # bool[N]

    @property
    def num_clients(self) -> int:
        """The number of clients, N."""
        return self.model.num_clients

    def available(self, round: ArrayLike, seed: ArrayLike) -> jax.Array:
        """Return the marked clients among those available in `model`."""
        return self.model.available(round, seed) & self.clients

    def probability(self, round: ArrayLike) -> jax.Array | None:
        """Return the probabilities of the marked clients in `model`, and 0 for the others."""
        probability = self.model.probability(round)
        return None if probability is None else jnp.where(self.clients, probability, 0)

    def cycle(self) -> int | None:
        """Return the cycle of `model`."""
        return self.model.cycle()

    def subset(self, clients: Values) -> Availability:
        """Return the model of the clients at some positions."""
        return replace(self, model=self.model.subset(clients), clients=self.clients[np.asarray(clients)])

    def intervals(self) -> RoundIntervals | None:
        """Return the intervals of the marked clients."""
        intervals = self.model.intervals()
        if intervals is None:
            return None
        kept = np.asarray(self.clients)[intervals.clients]
        clients, starts, ends = (array[kept] for array in (intervals.clients, intervals.starts, intervals.ends))
        return RoundIntervals(clients, starts, ends, intervals.period)


@register_dataclass
@dataclass(frozen=True)
class Lifetime(Deterministic):
    """Each client is available from its arrival until its departure."""

    arrival: jax.Array  # int32[N] first round
    departure: jax.Array  # int32[N] first round after the last

    @property
    def num_clients(self) -> int:
        """The number of clients, N."""
        return self.arrival.shape[0]

    def available(self, round: ArrayLike, seed: ArrayLike) -> jax.Array:
        """Return the clients that have arrived and not departed."""
        del seed
        return (self.arrival <= jnp.asarray(round)) & (jnp.asarray(round) < self.departure)

    def subset(self, clients: Values) -> Availability:
        """Return the model of the clients at some positions."""
        chosen = np.asarray(clients)
        return Lifetime(self.arrival[chosen], self.departure[chosen])

    def intervals(self) -> RoundIntervals:
        """Return one interval per client that is ever available."""
        arrival, departure = (np.asarray(array, np.int64) for array in (self.arrival, self.departure))
        kept = np.flatnonzero(arrival < departure)
        return RoundIntervals(kept, arrival[kept], departure[kept])


def _check_same_size(left: Availability, right: Availability) -> None:
    if left.num_clients != right.num_clients:
        raise ConfigError(f"cannot combine availability of {left.num_clients} and of {right.num_clients} clients")
