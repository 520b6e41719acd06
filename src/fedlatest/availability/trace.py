"""Recorded availability: a model that replays intervals, for the recorded devices or for copies of them.

Axes: [N] clients, [D] devices of the trace, [M] intervals.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.tree_util import register_dataclass
from jax.typing import ArrayLike
from numpy.typing import ArrayLike as Values

from fedlatest.availability.base import MAX_ROUNDS, Availability, Deterministic
from fedlatest.availability.intervals import Positions, RoundIntervals
from fedlatest.availability.trace_files import Interval, number_clients
from fedlatest.data.federation import SECONDS_PER_DAY
from fedlatest.errors import ConfigError, DataError

MAX_ROUND = 2**31 - 2  # round arithmetic is int32
MAX_DEVICES = 10**9  # the merge of intervals computes device * MAX_ROUND in int64
NEARLY_A_DAY = 0.9  # a last day that was recorded at least for this share counts as a day
Devices = Literal["exact", "repeat", "sample"]


def trace(
    intervals: Sequence[Interval],
    *,
    num_clients: int | None = None,
    names: Sequence[str] | npt.NDArray[np.str_] | None = None,
    wrap: bool = False,
    round_length: float = 1.0,
    devices: Devices = "exact",
    day_length: float = SECONDS_PER_DAY,
    drop_absent: bool = False,
    seed: int = 0,
) -> Availability:
    """Return a model that replays intervals: client i is available in round r if an interval contains r * round_length.

    With `devices="repeat"` or "sample", the clients are copies of the recorded devices 0 .. D - 1, for any number of
    clients. Client i is a copy of device i mod D, or, with "sample", of a random device; both use every device once
    before they use one twice. The first copy of a device is the device itself. Later copies are shifted in time by a
    random number of whole days, each by another one until all are used, so that the time of day is kept. For this, the
    trace is cut to whole days and shifted cyclically.

    Args:
        intervals: Intervals in any order; those of one client may touch or overlap.
        num_clients: Number of clients, N; with `devices="exact"`, intervals refer to clients 0 .. N - 1. By default
            the number of names.
        names: [N] names of the clients, such as `federation.names`; with `devices="exact"`, the clients of the
            intervals are matched with them, and whole numbers with names like "7".
        wrap: Whether to repeat the trace after its last end, or after its whole days.
        round_length: Length of a round in the time unit of the intervals.
        devices: Whether clients are exactly the recorded devices, or copies of them.
        day_length: Length of a day in the time unit of the intervals; used by "repeat" and "sample".
        drop_absent: Remove devices that are available in no round, and renumber the others.
        seed: Seed of the shifts and of the order of the devices.

    Raises:
        ConfigError: `round_length` or `day_length` is not positive, or too short or too long for the trace.
        DataError: There is no interval, an interval is invalid, or it names an unknown client.

    >>> trace([Interval(0, 1, 3), Interval(1, 0, 2)], num_clients=2).table(4).astype(int).tolist()
    [[0, 1], [1, 1], [1, 0], [0, 0]]
    >>> trace([Interval("zoe", 1, 3), Interval("ann", 0, 2)], names=["ann", "zoe"]).table(3).astype(int).tolist()
    [[1, 0], [1, 1], [0, 1]]
    >>> evenings = [Interval(0, 1, 2), Interval(0, 3, 4)]  # the second half of two days of two rounds each
    >>> trace([*evenings, Interval(1, 0, 1)], num_clients=4, devices="repeat", day_length=2).table(4).T.astype(int)
    array([[0, 1, 0, 1],
           [1, 0, 0, 0],
           [0, 1, 0, 1],
           [0, 0, 1, 0]])
    """
    num_clients = _check_num_clients(num_clients, names)
    positions = _as_positions(intervals, names, devices=devices, drop_absent=drop_absent)
    merged, numbers, num_days, length = _record(positions, num_clients, devices, round_length, day_length, drop_absent)
    if devices == "exact":
        return _device_trace(merged, num_clients, length if wrap else MAX_ROUND)
    device, shift = _copies(num_clients, numbers.size, num_days, shuffled=devices == "sample", seed=seed)
    return CopiedTrace(
        _device_trace(merged, numbers.size, length),
        jnp.asarray(device, jnp.int32),
        jnp.asarray(np.round(shift * (day_length / round_length)) % length, jnp.int32),
        jnp.int32(MAX_ROUND if wrap else length),
    )


def devices_of_clients(
    intervals: Sequence[Interval],
    *,
    num_clients: int | None = None,
    names: Sequence[str] | npt.NDArray[np.str_] | None = None,
    round_length: float = 1.0,
    devices: Devices = "exact",
    day_length: float = SECONDS_PER_DAY,
    drop_absent: bool = False,
    seed: int = 0,
) -> list[str | None]:
    """Return the name of the recorded device that each client of `trace` follows, for the same arguments.

    What else is known about the devices, such as their delays, can then be given to the same clients. None for a client
    that is never available, because the trace has no interval for it.

    Args:
        intervals: See `trace`, as for the other arguments.
        num_clients: Number of clients.
        names: Names of the clients.
        round_length: Length of a round.
        devices: Whether clients are exactly the recorded devices, or copies of them.
        day_length: Length of a day.
        drop_absent: Whether devices that are available in no round were removed.
        seed: Seed of the order of the devices.

    >>> evenings = [Interval("zoe", 1, 2), Interval("ann", 1, 2)]
    >>> devices_of_clients(evenings, num_clients=3, devices="repeat", day_length=2)
    ['zoe', 'ann', 'zoe']
    """
    num_clients = _check_num_clients(num_clients, names)
    positions = _as_positions(intervals, names, devices=devices, drop_absent=drop_absent)
    recorded = {int(here.client): str(there.client) for here, there in zip(positions, intervals, strict=True)}
    _, numbers, num_days, _ = _record(positions, num_clients, devices, round_length, day_length, drop_absent)
    if devices == "exact":
        own = numbers.tolist()[:num_clients]
        return [recorded.get(number) for number in own] + [None] * (num_clients - len(own))
    device, _ = _copies(num_clients, numbers.size, num_days, shuffled=devices == "sample", seed=seed)
    return [recorded.get(number) for number in numbers[device].tolist()]


@register_dataclass
@dataclass(frozen=True)
class Trace(Deterministic):
    """Recorded intervals of rounds, disjoint and sorted within each client. Created by `trace`."""

    offsets: jax.Array  # int32[N + 1] into the intervals
    starts: jax.Array  # int32[M] first round
    ends: jax.Array  # int32[M] first round after
    length: jax.Array  # rounds after which the trace repeats
    num_halvings: int = field(metadata={"static": True})

    @property
    def num_clients(self) -> int:
        """The number of clients, N."""
        return self.offsets.shape[0] - 1

    def available(self, round: ArrayLike, seed: ArrayLike) -> jax.Array:
        """Return the clients with an interval that contains the round, found by binary search over the starts."""
        del seed
        return self._search(self.offsets[:-1], self.offsets[1:], jnp.asarray(round) % self.length)

    def available_devices(self, devices: jax.Array, rounds: jax.Array) -> jax.Array:
        """Return bool[N]: whether devices[i] is available in rounds[i]."""
        return self._search(self.offsets[devices], self.offsets[devices + 1], rounds % self.length)

    def _search(self, first: jax.Array, end: jax.Array, round: jax.Array) -> jax.Array:
        """Return whether one of the intervals first .. end - 1 contains the round."""
        # Invariant, where the positions exist: starts[low] <= round < starts[high].
        low, high = first - 1, end
        for _ in range(self.num_halvings):
            middle = (low + high) // 2
            begun = self.starts[jnp.maximum(middle, 0)] <= round
            inside = middle > low
            low, high = jnp.where(inside & begun, middle, low), jnp.where(inside & ~begun, middle, high)
        return (low >= first) & (round < self.ends[jnp.maximum(low, 0)])

    def subset(self, clients: Values) -> Availability:
        """Return the model of the clients at some positions."""
        chosen, offsets = np.asarray(clients), np.asarray(self.offsets, np.int64)
        counts = np.diff(offsets)[chosen]
        own = np.r_[0, np.cumsum(counts)]
        kept = np.repeat(offsets[chosen] - own[:-1], counts) + np.arange(own[-1])
        starts, ends = (np.asarray(array)[kept] if kept.size else [0] for array in (self.starts, self.ends))
        return replace(
            self,
            offsets=jnp.asarray(own, jnp.int32),
            starts=jnp.asarray(starts, jnp.int32),
            ends=jnp.asarray(ends, jnp.int32),
        )

    def intervals(self) -> RoundIntervals:
        """Return the recorded intervals, with the length of the trace as period."""
        clients = np.repeat(np.arange(self.num_clients), np.diff(self.offsets))
        starts, ends = (np.asarray(array, np.int64)[: clients.size] for array in (self.starts, self.ends))
        return RoundIntervals(clients, starts, ends, int(self.length))


@register_dataclass
@dataclass(frozen=True)
class CopiedTrace(Deterministic):
    """Clients that are copies of recorded devices, each started at a later round of the trace. Created by `trace`."""

    recorded: Trace  # of the devices, repeated
    device: jax.Array  # int32[N]
    shift: jax.Array  # int32[N] the round of the trace in which the client starts
    end: jax.Array  # the round after which no client is available

    @property
    def num_clients(self) -> int:
        """The number of clients, N."""
        return self.device.shape[0]

    def available(self, round: ArrayLike, seed: ArrayLike) -> jax.Array:
        """Return the clients whose device is available in the round shifted by the client's own number of rounds."""
        del seed
        round = jnp.asarray(round)
        shifted = round % self.recorded.length + self.shift  # below 2 * length, at most 2**31
        return self.recorded.available_devices(self.device, shifted) & (round < self.end)

    def subset(self, clients: Values) -> Availability:
        """Return the model of the clients at some positions."""
        chosen = np.asarray(clients)
        return replace(self, device=self.device[chosen], shift=self.shift[chosen])

    def intervals(self) -> RoundIntervals:
        """Return the intervals of each client's device, shifted; those that include the start are divided there."""
        length, wraps = int(self.recorded.length), int(self.end) == MAX_ROUND
        copied = self.recorded.subset(np.asarray(self.device)).intervals()
        assert copied is not None, "a trace has intervals"
        clients, starts, ends, _ = copied
        shift = np.asarray(self.shift, np.int64)[clients]
        clients = np.tile(clients, 2)
        starts = np.maximum(np.r_[starts - shift, starts - shift + length], 0)
        ends = np.minimum(np.r_[ends - shift, ends - shift + length], length)
        kept = np.flatnonzero(starts < ends)
        kept = kept[np.lexsort((starts[kept], clients[kept]))]
        return RoundIntervals(clients[kept], starts[kept], ends[kept], length if wraps else None)

    def mean_rates(self, horizon: int, seed: int = 0) -> npt.NDArray[np.float64]:
        """Return [N] the mean availability of each client, computed once for all clients that are equal."""
        device, shift = (np.asarray(array, np.int64) for array in (self.device, self.shift))
        _, first, number = np.unique(device * MAX_ROUNDS + shift, return_index=True, return_inverse=True)
        return Availability.mean_rates(self.subset(first), horizon, seed)[number]


