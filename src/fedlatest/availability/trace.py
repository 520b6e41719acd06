"""Recorded availability: intervals per client, read from and written to CSV files."""

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.tree_util import register_dataclass
from jax.typing import ArrayLike

from fedlatest.availability.base import Availability
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
    if not intervals:
        raise DataError("the trace contains no interval")
    for client, start, end in intervals:
        if not 0 <= client < num_clients:
            raise DataError(f"the trace names client {client}, but the federation has clients 0 .. {num_clients - 1}")
        if not 0 <= start < end < math.inf:
            raise DataError(f"the trace has client {client} from {start} to {end}; an interval needs 0 <= start < end")
    last = max(end for _, _, end in intervals)
    if last / round_length > MAX_ROUND:
        raise ConfigError(
            f"round_length={round_length}: the trace lasts more than {MAX_ROUND} rounds; use longer rounds"
        )
    rounds = [
        (client, math.ceil(start / round_length), math.ceil(end / round_length)) for client, start, end in intervals
    ]
    merged = _merge_overlaps(sorted(rounds))
    if not merged:
        raise ConfigError(f"round_length={round_length}: no interval of the trace contains a round; use shorter rounds")
    clients = np.array([client for client, _, _ in merged])
    most = int(np.bincount(clients).max())
    return Trace(
        offsets=jnp.asarray(np.searchsorted(clients, np.arange(num_clients + 1)), jnp.int32),
        starts=jnp.asarray([start for _, start, _ in merged], jnp.int32),
        ends=jnp.asarray([end for _, _, end in merged], jnp.int32),
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
class Trace(Availability):
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


def _merge_overlaps(rounds: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Merge touching and overlapping intervals, which are sorted by (client, start), and drop those without a round."""
    merged: list[tuple[int, int, int]] = []
    for client, start, end in rounds:
        if merged and merged[-1][0] == client and start <= merged[-1][2]:
            merged[-1] = (client, merged[-1][1], max(end, merged[-1][2]))
        elif start < end:
            merged.append((client, start, end))
    return merged
