"""Availability as intervals of rounds, from which absences follow without evaluating every round. NumPy only."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]


class RoundIntervals(NamedTuple):
    """The rounds in which clients are available: client clients[m] in starts[m] .. ends[m] - 1, for all m.

    Intervals are sorted by client, then by start, and those of one client do not overlap. With a period P they lie in
    rounds 0 .. P - 1 and repeat every P rounds.
    """

    clients: Positions  # [M]
    starts: Positions  # [M]
    ends: Positions  # [M]
    period: int | None = None


def longest_absences(intervals: RoundIntervals, *, num_clients: int, horizon: int) -> npt.NDArray[np.int32]:
    """Return the longest absence of each client in rounds 0 .. horizon - 1, [N], in time proportional to N + M.

    An absence lies before a client's first interval, between two intervals, or after the last one: until the first
    interval of the next period, if that begins before the horizon, or else until the horizon. Later periods repeat
    these absences.

    Args:
        intervals: When the clients are available.
        num_clients: N.
        horizon: The number of rounds.
    """
    longest = np.full(num_clients, horizon, np.int64)
    begun = intervals.starts < np.minimum(intervals.ends, horizon)
    clients, starts = intervals.clients[begun], intervals.starts[begun]
    ends = np.minimum(intervals.ends[begun], horizon)
    if clients.size:
        is_first = np.r_[True, clients[1:] != clients[:-1]]
        is_last = np.r_[is_first[1:], True]
        first, last = starts[is_first], ends[is_last]
        following = horizon if intervals.period is None else np.minimum(intervals.period + first, horizon)
        before = starts - np.r_[0, ends[:-1]]  # the absence before each interval
        before[is_first] = first
        longest[clients[is_first]] = np.maximum(np.maximum.reduceat(before, np.flatnonzero(is_first)), following - last)
    return longest.astype(np.int32)


def available_rounds(intervals: RoundIntervals, *, num_clients: int, horizon: int) -> Positions:
    """Return in how many of the rounds 0 .. horizon - 1 each client is available, [N].

    Args:
        intervals: When the clients are available.
        num_clients: N.
        horizon: The number of rounds.
    """
    clients, starts, ends, period = intervals
    cycles, rest = (0, horizon) if period is None else divmod(horizon, period)
    in_rest = np.maximum(np.minimum(ends, rest) - starts, 0)
    rounds = np.zeros(num_clients, np.int64)
    np.add.at(rounds, clients, cycles * (ends - starts) + in_rest)
    return rounds


def shifted(intervals: RoundIntervals, rounds: int) -> RoundIntervals:
    """Return the intervals with round `rounds` as the new round 0."""
    clients, starts, ends, period = intervals
    if period is not None:
        rounds %= period
        twice = np.argsort(np.tile(clients, 2), kind="stable")  # a client's second period follows its first
        clients = np.tile(clients, 2)[twice]
        starts = np.r_[starts, starts + period][twice]
        ends = np.r_[ends, ends + period][twice]
    starts = np.maximum(starts - rounds, 0)
    ends = ends - rounds if period is None else np.minimum(ends - rounds, period)
    kept = starts < ends
    return RoundIntervals(clients[kept], starts[kept], ends[kept], period)
