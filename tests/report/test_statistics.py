"""Intervals, paired tests and ranks, with numbers from tables."""

import math

import numpy as np
import pytest

from fedlatest.report.statistics import differs, half_width, lower_median, rank, with_interval


def test_the_interval_uses_students_t() -> None:
    """Four values with standard deviation 2: 3.182 * 2 / sqrt(4)."""
    values = np.array([0.0, 0.0, 2.0, 2.0]) * np.sqrt(3)
    assert half_width(values) == pytest.approx(3.182446 * values.std(ddof=1) / 2)
    assert math.isnan(half_width(np.array([1.0])))


def test_an_interval_is_shown_only_if_the_seeds_differ() -> None:
    assert with_interval(0.5, half_width(np.array([0.4, 0.6])), 2) == "0.50 ± 1.27"
    assert with_interval(0.1, half_width(np.array([0.1, 0.1, 0.1])), 2) == "0.10"
    assert with_interval(0.1, half_width(np.array([0.1])), 2) == "0.10"


def test_half_of_the_values_decide_whether_the_lower_median_is_finite() -> None:
    assert lower_median(np.array([3.0, 1.0, 2.0])) == 2
    assert lower_median(np.array([4.0, 1.0, math.inf, math.inf])) == 4
    assert lower_median(np.array([1.0, math.inf, math.inf])) == math.inf


def test_pairs_are_compared_by_their_differences() -> None:
    """The values of one method vary by 0.2 between seeds, but it is always about 0.01 better."""
    first = np.array([0.7, 0.8, 0.9, 0.75])
    assert differs(first, first - np.array([0.010, 0.011, 0.009, 0.010]))
    assert not differs(first, first - np.array([0.010, -0.011, 0.009, -0.010]))
    assert not differs(first, first)
    assert differs(first, first - 0.01)


@pytest.mark.parametrize(("methods", "quantile"), [(2, 1.960), (5, 2.728), (10, 3.164)])
def test_the_critical_difference_has_published_quantiles(methods: int, quantile: float) -> None:
    """Quantiles of Table 5(a) of Demšar 2006, for 5%."""
    values = np.random.default_rng(0).uniform(size=(7, methods))
    expected = quantile * math.sqrt(methods * (methods + 1) / (6 * 7))
    assert rank(values).critical_difference == pytest.approx(expected, rel=5e-4)


def test_ties_and_diverged_methods_share_ranks() -> None:
    ranking = rank(np.array([[0.9, 0.9, -np.inf, -np.inf], [0.8, 0.7, 0.6, -np.inf]]))
    np.testing.assert_array_equal(ranking.ranks, [[1.5, 1.5, 3.5, 3.5], [1, 2, 3, 4]])
    np.testing.assert_array_equal(ranking.mean, [1.25, 1.75, 3.25, 3.75])


def test_groups_are_the_longest_runs_without_a_significant_difference() -> None:
    ranking = rank(np.random.default_rng(1).uniform(size=(4, 3)))._replace(
        mean=np.array([3.0, 1.0, 2.2, 4.5]), critical_difference=1.3
    )
    assert ranking.groups() == [(0, 1), (1, 2)]  # 1.0-2.2, 2.2-3.0; 4.5 is alone
    assert rank(np.array([[0.1, 0.2]])).groups() == []  # one case: nothing can be said
