"""Curves with steps over virtual time."""

import math

import numpy as np
import pytest

from fedlatest.runs import Metrics, Row
from fedlatest.runs.timed_curves import at, between, late_means, mean_between, time_limit

TIMES, VALUES = np.array([0.0, 10.0, 40.0, 70.0]), np.array([0.0, 0.6, 0.9, 0.8])


def test_means_are_weighted_by_time() -> None:
    """0.6 from 10 s to 40 s, 0.9 to 70 s and 0.8 to 100 s; evaluations after the end do not count."""
    assert mean_between(TIMES, VALUES, 0, 100) == pytest.approx(0.3 * (0.6 + 0.9 + 0.8))
    assert mean_between(TIMES, VALUES, 20, 30) == pytest.approx(0.6)
    assert mean_between(TIMES, VALUES, 30, 50) == pytest.approx(0.75)
    assert mean_between(TIMES, VALUES, 75, 80) == pytest.approx(0.8)


def test_a_value_that_is_not_known_and_not_used_does_not_matter() -> None:
    values = np.array([math.nan, 0.6, 0.9, math.nan])
    assert mean_between(TIMES, values, 10, 70) == pytest.approx(0.75)
    assert math.isnan(mean_between(TIMES, values, 5, 70))


def test_values_at_and_between_moments() -> None:
    assert at(TIMES, VALUES, [0, 39.9, 40, 1e9]).tolist() == [0.0, 0.6, 0.9, 0.8]
    assert between(TIMES, VALUES, 0, 1e9).tolist() == VALUES.tolist()
    assert between(TIMES, VALUES, 20, 69).tolist() == [0.6, 0.9]
    assert between(TIMES, VALUES, 50, 60).tolist() == [0.9]


def test_late_means_of_a_run() -> None:
    """The last quarter of 80 s begins at 60 s: seed 0 has 0.9 for half of it, then 0.8."""
    rows = [
        Row(0, n, 0.0, 1.0, 0.5, 1.0, float(v), time=float(t))
        for n, (t, v) in enumerate(zip(TIMES, VALUES, strict=True))
    ]
    rows += [row._replace(seed=1, test_accuracy=0.5) for row in rows]
    assert late_means(Metrics(rows), "test_accuracy", 80).tolist() == pytest.approx([0.85, 0.5])


def test_the_time_limit_of_a_manifest() -> None:
    assert time_limit({"config": {"timing": {"until": 9}}}) == 9
    assert time_limit({"config": {"timing": {"deadline": 9}}}) is None
    assert time_limit({"config": {}}) is None