class _Recording(NamedTuple):
    """The intervals of a trace in rounds, disjoint and sorted."""

    merged: RoundIntervals
    numbers: Positions  # [D] the number of each device in the trace; different from 0 .. D - 1 if some were dropped
    num_days: int  # 0 if the clients are exactly the devices
    length: int  # rounds


def _as_positions(
    intervals: Sequence[Interval],
    names: Sequence[str] | npt.NDArray[np.str_] | None,
    *,
    devices: Devices,
    drop_absent: bool,
) -> Sequence[Interval]:
    """Return the intervals with numbers of devices or positions of clients instead of names."""
    if devices not in ("exact", "repeat", "sample"):
        raise ConfigError(f"devices={devices}: choose one of exact, repeat, sample")
    if len(intervals) == 0:
        raise DataError("the trace contains no interval")
    if devices != "exact":
        return number_clients(intervals)[0]
    if names is not None:
        if drop_absent:
            raise ConfigError("drop_absent: renumbers the devices, so that names cannot be matched; leave out one")
        return _match_names(intervals, names)
    if named := next((client for client, _, _ in intervals if isinstance(client, str)), None):
        raise ConfigError(
            f"names: the trace names its clients ({named!r}, ...), but the names of the federation's clients are not "
            f'given; pass names=federation.names, or devices="repeat" if it does not matter which client is which'
        )
    return intervals


