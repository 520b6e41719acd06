"""Curves over virtual time: the server's model at a moment is that of the last evaluation, so a curve has steps.

Evaluations need not be equally spaced, and runs need not end at the same moment: comparisons are made up to the same
time limit. Axes: [S] seeds, [E] evaluations.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fedlatest.runs.metrics import LATE_SHARE, Metrics

Values = npt.NDArray[np.float64]


def time_limit(manifest: Mapping[str, Any]) -> float | None:
    """Return the virtual seconds after which a run ends, from its manifest; None if it ends after its rounds."""
    until = (manifest["config"].get("timing") or {}).get("until")
    return None if until is None else float(until)


def mean_between(times: Values, values: Values, begin: float, end: float) -> float:
    """Return the mean of a curve between two moments, weighted by time.

    Args:
        times: [E] seconds of the evaluations, ascending from 0.
        values: [E] the curve.
        begin: The first moment.
        end: The second moment, later than the first.

    >>> mean_between(np.array([0.0, 10.0, 40.0]), np.array([0.0, 0.6, 0.8]), 30.0, 50.0)
    0.7
    """
    weights = np.diff(np.clip(np.append(times, np.inf), begin, end))
    used = weights > 0
    return float(np.sum(weights[used] * values[used]) / (end - begin))


def at(times: Values, values: Values, moments: npt.ArrayLike) -> Values:
    """Return the values of a curve at some moments, 0 or later.

    >>> at(np.array([0.0, 10.0, 40.0]), np.array([0.0, 0.6, 0.8]), [9, 10, 99]).tolist()
    [0.0, 0.6, 0.8]
    """
    return values[np.searchsorted(times, np.asarray(moments, float), side="right") - 1]


def between(times: Values, values: Values, begin: float, end: float) -> Values:
    """Return the values that a curve has from one moment to another, each step once.

    >>> between(np.array([0.0, 10.0, 40.0]), np.array([0.0, 0.6, 0.8]), 5, 10).tolist()
    [0.0, 0.6]
    """
    first = int(np.searchsorted(times, begin, side="right")) - 1
    return values[max(first, 0) : int(np.searchsorted(times, end, side="right"))]


def late_means(metrics: Metrics, name: str, until: float) -> Values:
    """Return [S] the mean of a column over the last quarter of the virtual time.

    Args:
        metrics: The metrics of a run.
        name: The column.
        until: When the time ends.
    """
    pairs = zip(metrics.column("time"), metrics.column(name), strict=True)
    return np.array([mean_between(times, values, (1 - LATE_SHARE) * until, until) for times, values in pairs])
