"""How many rounds a day are possible with a cohort size and a deadline, from availability and delays.

A round starts when at least K clients are available. K of them, drawn uniformly, are asked; client i answers after its
delay, unless it becomes unavailable before. The round ends when all have answered or become unavailable, or at the
deadline, and the next one starts at once. If a round that starts at time t takes d(t) seconds on average, then in a
short interval there are 1 / d(t) rounds per second, or none while fewer than K clients are available. The rounds per
day are the mean of this rate over the time that was observed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedlatest.diagnosis.fleet import SECONDS_PER_DAY, Fleet, Floats

MOMENTS, DRAWS = 480, 32  # times at which rounds are started, and cohorts that are drawn at each
FEWEST_MOMENTS, MAX_CELLS = 48, 2**21  # with many clients, fewer moments: at most so many pairs of both
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


class _Sample(NamedTuple):
    """The clients at some moments."""

    remaining: Floats  # [moments, N] seconds for which a client stays available; 0 if it is not
    counts: Floats  # [moments] available clients


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
    sample = _sample(fleet, fleet.unit)
    return [
        _rate(sample, delays, cohort_size, deadline)
        for cohort_size in cohort_sizes
        for deadline in deadlines
    ]  # fmt: skip


def _rate(sample: _Sample, delays: Floats, cohort_size: int, deadline: float | None) -> RoundRate:
    rng, limit = np.random.default_rng(0), np.inf if deadline is None else deadline
    possible = sample.counts >= cohort_size
    remaining = sample.remaining[possible]
    seconds, answers = np.zeros(len(remaining)), np.zeros(len(remaining))
    for _ in range(DRAWS if possible.any() else 0):
        chance = np.where(remaining > 0, rng.random(remaining.shape), 2.0)
        cohort = np.argpartition(chance, cohort_size - 1, axis=1)[:, :cohort_size]
        stays, needed = np.take_along_axis(remaining, cohort, axis=1), delays[cohort]
        ends = np.minimum(np.minimum(stays, needed).max(axis=1), limit)
        seconds += np.maximum(ends, SHORTEST) / DRAWS
        answers += (needed <= np.minimum(stays, limit)).mean(axis=1) / DRAWS
    per_second = 1 / np.maximum(seconds, SHORTEST)
    total = per_second.sum()
    return RoundRate(
        cohort_size=cohort_size,
        deadline=deadline,
        rounds_per_day=float(SECONDS_PER_DAY * total / possible.size),
        seconds=float(len(remaining) / total) if total else 0.0,
        answers=float(answers @ per_second / total) if total else 0.0,
        possible=float(possible.mean()),
        num_excluded=int((delays > limit).sum()),
    )


def _sample(fleet: Fleet, unit: float) -> _Sample:
    """Return how long each client stays available from evenly spaced moments on."""
    number = min(MOMENTS, max(FEWEST_MOMENTS, MAX_CELLS // fleet.num_clients))
    moments = fleet.moments[0] + fleet.length * (np.arange(number) + 0.5) / number
    remaining = np.zeros((number, fleet.num_clients))
    offsets = np.searchsorted(fleet.spells.clients, np.arange(fleet.num_clients + 1))
    for client in range(fleet.num_clients):
        own = slice(offsets[client], offsets[client + 1])
        if own.start == own.stop:
            continue
        spell = np.searchsorted(fleet.spells.starts[own], moments, side="right") - 1
        until = np.where(spell >= 0, fleet.spells.ends[own][np.maximum(spell, 0)], -np.inf)
        remaining[:, client] = np.maximum(until - moments, 0) * unit
    return _Sample(remaining, (remaining > 0).sum(axis=1).astype(float))