def _record(
    intervals: Sequence[Interval],
    num_clients: int,
    devices: Devices,
    round_length: float,
    day_length: float,
    drop_absent: bool,
) -> _Recording:
    """Return the intervals in rounds; see `trace` for the arguments and errors."""
    for name, unit in (("round_length", round_length), ("day_length", day_length)):
        if not (math.isfinite(unit) and unit > 0):
            raise ConfigError(f"{name}={unit}: must be a finite number above 0")
    flat = np.fromiter(chain.from_iterable(intervals), np.float64, 3 * len(intervals))  # faster than np.array
    clients, start_times, end_times = flat.reshape(-1, 3).T
    most = num_clients if devices == "exact" and not drop_absent else MAX_DEVICES
    in_range, ordered = (clients >= 0) & (clients < most), (start_times >= 0) & (start_times < end_times)
    if not (valid := in_range & ordered & np.isfinite(end_times)).all():
        index = int(np.argmin(valid))
        client, start, end = intervals[index]
        if not in_range[index]:
            raise DataError(f"the trace names client {client}, but the federation has clients 0 .. {most - 1}")
        raise DataError(f"the trace has client {client} from {start} to {end}; an interval needs 0 <= start < end")
    last, num_days = float(end_times.max()), 0
    if devices != "exact":
        num_days = math.floor(last / day_length + 1 - NEARLY_A_DAY)
        if num_days < 1:
            raise ConfigError(
                f"day_length={day_length}: the trace lasts only {last:g}, less than a day; "
                f"set day_length in the trace's time unit, or use devices=exact"
            )
        last = num_days * day_length
        end_times = np.minimum(end_times, last)  # intervals after the last whole day become empty
    longest = MAX_ROUND if devices == "exact" else MAX_ROUNDS
    if last / round_length > longest:
        raise ConfigError(f"round_length={round_length}: the trace lasts more than {longest} rounds; use longer rounds")
    length = math.ceil(last / round_length)
    starts, ends = (np.ceil(times / round_length).astype(np.int64) for times in (start_times, end_times))
    merged = _merge_overlaps(clients.astype(np.int64), starts, ends)
    if merged.clients.size == 0:
        raise ConfigError(f"round_length={round_length}: no interval of the trace contains a round; use shorter rounds")
    if not drop_absent:
        return _Recording(merged, np.arange(int(clients.max()) + 1), num_days, length)
    present, numbers = np.unique(merged.clients, return_inverse=True)
    if devices == "exact" and present.size > num_clients:
        raise DataError(f"the trace has {present.size} devices, but the federation has {num_clients} clients")
    return _Recording(merged._replace(clients=numbers.astype(np.int64)), present, num_days, length)


