"""Availability made of other availability: and, or, shift, restrict, and clients that arrive late or leave for good."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_dataclass
from jax.typing import ArrayLike
from numpy.typing import ArrayLike as Values

from fedlatest.availability.base import MOST_ROUNDS, Availability
from fedlatest.errors import ConfigError
from fedlatest.streams import Purpose, bits

FOREVER = np.iinfo(np.int32).max


@dataclass(frozen=True)
class _Pair(Availability):
    left: Availability
    right: Availability

    @property
    def num_clients(self) -> int:
        """N."""
        return self.left.num_clients

    def _ask(self, round: ArrayLike, seed: ArrayLike) -> tuple[jax.Array, jax.Array]:
        """What each says, with a seed of its own: no two models by chance toss the same coins, however nested."""
        own = [bits(seed, Purpose.COMPOSITION, part) for part in (0, 1)]
        return self.left.available(round, own[0]), self.right.available(round, own[1])


@register_dataclass
@dataclass(frozen=True)
class Both(_Pair):
    """Here when both models say so."""

    def available(self, round: ArrayLike, seed: ArrayLike) -> jax.Array:
        """left and right."""
        return jnp.logical_and(*self._ask(round, seed))


@register_dataclass
@dataclass(frozen=True)
class Either(_Pair):
    """Here when one of the models says so."""

    def available(self, round: ArrayLike, seed: ArrayLike) -> jax.Array:
        """left or right."""
        return jnp.logical_or(*self._ask(round, seed))


@register_dataclass
@dataclass(frozen=True)
class Shifted(Availability):
    """Another model's pattern, some rounds ahead."""

    model: Availability
    rounds: jax.Array

    @property
    def num_clients(self) -> int:
        """N."""
        return self.model.num_clients

    def available(self, round: ArrayLike, seed: ArrayLike) -> jax.Array:
        """Who is here `rounds` later in the shifted model."""
        return self.model.available(jnp.asarray(round) + self.rounds, seed)


@register_dataclass
@dataclass(frozen=True)
class Restricted(Availability):
    """Another model, of which only some clients can ever be here."""

    model: Availability
    clients: jax.Array  # bool[N]

    @property
    def num_clients(self) -> int:
        """N."""
        return self.model.num_clients

    def available(self, round: ArrayLike, seed: ArrayLike) -> jax.Array:
        """The marked ones among those the model says are here."""
        return self.model.available(round, seed) & self.clients


@register_dataclass
@dataclass(frozen=True)
class Lifetime(Availability):
    """Each client exists from its arrival until its departure."""

    arrival: jax.Array  # int32[N] first round
    departure: jax.Array  # int32[N] first round without it

    @property
    def num_clients(self) -> int:
        """N."""
        return self.arrival.shape[0]

    def available(self, round: ArrayLike, seed: ArrayLike) -> jax.Array:
        """Those that have arrived and not yet left."""
        del seed
        return (self.arrival <= jnp.asarray(round)) & (jnp.asarray(round) < self.departure)


def both(left: Availability, right: Availability) -> Availability:
    """Here when both say so; `left & right` is the same.

    >>> from fedlatest.availability import alternating
    >>> both(alternating([True], t1=2, t2=1), alternating([True], t1=1, t2=1)).table(4)[:, 0].tolist()
    [True, False, False, False]
    """
    return Both(*_alike(left, right))


def either(left: Availability, right: Availability) -> Availability:
    """Here when one of them says so; `left | right` is the same."""
    return Either(*_alike(left, right))


def shift(model: Availability, *, rounds: int) -> Availability:
    """The pattern of `model`, begun `rounds` rounds in.

    >>> from fedlatest.availability import diurnal
    >>> shift(diurnal([True], period=2), rounds=1).table(3)[:, 0].tolist()
    [True, False, False]
    """
    if not 0 <= rounds <= MOST_ROUNDS:
        raise ConfigError(f"rounds={rounds}: a pattern starts at round 0; shift it forward by at most {MOST_ROUNDS}")
    return Shifted(model, jnp.int32(rounds))


def restrict(model: Availability, clients: Values) -> Availability:
    """Only the marked clients (bool[N]) can ever be here.

    >>> from fedlatest.availability import always
    >>> restrict(always(2), [True, False]).available(0, seed=0).tolist()
    [True, False]
    """
    marked = np.asarray(clients)
    if marked.dtype != np.bool_ or marked.shape != (model.num_clients,):
        raise ConfigError(f"clients: give one true or false for each of the {model.num_clients} clients")
    return Restricted(model, jnp.asarray(marked))


def lifetime(arrival: Values, *, departure: Values = FOREVER) -> Availability:
    """Late arrival and permanent departure: client i exists in rounds arrival[i] .. departure[i] - 1.

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
        wrong = ~((rounds >= 0) & (rounds <= FOREVER) & (rounds == np.floor(rounds)))
        if wrong.any():
            raise ConfigError(f"{name}={rounds[wrong][0]}: must be a round in 0 .. {FOREVER}")
    return Lifetime(jnp.asarray(first, jnp.int32), jnp.asarray(end, jnp.int32))


def _alike(left: Availability, right: Availability) -> tuple[Availability, Availability]:
    if left.num_clients != right.num_clients:
        raise ConfigError(f"cannot combine availability of {left.num_clients} and of {right.num_clients} clients")
    return left, right
