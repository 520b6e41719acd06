"""How many rounds a day are possible with a cohort size and a deadline, from availability and delays.

A round starts when at least K clients are available. K of them, drawn uniformly, are asked; client i answers after its
delay, unless it becomes unavailable before. The round ends when all have answered or become unavailable, or at the
deadline, and the next one starts at once. This is computed with numbers only, in several parts of the record side by
side, each as long as 30 of the longest rounds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.diagnosis.fleet import SECONDS_PER_DAY, Fleet, Floats, Spells

PARTS, ROUNDS = 96, 30  # parts of the record, and how many of the longest rounds each lasts
FEWEST_PARTS, MAX_CELLS = 6, 2**17  # with many clients, fewer parts: at most so many pairs of both
SHORTEST = 0.001  # seconds that a round takes at least


@dataclass(frozen=True)
class RoundRate:
    """Rounds with one cohort size and deadline."""

    cohort_size: int
    deadline: float | None
    """Seconds; None without a deadline."""
    rounds_per_day: float
    seconds: float
    """Mean length of a round."""
    answers: float
    """Share of the cohort that answers in time."""
    possible: float
    """Share of the time in which at least K clients are available."""
    num_excluded: int
    """Clients whose delay is above the deadline, so that they never answer."""


class _Counts(NamedTuple):
    """The number of available clients between events."""

    times: Floats  # [events] when it changes, ascending, from the beginning of the record on
    counts: npt.NDArray[np.int64]  # [events] from then on
    end: float


def round_rates(fleet: Fleet, *, cohort_sizes: Sequence[int], deadlines: Sequence[float | None]) -> list[RoundRate]:
    """Return how many rounds a day are possible with each cohort size and each deadline.

    Args:
        fleet: A fleet whose unit of time and delays are known. Unknown delays of single clients count as the median.
        cohort_sizes: Values of K.
        deadlines: In seconds; None for no deadline.
    """
    assert fleet.unit is not None, "the caller has checked that the unit of time is known"
    assert fleet.delays is not None, "the caller has checked that the delays are known"
    delays = np.where(np.isnan(fleet.delays), np.nanmedian(fleet.delays), fleet.delays)
    spells = Spells(fleet.spells.clients, fleet.spells.starts * fleet.unit, fleet.spells.ends * fleet.unit)
    counts = _count(spells, fleet.moments[0] * fleet.unit, fleet.moments[-1] * fleet.unit)
    return [
        _rate(spells, counts, delays, cohort_size, deadline) for cohort_size in cohort_sizes for deadline in deadlines
    ]


def _rate(
    spells: Spells, counts: _Counts, delays: Floats, cohort_size: int, deadline: float | None
) -> RoundRate:  # fmt: skip
    rng, limit = np.random.default_rng(0), np.inf if deadline is None else deadline
    length = counts.end - counts.times[0]
    enough = counts.counts >= cohort_size
    possible = float(np.diff(counts.times, append=counts.end) @ enough / length)
    part = min(max(ROUNDS * min(float(delays.max()), limit), SHORTEST), length)
    number = min(PARTS, max(FEWEST_PARTS, MAX_CELLS // delays.size), max(1, int(length / part)))
    # One part in each of `number` equal sections of the record, so that parts do not overlap.
    now = counts.times[0] + np.arange(number) * length / number + rng.random(number) * (length / number - part)
    end, observed = now + part, number * part
    rounds = answered = 0.0
    while True:
        now = np.maximum(now, _next_start(counts, enough, now))
        still = now < end
        now, end = now[still], end[still]
        if not now.size:
            break
        remaining = _remaining(spells, now, delays.size)
        chance = np.where(remaining > 0, rng.random(remaining.shape), 2.0)
        cohort = np.argpartition(chance, cohort_size - 1, axis=1)[:, :cohort_size]
        stays, needed = np.take_along_axis(remaining, cohort, axis=1), delays[cohort]
        seconds = np.maximum(np.minimum(np.minimum(stays, needed).max(axis=1), limit), SHORTEST)
        share = np.minimum(1, (end - now) / seconds)  # of the round that lies in this part of the record
        rounds += float(share.sum())
        answered += float(share @ (needed <= np.minimum(stays, limit)).mean(axis=1))
        now = now + seconds
    return RoundRate(
        cohort_size=cohort_size,
        deadline=deadline,
        rounds_per_day=SECONDS_PER_DAY * rounds / observed,
        seconds=possible * observed / rounds if rounds else 0.0,
        answers=answered / rounds if rounds else 0.0,
        possible=possible,
        num_excluded=int((delays > limit).sum()),
    )


def _count(spells: Spells, start: float, end: float) -> _Counts:
    """Return the number of available clients over time."""
    times, inverse = np.unique(np.r_[start, spells.starts, spells.ends], return_inverse=True)
    change = np.r_[0, np.ones(spells.starts.size), -np.ones(spells.ends.size)]
    counts = np.cumsum(np.bincount(inverse, change)).round().astype(np.int64)
    return _Counts(times, counts, max(end, float(times[-1])))


def _next_start(counts: _Counts, enough: npt.NDArray[np.bool_], now: Floats) -> Floats:
    """Return the first moment from each moment on at which enough clients are available; infinity if there is none."""
    following = np.minimum.accumulate(np.where(enough, counts.times, np.inf)[::-1])[::-1]
    return np.asarray(following[np.maximum(np.searchsorted(counts.times, now, side="right") - 1, 0)])


def _remaining(spells: Spells, now: Floats, num_clients: int) -> Floats:
    """Return [moments, N] for how many seconds each client stays available from a moment on; 0 if it is not."""
    base = float(spells.ends.max()) + 1  # makes the times of a client larger than those of all clients before it
    queries = np.arange(num_clients) * base + np.minimum(now, base - 1)[:, None]
    found = np.searchsorted(spells.clients * base + spells.starts, queries, side="right") - 1
    own = (found >= 0) & (spells.clients[found] == np.arange(num_clients))
    return np.where(own, np.maximum(spells.ends[found] - now[:, None], 0), 0.0)
