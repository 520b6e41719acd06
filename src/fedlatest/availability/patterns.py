"""Availability that repeats in time: always, alternating blocks of rounds, daily windows."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_dataclass
from jax.typing import ArrayLike
from numpy.typing import ArrayLike as Values

from fedlatest.availability.base import MAX_ROUNDS, Availability, Deterministic
from fedlatest.availability.intervals import RoundIntervals
from fedlatest.data.federation import SECONDS_PER_DAY
from fedlatest.errors import ConfigError

MAX_ROUNDS_PER_DAY = (2**31 - 1) // SECONDS_PER_DAY  # the clock is int32 arithmetic


def always(num_clients: int) -> Availability:
    """Return a model in which every client is available in every round.

    >>> always(3).available(7, seed=0).tolist()
    [True, True, True]
    """
    if num_clients < 1:
        raise ConfigError(f"num_clients={num_clients}: a federation has at least one client")
    return alternating(np.ones(num_clients, bool), t1=1, t2=0)


def diurnal(in_first_group: Values, *, period: int) -> Availability:
    """Return the paper's day-and-night model: the first group for `period` rounds (E), the others for the next E.

    Blocks of E rounds satisfy Assumption 4 with E + 1.

    >>> diurnal([True, False], period=2).table(5).astype(int).tolist()
    [[1, 0], [1, 0], [0, 1], [0, 1], [1, 0]]
    """
    if not 1 <= period < MAX_ROUNDS:
        raise ConfigError(f"period={period}: must be 1 .. {MAX_ROUNDS - 1} rounds")
    return alternating(in_first_group, t1=period, t2=period)


def alternating(in_first_group: Values, *, t1: int, t2: int) -> Availability:
    """Return the model of the paper's Example 1: the first group for t1 rounds, then the others for t2 rounds.

    Args:
        in_first_group: bool[N], True for the clients of the first group.
        t1: Rounds in which the first group is available.
        t2: Rounds in which the other clients are available.

    >>> alternating([True, False], t1=2, t2=1).table(4).astype(int).tolist()
    [[1, 0], [1, 0], [0, 1], [1, 0]]
    """
    if not (0 <= t1 < MAX_ROUNDS and 0 <= t2 < MAX_ROUNDS and t1 + t2 >= 1):
        raise ConfigError(f"t1={t1}, t2={t2}: must be 0 .. {MAX_ROUNDS - 1} rounds, and not both 0")
    group = np.asarray(in_first_group)
    if group.dtype != np.bool_ or group.ndim != 1 or group.size == 0:
        raise ConfigError("in_first_group: give one true or false per client")
    return Blocks(jnp.asarray(group), jnp.int32(t1), jnp.int32(t2))


def windows(start_hour: Values, *, hours: Values = 8.0, rounds_per_day: int = 120) -> Availability:
    """Return a model in which each client is available during its own window of every day.

    Round 0 is at 00:00, and every round advances the clock by 24 h / rounds_per_day. A window may include midnight.

    Args:
        start_hour: [N] hour of the day at which each window starts, in [0, 24).
        hours: Length of the windows, one number or one per client.
        rounds_per_day: Rounds in 24 hours (E in the paper's Sentiment140 setting).

    >>> windows([22.0], hours=4, rounds_per_day=24).table(24)[:, 0].nonzero()[0].tolist()
    [0, 1, 22, 23]
    """
    start, length = np.asarray(start_hour, float), np.asarray(hours, float)
    if start.ndim != 1 or start.size == 0:
        raise ConfigError(f"start_hour: give one hour per client, not an array of shape {start.shape}")
    if length.shape not in ((), start.shape):
        raise ConfigError(f"hours: give one length, or one for each of the {start.size} clients")
    start, length = np.broadcast_arrays(start, length)
    if not 1 <= rounds_per_day <= MAX_ROUNDS_PER_DAY:
        raise ConfigError(f"rounds_per_day={rounds_per_day}: must be in 1 .. {MAX_ROUNDS_PER_DAY}")
    invalid_start = ~((start >= 0) & (start < 24))
    if invalid_start.any():
        raise ConfigError(f"start_hour={start[invalid_start][0]}: must be in [0, 24)")
    invalid_length = ~((np.round(length * 3600) > 0) & (length <= 24))
    if invalid_length.any():
        raise ConfigError(f"hours={length[invalid_length][0]}: must be at least 1 second and at most 24 hours")
    return Windows(
        jnp.asarray(np.round(start * 3600), jnp.int32) % SECONDS_PER_DAY,
        jnp.asarray(np.round(length * 3600), jnp.int32),
        jnp.int32(rounds_per_day),
    )


@register_dataclass
@dataclass(frozen=True)
class Blocks(Deterministic):
    """One group is available for `first` rounds, the others for the next `second`, repeatedly."""

    in_first_group: jax.Array  # bool[N]
    first: jax.Array
    second: jax.Array

    @property
    def num_clients(self) -> int:
        """The number of clients, N."""
        return self.in_first_group.shape[0]

    def available(self, round: ArrayLike, seed: ArrayLike) -> jax.Array:
        """Return the group whose block contains the round."""
        del seed
        return self.in_first_group == (jnp.asarray(round) % (self.first + self.second) < self.first)

    def subset(self, clients: Values) -> Availability:
        """Return the model of the clients at some positions."""
        return replace(self, in_first_group=self.in_first_group[np.asarray(clients)])

    def intervals(self) -> RoundIntervals:
        """Return one interval per client: its group's block."""
        first, period = int(self.first), int(self.first) + int(self.second)
        in_first = np.asarray(self.in_first_group)
        starts, ends = np.where(in_first, 0, first), np.where(in_first, first, period)
        kept = np.flatnonzero(starts < ends)  # a block may have no round
        return RoundIntervals(kept, starts[kept], ends[kept], period)


@register_dataclass
@dataclass(frozen=True)
class Windows(Deterministic):
    """Each client is available during its own daily window; a round advances the clock by 24 h / rounds_per_day."""

    start: jax.Array  # int32[N] seconds after midnight
    length: jax.Array  # int32[N] seconds
    rounds_per_day: jax.Array

    @property
    def num_clients(self) -> int:
        """The number of clients, N."""
        return self.start.shape[0]

    def available(self, round: ArrayLike, seed: ArrayLike) -> jax.Array:
        """Return the clients whose window contains the time of the round."""
        del seed
        clock = (jnp.asarray(round) % self.rounds_per_day) * SECONDS_PER_DAY // self.rounds_per_day
        return (clock - self.start) % SECONDS_PER_DAY < self.length

    def subset(self, clients: Values) -> Availability:
        """Return the model of the clients at some positions."""
        positions = np.asarray(clients)
        return replace(self, start=self.start[positions], length=self.length[positions])

    def intervals(self) -> RoundIntervals:
        """Return the part of each client's window before midnight and the part after it, in the order of the day."""
        per_day = int(self.rounds_per_day)
        start, length = (np.asarray(array, np.int64) for array in (self.start, self.length))
        after_midnight = np.maximum(start + length - SECONDS_PER_DAY, 0)
        edges = np.stack([0 * start, after_midnight, start, np.minimum(start + length, SECONDS_PER_DAY)], axis=1)
        rounds = -(-edges * per_day // SECONDS_PER_DAY)  # the first round at or after each time of day
        starts, ends = rounds[:, [0, 2]].reshape(-1), rounds[:, [1, 3]].reshape(-1)
        kept = np.flatnonzero(starts < ends)
        return RoundIntervals(kept // 2, starts[kept], ends[kept], per_day)
