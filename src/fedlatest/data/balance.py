"""Sentiment by the hour: tweets are dropped until the share of positive ones follows the clock."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fedlatest.errors import ConfigError


def positive_share(hour: int, alpha: float) -> float:
    """The share of positive tweets in an hour of the day: alpha at 0, 1 - alpha at 12, linear in between and back.

    >>> [positive_share(hour, 0.0) for hour in (0, 6, 12, 18)]
    [0.0, 0.5, 1.0, 0.5]
    """
    return alpha + (1 - 2 * alpha) * (1 - abs(hour - 12) / 12)


def keep_by_hour(
    second: npt.NDArray[np.int32], positive: npt.NDArray[np.bool_], *, alpha: float, seed: int | Sequence[int]
) -> npt.NDArray[np.bool_]:
    """[T] which tweets stay: of each hour's tweets, all accounts together, as many as its share of positives allows.

    Those that go are drawn at random. An hour without one of the labels can only keep its share by losing everything,
    unless the share asks for the other label alone.
    """
    if not 0 <= alpha <= 1:
        raise ConfigError(f"alpha={alpha}: a share is in [0, 1]")
    rng = np.random.default_rng(seed)
    stays = np.zeros(len(second), bool)
    for hour in range(24):
        share = positive_share(hour, alpha)
        inside = second // 3600 == hour
        good, bad = np.flatnonzero(inside & positive), np.flatnonzero(inside & ~positive)
        num_good, num_bad = _most(len(good), len(bad), share)
        stays[rng.permutation(good)[:num_good]] = True
        stays[rng.permutation(bad)[:num_bad]] = True
    return stays


def _most(num_good: int, num_bad: int, share: float) -> tuple[int, int]:
    """The most that can stay of both so that the good are a share of all, to the nearest tweet.

    >>> _most(10, 10, 0.5), _most(10, 10, 0.25), _most(10, 10, 1.0), _most(0, 10, 0.5)
    ((10, 10), (3, 10), (10, 0), (0, 0))
    """
    if share <= 0:
        return 0, num_bad
    if share >= 1:
        return num_good, 0
    if num_good * (1 - share) > share * num_bad:
        return min(num_good, round(num_bad * share / (1 - share))), num_bad
    return num_good, min(num_bad, round(num_good * (1 - share) / share))
