"""Recorded availability: intervals per client, read from and written to CSV files."""

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.tree_util import register_dataclass
from jax.typing import ArrayLike
from numpy.typing import ArrayLike as Values

from fedlatest.availability.base import Availability, Deterministic
from fedlatest.availability.intervals import Positions, RoundIntervals
from fedlatest.errors import ConfigError, DataError

COLUMNS = ("client", "start", "end")
MAX_ROUND = 2**31 - 2  # round arithmetic is int32


class Interval(NamedTuple):
    """A client is available from `start` (included) to `end` (excluded)."""

    client: int
    start: float
    end: float


def trace(
    intervals: Sequence[Interval], *, num_clients: int, wrap: bool = False, round_length: float = 1.0
) -> Availability:
    """Return a model that replays intervals: client i is available in round r if an interval contains r * round_length.

    Args:
        intervals: Intervals in any order; those of one client may touch or overlap.
        num_clients: Number of clients, N; intervals refer to clients 0 .. N - 1.
        wrap: Whether to repeat the trace after its last end.
        round_length: Length of a round in the time unit of the intervals.

    Raises:
        ConfigError: `round_length` is not positive, or too short or too long for the trace.
        DataError: There is no interval, or an interval is invalid.

    >>> trace([Interval(0, 1, 3), Interval(1, 0, 2)], num_clients=2).table(4).astype(int).tolist()
    [[0, 1], [1, 1], [1, 0], [0, 0]]
    """
    if not (math.isfinite(round_length) and round_length > 0):
        raise ConfigError(f"round_length={round_length}: must be a finite number above 0")
    if len(intervals) == 0:
        raise DataError("the trace contains no interval")
    flat = np.fromiter(chain.from_iterable(intervals), np.float64, 3 * len(intervals))  # faster than np.array
    clients, start_times, end_times = flat.reshape(-1, 3).T
    in_range, ordered = (clients >= 0) & (clients < num_clients), (start_times >= 0) & (start_times < end_times)
    if not (valid := in_range & ordered & np.isfinite(end_times)).all():
        index = int(np.argmin(valid))
        client, start, end = intervals[index]
        if not in_range[index]:
            raise DataError(f"the trace names client {client}, but the federation has clients 0 .. {num_clients - 1}")
        raise DataError(f"the trace has client {client} from {start} to {end}; an interval needs 0 <= start < end")
    last = end_times.max()
    if last / round_length > MAX_ROUND:
        raise ConfigError(
            f"round_length={round_length}: the trace lasts more than {MAX_ROUND} rounds; use longer rounds"
        )
    starts, ends = (np.ceil(times / round_length).astype(np.int64) for times in (start_times, end_times))
    merged = _merge_overlaps(clients.astype(np.int64), starts, ends)
    if merged.clients.size == 0:
        raise ConfigError(f"round_length={round_length}: no interval of the trace contains a round; use shorter rounds")
    most = int(np.bincount(merged.clients).max())
    return Trace(
        offsets=jnp.asarray(np.searchsorted(merged.clients, np.arange(num_clients + 1)), jnp.int32),
        starts=jnp.asarray(merged.starts, jnp.int32),
        ends=jnp.asarray(merged.ends, jnp.int32),
        length=jnp.int32(math.ceil(last / round_length) if wrap else MAX_ROUND),
        num_halvings=math.ceil(math.log2(most + 1)) + 1,
    )


def read_trace(path: Path | str) -> list[Interval]:
    """Read the intervals of a CSV file with the columns client, start, end.

    If all clients are whole numbers, they are positions. Otherwise they are names, numbered in the order of their first
    appearance.
    """
    path = Path(path)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:  # some spreadsheets write a byte order mark
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"trace={path}: cannot be read as text ({error})") from error
    if not rows or tuple(name.strip().lower() for name in rows[0]) != COLUMNS:
        raise DataError(f"trace={path}: the first line must be {','.join(COLUMNS)}")
    parsed = [_parse_row(path, number, row) for number, row in enumerate(rows[1:], start=2) if row]
    names = list(dict.fromkeys(name for name, _, _ in parsed))
    by_position = all(name.isdecimal() for name in names)
    number = {name: int(name) if by_position else index for index, name in enumerate(names)}
    return [Interval(number[name], start, end) for name, start, end in parsed]


def write_trace(path: Path | str, availability: Availability, *, horizon: int, seed: int = 0) -> None:
    """Write the availability in rounds 0 .. horizon - 1 as a trace for `read_trace`.

    Args:
        path: The CSV file to write.
        availability: The model to record.
        horizon: Number of rounds.
        seed: Seed of the model's random draws.
    """
    write_table(path, availability.table(horizon, seed))


def write_table(path: Path | str, available: npt.NDArray[np.bool_], *, moments: Sequence[float] | None = None) -> None:
    """Write a table of availability as a trace for `read_trace`.

    Args:
        path: The CSV file to write.
        available: bool[rounds, N].
        moments: [rounds + 1] times; round r lasts from moments[r] to moments[r + 1]. By default 0, 1, 2, ...
    """
    edges = np.diff(available.T.astype(np.int8), axis=1, prepend=0, append=0)
    times = list(range(len(available) + 1) if moments is None else moments)
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for client, edge in enumerate(edges):
            starts, ends = np.flatnonzero(edge == 1), np.flatnonzero(edge == -1)
            writer.writerows(
                (client, times[start], times[end]) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
            )


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
        round = jnp.asarray(round) % self.length
        # Invariant, where the positions exist: starts[low] <= round < starts[high].
        low, high = self.offsets[:-1] - 1, self.offsets[1:]
        for _ in range(self.num_halvings):
            middle = (low + high) // 2
            begun = self.starts[jnp.maximum(middle, 0)] <= round
            inside = middle > low
            low, high = jnp.where(inside & begun, middle, low), jnp.where(inside & ~begun, middle, high)
        return (low >= self.offsets[:-1]) & (round < self.ends[jnp.maximum(low, 0)])

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


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parse_row(path: Path, number: int, row: list[str]) -> tuple[str, float, float]:
    try:
        name, start, end = (cell.strip() for cell in row)
        times = float(start), float(end)
    except ValueError:
        raise DataError(f"trace={path}, line {number}: expected client,start,end but found {','.join(row)!r}") from None
    if not name or (_is_number(name) and not name.isdecimal()):
        raise DataError(f"trace={path}, line {number}: client {name!r} is neither a position (0, 1, ...) nor a name")
    if not (math.isfinite(times[1]) and 0 <= times[0] < times[1]):
        raise DataError(f"trace={path}, line {number}: an interval needs 0 <= start < end, not {start} .. {end}")
    return name, *times


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
