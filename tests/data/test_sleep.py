"""Sleep windows and sentiment by the hour, by hand and against counting every second."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlatest import ConfigError, DataError
from fedlatest.data.federation import SECONDS_PER_DAY
from fedlatest.data.sentiment140.accounts import keep_by_hour, positive_share, sleep_window

HOUR = 3600


def count(sent: list[int], start: int, length: int = 8 * HOUR) -> int:
    return sum((second - start) % SECONDS_PER_DAY < length for second in sent)


@pytest.mark.parametrize(
    ("hours_sent", "start"),
    [
        ([8, 23], 11.5),  # silent from 8 to 23: 15 hours, 7 of slack: [11.5, 19.5)
        ([6, 20], 9),  # 20 to 6 is 10 hours, 6 to 20 is 14: [9, 17) is the middle of the longer
        ([9, 12, 15, 18, 21], 23),  # silent from 21 to 9: 12 hours across midnight: [23, 7)
    ],
)
def test_by_hand(hours_sent: list[int], start: float) -> None:
    assert sleep_window([hour * HOUR for hour in hours_sent]) == pytest.approx(start * HOUR, abs=1)


def test_a_night_with_few_tweets_is_better_than_a_day_with_many() -> None:
    """Every half hour from 8:00 to 23:30, once at 3:00: starts from 23:30 to 0:00 take the one; the middle is 23:45."""
    sent = [hour * HOUR // 2 for hour in range(16, 48)] + [3 * HOUR]
    start = sleep_window(sent)
    assert start == 23 * HOUR + 45 * 60
    assert count(sent, start) == 1


@given(st.lists(st.integers(0, SECONDS_PER_DAY - 1), max_size=12), st.sampled_from([1, 8, 23]))
def test_no_window_holds_fewer(sent: list[int], hours: int) -> None:
    """Against a window at every point where the count can change."""
    start = sleep_window(sent, hours=hours)
    assert 0 <= start < SECONDS_PER_DAY
    length = hours * HOUR
    others = [(second + shift) % SECONDS_PER_DAY for second in sent for shift in (1, 1 - length, 0, -length)]
    assert count(sent, start, length) == min((count(sent, other, length) for other in [start, *others]), default=0)


@given(st.lists(st.integers(0, SECONDS_PER_DAY - 1), min_size=1, max_size=8), st.integers(0, SECONDS_PER_DAY - 1))
def test_the_clock_has_no_favourite_hour(sent: list[int], shift: int) -> None:
    """Tweets an hour later make a window an hour later; only which of equal slacks is taken may differ."""
    moved = [(second + shift) % SECONDS_PER_DAY for second in sent]
    start, later = sleep_window(sent), sleep_window(moved)
    assert count(sent, start) == count(moved, later)


def test_nonsense() -> None:
    assert sleep_window([]) == 0
    for seconds in ([-1], [SECONDS_PER_DAY], [[1]]):
        with pytest.raises(DataError, match="seconds: give times of day"):
            sleep_window(seconds)
    with pytest.raises(DataError, match="hours=24"):
        sleep_window([1], hours=24)


def test_shares_follow_the_clock() -> None:
    assert positive_share(0, 0.25) == 0.25
    assert positive_share(12, 0.25) == 0.75
    assert positive_share(6, 0.25) == positive_share(18, 0.25) == 0.5
    assert all(positive_share(hour, 0.5) == 0.5 for hour in range(24))


@given(
    st.lists(st.tuples(st.integers(0, SECONDS_PER_DAY - 1), st.booleans()), max_size=60),
    st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    st.integers(0, 3),
)
def test_each_hour_has_its_share(tweets: list[tuple[int, bool]], alpha: float, seed: int) -> None:
    """Of the label that is too many some go; of the other none, unless there is nothing to balance it with."""
    second = np.array([when for when, _ in tweets], np.int32)
    positive = np.array([good for _, good in tweets], bool)
    stays = keep_by_hour(second, positive, alpha=alpha, seed=seed)
    for hour in range(24):
        inside, share = second // 3600 == hour, positive_share(hour, alpha)
        good, bad = int((inside & positive).sum()), int((inside & ~positive).sum())
        kept_good, kept_bad = int((stays & inside & positive).sum()), int((stays & inside & ~positive).sum())
        assert kept_good == good or kept_bad == bad
        assert abs(kept_good - share * (kept_good + kept_bad)) <= 0.5 + 1e-9
    again = keep_by_hour(second, positive, alpha=alpha, seed=seed)
    np.testing.assert_array_equal(stays, again)


def test_alpha_is_a_share() -> None:
    with pytest.raises(ConfigError, match=r"alpha=1\.5"):
        keep_by_hour(np.zeros(0, np.int32), np.zeros(0, bool), alpha=1.5, seed=0)
