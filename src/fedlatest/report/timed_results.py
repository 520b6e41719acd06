"""The numbers of a run in virtual time, all up to the same time limit: when it reached a target, and at what cost."""

import math
from typing import NamedTuple

import numpy as np

from fedlatest.report.run_records import RunRecord, stays_above
from fedlatest.report.run_summaries import Values, megabytes
from fedlatest.report.statistics import lower_median
from fedlatest.runs.metrics import LATE_SHARE
from fedlatest.runs.timed_curves import at, between, late_means, mean_between

HOUR = 3600.0


class TimedResult(NamedTuple):
    """What a leaderboard shows of a run in virtual time; infinity if a target was not reached."""

    until: float  # virtual seconds in which methods are compared
    seconds_to_target: Values  # [seeds] from when on the accuracy stays at or above the target
    first_seconds: Values  # [seeds] when the accuracy reached the target for the first time
    megabytes_to_target: Values  # [seeds] sent and received by all clients until then
    megabytes_up: float  # by all clients in the whole time, mean over seeds
    megabytes_down: float
    steps_per_hour: float  # server steps or rounds, mean over seeds
    dropped: float  # share of the updates sent that were too late
    failed: float  # share of the clients asked that sent no update
    ends_early: bool  # whether the run's rounds ended before the time limit
    interval: float  # virtual seconds between two evaluations, mean over the run and over seeds

    @property
    def restricted(self) -> Values:
        """[seeds] The time to the target, or the time limit if the target was not reached."""
        return np.minimum(self.seconds_to_target, self.until)

    @property
    def mean_hours(self) -> float:
        """The mean of `restricted` over seeds in hours, which methods are sorted by."""
        return float(self.restricted.mean()) / HOUR

    @property
    def hours_to_target(self) -> float:
        """The time to the target in hours, lower median over seeds; infinity if fewer than half of them reached it."""
        return lower_median(self.seconds_to_target) / HOUR

    @property
    def hours_to_first(self) -> float:
        """When the target was reached for the first time, in hours, lower median over seeds."""
        return lower_median(self.first_seconds) / HOUR

    @property
    def median_megabytes(self) -> float:
        """What all clients sent and received until the target in megabytes, lower median over seeds."""
        return lower_median(self.megabytes_to_target)


def timed_result(run: RunRecord, target: float, until: float) -> TimedResult:
    """Return the numbers of a finished run.

    Args:
        run: The run.
        target: The test accuracy to reach.
        until: The time limit in virtual seconds.
    """
    metrics = run.metrics
    times, accuracy = metrics.column("time"), metrics.column("test_accuracy")
    traffic = megabytes(run, None)
    if traffic is None:
        traffic = np.full(times.shape, math.nan)
    reached = np.array([stays_above(*curve, target, until) for curve in zip(times, accuracy, strict=True)])
    reached[reached > (1 - LATE_SHARE) * until] = math.inf  # a peak at the end does not count
    first = metrics.time_to_accuracy(target)
    until_then = [
        math.inf if math.isinf(moment) else float(at(own, sums, moment))
        for own, sums, moment in zip(times, traffic, reached, strict=True)
    ]

    def total(name: str) -> float:
        return float(np.mean([at(*curve, until) for curve in zip(times, metrics.column(name), strict=True)]))

    downloads, uploads, merged = total("downloads"), total("uploads"), total("merged")
    costs = run.manifest.get("costs") or dict.fromkeys(("up", "down"), math.nan)
    rounds = np.array([np.interp(until, own, metrics.rounds) for own in times])
    return TimedResult(
        until=until,
        seconds_to_target=reached,
        first_seconds=np.where(first <= until, first, math.inf),
        megabytes_to_target=np.array(until_then),
        megabytes_up=uploads * costs["up"] / 1e6,
        megabytes_down=downloads * costs["down"] / 1e6,
        steps_per_hour=float(rounds.mean()) / (until / HOUR),
        dropped=1 - merged / max(uploads, 1),
        failed=1 - uploads / max(downloads, 1),
        ends_early=bool((times[:, -1] < until).any()),
        interval=_mean_interval(times, until),
    )


def _mean_interval(times: Values, until: float) -> float:
    """Return the mean time between two evaluations up to a time limit."""
    shown = [between(own, own, 0.0, until) for own in times]
    return float(np.mean([own[-1] / max(1, own.size - 1) for own in shown]))


def late_accuracy(run: RunRecord, until: float) -> Values:
    """Return [seeds] the mean test accuracy over the last quarter of the virtual time."""
    return late_means(run.metrics, "test_accuracy", until)


def late_swing(run: RunRecord, until: float) -> float:
    """Return the largest minus the smallest test accuracy in the last quarter of the time, mean over seeds."""
    begin = (1 - LATE_SHARE) * until
    curves = zip(run.metrics.column("time"), run.metrics.column("test_accuracy"), strict=True)
    return float(np.mean([np.ptp(between(*curve, begin, until)) for curve in curves]))


def late_label_means(run: RunRecord, accuracy: Values, until: float) -> Values:
    """Return the mean accuracy of every label over the last quarter of the time, [seeds, labels].

    Args:
        run: The run.
        accuracy: [seeds, evaluations, labels], of the evaluations of the run's metrics.
        until: The time limit.
    """
    begin, times = (1 - LATE_SHARE) * until, run.metrics.column("time")
    return np.array(
        [
            [mean_between(own, curve, begin, until) for curve in labels.T]
            for own, labels in zip(times, accuracy, strict=True)
        ]
    )
