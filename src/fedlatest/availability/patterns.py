"""Availability that repeats by the calendar: always, blocks of rounds, daily windows."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_dataclass
from jax.typing import ArrayLike
from numpy.typing import ArrayLike as Values

from fedlatest.availability.base import MOST_ROUNDS, Availability
from fedlatest.data.federation import SECONDS_PER_DAY
from fedlatest.errors import ConfigError

MOST_ROUNDS_PER_DAY = (2**31 - 1) // SECONDS_PER_DAY  # the clock is int32 arithmetic


@register_dataclass
@dataclass(frozen=True)
class Blocks(Availability):
    """One group is here for `first` rounds, the others for the next `second`, and so on."""

    in_first_group: jax.Array  # bool[N]
    first: jax.Array
    second: jax.Array

    @property
    def num_clients(self) -> int:
        """N."""
        return self.in_first_group.shape[0]

    def available(self, round: ArrayLike, seed: ArrayLike) -> jax.Array:
        """The group whose block it is."""
        del seed
        return self.in_first_group == (jnp.asarray(round) % (self.first + self.second) < self.first)


@register_dataclass
@dataclass(frozen=True)
class Windows(Availability):
    """Each client is here during its own window of the day; a round advances the clock by 24 h / rounds_per_day."""

    start: jax.Array  # int32[N] seconds after midnight
    length: jax.Array  # int32[N] seconds
    rounds_per_day: jax.Array

    @property
    def num_clients(self) -> int:
        """N."""
        return self.start.shape[0]

    def available(self, round: ArrayLike, seed: ArrayLike) -> jax.Array:
        """Those whose window the clock is in; a window may run across midnight."""
        del seed
        clock = (jnp.asarray(round) % self.rounds_per_day) * SECONDS_PER_DAY // self.rounds_per_day
        return (clock - self.start) % SECONDS_PER_DAY < self.length


def always(num_clients: int) -> Availability:
    """Everybody, in every round.

    >>> always(3).available(7, seed=0).tolist()
    [True, True, True]
    """
    if num_clients < 1:
        raise ConfigError(f"num_clients={num_clients}: a federation has at least one client")
    return alternating(np.ones(num_clients, bool), t1=1, t2=0)


def diurnal(in_first_group: Values, *, period: int) -> Availability:
    """The paper's day and night: the first group for `period` rounds (E), the others for the next `period`.

    Blocks of E rounds satisfy Assumption 4 with E + 1.

    >>> diurnal([True, False], period=2).table(5).astype(int).tolist()
    [[1, 0], [1, 0], [0, 1], [0, 1], [1, 0]]
    """
    if not 1 <= period < MOST_ROUNDS:
        raise ConfigError(f"period={period}: a block lasts 1 .. {MOST_ROUNDS - 1} rounds")
    return alternating(in_first_group, t1=period, t2=period)


def alternating(in_first_group: Values, *, t1: int, t2: int) -> Availability:
    """Example 1 of the paper: the first group for t1 rounds, then the others for t2.

    >>> alternating([True, False], t1=2, t2=1).table(4).astype(int).tolist()
    [[1, 0], [1, 0], [0, 1], [1, 0]]
    """
    if not (0 <= t1 < MOST_ROUNDS and 0 <= t2 < MOST_ROUNDS and t1 + t2 >= 1):
        raise ConfigError(f"t1={t1}, t2={t2}: blocks last 0 .. {MOST_ROUNDS - 1} rounds, and not both 0")
    group = np.asarray(in_first_group)
    if group.dtype != np.bool_ or group.ndim != 1 or group.size == 0:
        raise ConfigError("in_first_group: give one true or false per client")
    return Blocks(jnp.asarray(group), jnp.int32(t1), jnp.int32(t2))


def windows(start_hour: Values, *, hours: Values = 8.0, rounds_per_day: int = 120) -> Availability:
    """Each client is here from its `start_hour` for `hours` hours of every day; the clock starts at 00:00.

    >>> windows([22.0], hours=4, rounds_per_day=24).table(24)[:, 0].nonzero()[0].tolist()
    [0, 1, 22, 23]
    """
    start, length = np.asarray(start_hour, float), np.asarray(hours, float)
    if start.ndim != 1 or start.size == 0:
        raise ConfigError(f"start_hour: give one hour per client, not an array of shape {start.shape}")
    if length.shape not in ((), start.shape):
        raise ConfigError(f"hours: give one length, or one for each of the {start.size} clients")
    start, length = np.broadcast_arrays(start, length)
    if not 1 <= rounds_per_day <= MOST_ROUNDS_PER_DAY:
        raise ConfigError(f"rounds_per_day={rounds_per_day}: must be in 1 .. {MOST_ROUNDS_PER_DAY}")
    off_the_clock = ~((start >= 0) & (start < 24))
    if off_the_clock.any():
        raise ConfigError(f"start_hour={start[off_the_clock][0]}: hours of the day are in [0, 24)")
    no_window = ~((np.round(length * 3600) > 0) & (length <= 24))
    if no_window.any():
        raise ConfigError(f"hours={length[no_window][0]}: a window lasts at least a second and at most 24 hours")
    return Windows(
        jnp.asarray(np.round(start * 3600), jnp.int32) % SECONDS_PER_DAY,
        jnp.asarray(np.round(length * 3600), jnp.int32),
        jnp.int32(rounds_per_day),
    )