def _check_num_clients(num_clients: int | None, names: Sequence[str] | npt.NDArray[np.str_] | None) -> int:
    """Return N; raise ConfigError if it is neither given nor the number of names."""
    if num_clients is None and names is None:
        raise ConfigError("num_clients: give the number of clients, or their names")
    if num_clients is not None and names is not None and len(names) != num_clients:
        raise ConfigError(f"num_clients={num_clients}: there are {len(names)} names; leave out num_clients")
    return len(names) if names is not None else int(num_clients or 0)


def _match_names(intervals: Sequence[Interval], names: Sequence[str] | npt.NDArray[np.str_]) -> list[Interval]:
    """Return the intervals with the position of each client's name; raise DataError if there is no such name."""
    position = {str(name): index for index, name in enumerate(names)}
    unknown = list(dict.fromkeys(str(client) for client, _, _ in intervals if str(client) not in position))
    if unknown:
        others = f" and {len(unknown) - 1} others" if len(unknown) > 1 else ""
        some = ", ".join(list(position)[:3])
        raise DataError(
            f"the trace names client {unknown[0]!r}{others}, which the federation does not have; its {len(names)} "
            f"clients are {some}{', ...' if len(names) > 3 else ''}"
        )
    return [Interval(position[str(client)], start, end) for client, start, end in intervals]


def _device_trace(merged: RoundIntervals, num_devices: int, length: int) -> Trace:
    return Trace(
        offsets=jnp.asarray(np.searchsorted(merged.clients, np.arange(num_devices + 1)), jnp.int32),
        starts=jnp.asarray(merged.starts, jnp.int32),
        ends=jnp.asarray(merged.ends, jnp.int32),
        length=jnp.int32(length),
        num_halvings=math.ceil(math.log2(int(np.bincount(merged.clients).max()) + 1)) + 1,
    )


def _copies(
    num_clients: int, num_devices: int, num_days: int, *, shuffled: bool, seed: int
) -> tuple[Positions, Positions]:
    """Return [N] the device of each client, and by how many days the client is shifted.

    Args:
        num_clients: N.
        num_devices: D.
        num_days: Days of the trace.
        shuffled: Whether the devices are in a new random order every D clients.
        seed: Seed of the orders and shifts.
    """
    generator = np.random.default_rng(seed)
    copies = -(-num_clients // num_devices)
    devices = np.tile(np.arange(num_devices), (copies, 1))
    if shuffled:
        devices = generator.permuted(devices, axis=1)
    days = np.tile(np.arange(1, num_days), (num_devices, 1))
    shifts = np.c_[np.zeros((num_devices, 1), int), generator.permuted(days, axis=1)]  # [D, days], 0 first
    client = np.arange(num_clients)
    device = devices.reshape(-1)[:num_clients]
    return device, shifts[device, (client // num_devices) % num_days]


def _merge_overlaps(clients: Positions, starts: Positions, ends: Positions) -> RoundIntervals:
    """Sort intervals by (client, start), merge those that touch or overlap, and drop those without a round."""
    kept = np.flatnonzero(starts < ends)
    kept = kept[np.lexsort((starts[kept], clients[kept]))]
    clients, starts, ends = clients[kept], starts[kept], ends[kept]
    if kept.size == 0:
        return RoundIntervals(clients, starts, ends)
    base = clients * (MAX_ROUND + 1)  # makes the ends of a client larger than those of all clients before it
    reach = np.maximum.accumulate(base + ends)  # the latest end so far, of the same client
    is_first = np.r_[True, base[1:] + starts[1:] > reach[:-1]]
    is_last = np.r_[is_first[1:], True]
    return RoundIntervals(clients[is_first], starts[is_first], (reach - base)[is_last])
