"""Statistics of comparisons: confidence intervals over seeds, and ranks of methods over cases."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

CONFIDENCE = 0.95

Values = npt.NDArray[np.float64]


def half_width(values: Values) -> float:
    """Return half the width of the 95% confidence interval of a mean (Student's t); NaN for a single value.

    >>> round(half_width(np.array([1.0, 2.0, 3.0])), 3)
    2.484
    """
    if values.size < 2:
        return math.nan
    if np.ptp(values) == 0:
        return 0.0
    quantile = stats.t.ppf((1 + CONFIDENCE) / 2, values.size - 1)
    return float(quantile * values.std(ddof=1) / math.sqrt(values.size))


def with_interval(mean: float, half: float, digits: int = 4) -> str:
    """Return a mean as text, with `half_width` after ± unless it is 0 or not known.

    >>> with_interval(0.5, 0.25, 2), with_interval(0.5, math.nan, 2)
    ('0.50 ± 0.25', '0.50')
    """
    text = f"{mean:.{digits}f}"
    return f"{text} ± {half:.{digits}f}" if half > 0 else text


def interval_note(num_seeds: Sequence[int]) -> str:
    """Return what ± means among runs with these numbers of seeds; empty if all of them have one seed.

    >>> interval_note([5, 5]), interval_note([1, 3, 5]), interval_note([1])
    ('± 95% interval over 5 seeds', '± 95% interval over 3 to 5 seeds', '')
    """
    several = sorted({number for number in num_seeds if number > 1})
    if not several:
        return ""
    low, high = several[0], several[-1]
    return f"± {CONFIDENCE:.0%} interval over {low if low == high else f'{low} to {high}'} seeds"


def lower_median(values: Values) -> float:
    """Return the smallest value that at least half of the values do not exceed.

    It is finite if at least half of the values are, also if their number is even.

    >>> lower_median(np.array([math.inf, 2.0, math.inf, 1.0]))
    2.0
    """
    return float(np.sort(values)[(values.size - 1) // 2])


def differs(first: Values, second: Values) -> bool:
    """Return whether paired values differ significantly (paired t-test at 5%); a single pair differs if it is unequal.

    >>> differs(np.array([0.90, 0.91, 0.92]), np.array([0.80, 0.81, 0.83]))
    True
    """
    difference = first - second
    if difference.size < 2 or np.ptp(difference) == 0:
        return bool(difference.any())
    return bool(stats.ttest_1samp(difference, 0).pvalue < 1 - CONFIDENCE)


class Ranking(NamedTuple):
    """Ranks of methods over cases; rank 1 is the best."""

    ranks: Values  # [cases, methods]; methods with equal values share the mean of their ranks
    mean: Values  # [methods]
    p_value: float  # of Friedman's test that all methods are equally good; NaN if it cannot be applied
    critical_difference: float  # mean ranks further apart differ significantly (Nemenyi); NaN if there is one case

    def groups(self) -> list[tuple[int, int]]:
        """Return the longest runs of methods, in the order of their mean ranks, that do not differ significantly.

        Each is (first, last), both included, as positions in the order of the mean ranks.
        """
        if math.isnan(self.critical_difference):
            return []
        ordered = np.sort(self.mean)
        ends = [int(np.flatnonzero(ordered <= low + self.critical_difference)[-1]) for low in ordered]
        found = [(first, last) for first, last in enumerate(ends) if last > first]
        return [(a, b) for a, b in found if not any(c <= a and b <= d and (c, d) != (a, b) for c, d in found)]


def rank(values: Values) -> Ranking:
    """Rank methods by their values in each case; larger is better, and minus infinity is the worst.

    The critical difference is q sqrt(k (k + 1) / (6 n)) for k methods and n cases, where q is the quantile of the
    studentized range divided by sqrt(2) (Demšar 2006, Statistical Comparisons of Classifiers over Multiple Data Sets).

    Args:
        values: [cases, methods].

    >>> ranking = rank(np.array([[0.9, 0.8, 0.7], [0.8, 0.9, 0.7], [0.9, 0.8, 0.7], [0.9, 0.8, 0.7]]))
    >>> ranking.mean.tolist(), round(ranking.critical_difference, 3)
    ([1.25, 1.75, 3.0], 1.657)
    """
    ranks = stats.rankdata(-values, axis=1)
    num_cases, num_methods = values.shape
    p_value = difference = math.nan
    if num_cases > 1 and num_methods > 1:
        quantile = stats.studentized_range.ppf(CONFIDENCE, num_methods, np.inf) / math.sqrt(2)
        difference = float(quantile * math.sqrt(num_methods * (num_methods + 1) / (6 * num_cases)))
    if num_cases > 1 and num_methods > 2 and not (ranks == ranks[0, 0]).all():
        p_value = float(stats.friedmanchisquare(*ranks.T).pvalue)
    return Ranking(ranks, ranks.mean(axis=0), p_value, difference)
