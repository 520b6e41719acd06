"""Accounts as clients: every step with numbers computed by hand, then the invariants for any tweets."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fedlatest import ConfigError, DataError
from fedlatest.data import AccountSplit, TweetSet, load_sentiment140, split_accounts
from fedlatest.data.federation import SECONDS_PER_DAY
from fedlatest.data.sentiment140.accounts import (
    Stream,
    balance_by_hour,
    frequent_accounts,
    group_by_account,
    positive_share,
    rows_of_accounts,
    sample_accounts,
    sleep_window,
    sort_by_length,
    split_test,
)
from fedlatest.data.sentiment140.parsing import Texts, Tweets

HOUR = 3600


def tweet_set(account: Any, second: Any, positive: Any, lengths: Any = None) -> TweetSet:
    """Tweets that repeat one word `lengths` times, by default once."""
    lengths = np.ones(len(account), int) if lengths is None else np.asarray(lengths)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    texts = Texts(["word"], np.zeros(offsets[-1], np.int32), offsets)
    names = [f"user{number}" for number in range(max(account) + 1)]
    columns = np.array(positive, bool), np.array(account, np.int32), np.array(second, np.int32)
    return TweetSet("test", Tweets(*columns, texts, names, 0), np.ones((1, 25), np.float32))


def test_frequent_is_more_than_40() -> None:
    """Accounts 0, 1 and 3 sent 40, 41 and 60 tweets, account 2 none."""
    account = np.random.default_rng(0).permutation(np.repeat([0, 1, 3], [40, 41, 60]))
    assert frequent_accounts(account).tolist() == [1, 3]


def test_a_sample_is_in_order_without_repetition_and_part_of_a_larger_one() -> None:
    accounts = np.arange(0, 200, 2)
    small, large = (sample_accounts(accounts, num_clients=size, seed=5) for size in (20, 50))
    assert (np.diff(small) > 0).all()
    assert set(small) < set(large) < set(accounts)
    assert small.tolist() != sample_accounts(accounts, num_clients=20, seed=6).tolist()
    assert sample_accounts(accounts, num_clients=100, seed=5).tolist() == accounts.tolist()


@pytest.mark.parametrize("num_clients", [0, -1, 4])
def test_an_invalid_sample_size_is_an_error(num_clients: int) -> None:
    with pytest.raises(ConfigError, match=f"num_clients={num_clients}: must be at least 1 and at most 3, the number"):
        sample_accounts(np.arange(3), num_clients=num_clients, seed=0)


def test_rows_of_accounts() -> None:
    assert rows_of_accounts(np.array([7, 1, 2, 7, 1]), np.array([1, 7])).tolist() == [0, 1, 3, 4]


@pytest.mark.parametrize(("num_rows", "num_test"), [(100, 10), (14, 1), (16, 2), (4, 0), (0, 0)])
def test_a_tenth_is_the_test_set(num_rows: int, num_test: int) -> None:
    """A tenth of 14 is 1.4, rounded to 1; a tenth of 16 is 1.6, rounded to 2."""
    rows = np.arange(num_rows) * 3
    train, test = split_test(rows, seed=0)
    assert len(test) == num_test
    assert sorted([*train, *test]) == rows.tolist()
    assert train.tolist() == sorted(train)


def test_group_by_account_keeps_the_order_and_omits_accounts_without_tweets() -> None:
    """Tweets 1, 2, 4, 5 of accounts 3, 0, 0, 3: client 0 is account 0 with 2 and 4, client 1 account 3 with 1 and 5."""
    rows, offsets, accounts = group_by_account(np.array([1, 2, 4, 5]), np.array([1, 3, 0, 2, 0, 3]))
    assert rows.tolist() == [2, 4, 1, 5]
    assert offsets.tolist() == [0, 2, 4]
    assert accounts.tolist() == [0, 3]


def test_sort_by_length_is_stable() -> None:
    """Tweets 3, 1, 0, 2 have the lengths 0, 2, 5, 2: tweet 3 first, then 1 and 2 in their order, then 0."""
    assert sort_by_length(np.array([3, 1, 0, 2]), np.array([5, 2, 2, 0])).tolist() == [3, 1, 2, 0]


def test_all_steps_with_numbers_computed_by_hand() -> None:
    """Accounts 0 and 2 have 50 tweets, account 1 has 40, which is not enough.

    With alpha = 0, noon keeps positive tweets only and midnight negative ones. Account 0 tweets at noon; 25 of its 50
    tweets are positive and kept. Account 2 tweets at midnight; 20 of its 50 tweets are negative and kept. A tenth of
    these 45 is 4.5, rounded to the even 4: 4 test tweets and 41 training tweets.
    """
    account = np.repeat([0, 1, 2], [50, 40, 50])
    second = np.repeat([12 * HOUR + 5, 6 * HOUR, 59], [50, 40, 50])
    positive = np.concatenate([np.tile([True, False], 25), np.ones(40, bool), np.repeat([True, False], [30, 20])])
    lengths = np.arange(140) % 4
    data = tweet_set(account, second, positive, lengths)
    split = split_accounts(data, num_clients=2, alpha=0.0, seed=1)
    assert split.accounts.tolist() == [0, 2]
    assert split.num_dropped == 0
    assert len(split.test_rows) == 4
    assert split.offsets[-1] == len(split.rows) == 41
    first, last = split.rows[: split.offsets[1]], split.rows[split.offsets[1] :]
    kept = sorted([*split.rows, *split.test_rows])
    assert kept == [*range(0, 50, 2), *range(120, 140)]
    assert (first < 50).all()
    assert (last >= 120).all()
    assert split.second.tolist() == [12 * HOUR + 5] * len(first) + [59] * len(last)
    assert np.diff(lengths[split.test_rows]).min() >= 0


def test_an_account_without_training_tweets_is_dropped() -> None:
    """All tweets of account 1 are positive and at midnight, where alpha = 0 keeps negative tweets only."""
    account = np.repeat([0, 1], 50)
    data = tweet_set(account, np.zeros(100), account == 1)
    split = split_accounts(data, num_clients=2)
    assert split.accounts.tolist() == [0]
    assert split.num_dropped == 1
    assert len(split.rows) == 45
    assert len(split.test_rows) == 5


def test_no_tweets_left_is_an_error() -> None:
    data = tweet_set(np.zeros(50, int), np.zeros(50), np.ones(50))
    with pytest.raises(DataError, match=r"test: with alpha=0\.0, 0 tweets of num_clients=1 accounts are left"):
        split_accounts(data, num_clients=1)
    assert len(split_accounts(data, num_clients=1, alpha=1.0).rows) == 45


def test_invalid_arguments() -> None:
    data = tweet_set(np.zeros(50, int), np.zeros(50), np.arange(50) % 2)
    with pytest.raises(ConfigError, match="num_clients=2: must be at least 1 and at most 1"):
        split_accounts(data, num_clients=2)
    with pytest.raises(ConfigError, match=r"alpha=-0\.1"):
        split_accounts(data, num_clients=1, alpha=-0.1)
    with pytest.raises(ConfigError, match="seed=-1"):
        split_accounts(data, num_clients=1, seed=-1)


def many(seed: int = 0) -> TweetSet:
    rng = np.random.default_rng(seed)
    return tweet_set(
        np.repeat(np.arange(30), 60), rng.integers(0, 24 * HOUR, 1800), rng.random(1800) < 0.5, rng.integers(0, 9, 1800)
    )


def test_alpha_does_not_change_the_accounts_and_the_seed_changes_everything() -> None:
    data = many()
    splits = [split_accounts(data, num_clients=12, alpha=alpha, seed=4) for alpha in (0.0, 0.25, 0.5)]
    assert len({tuple(split.accounts) for split in splits}) == 1
    assert len({len(split.rows) for split in splits}) == 3
    again, other = (split_accounts(data, num_clients=12, seed=seed) for seed in (4, 5))
    for ours, theirs in zip(splits[0], again, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert other.accounts.tolist() != again.accounts.tolist()


def test_the_streams_of_one_seed_are_different() -> None:
    """With one stream, the position of a tweet in the first shuffle would determine its position in the next."""
    shuffles = [np.random.default_rng([3, stream]).permutation(100).tolist() for stream in Stream]
    assert len({tuple(shuffle) for shuffle in shuffles}) == len(Stream)


@st.composite
def tweet_sets(draw: st.DrawFn) -> TweetSet:
    """Few accounts, few hours, texts of 0 .. 2 words: hours without a label, ties and empty texts are common."""
    num_tweets = draw(st.integers(60, 200))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    hours = rng.choice(draw(st.lists(st.integers(0, 23), min_size=1, max_size=8)), num_tweets)
    return tweet_set(
        rng.integers(0, draw(st.integers(1, 30)), num_tweets),
        hours * HOUR + rng.integers(0, HOUR, num_tweets),
        rng.random(num_tweets) < draw(st.sampled_from([0.3, 0.5, 0.7, 1.0])),
        rng.integers(0, 3, num_tweets),
    )


@given(data=tweet_sets(), alpha=st.sampled_from([0.0, 0.25, 0.5]), seed=st.integers(0, 5))
def test_invariants_for_any_tweets(data: TweetSet, alpha: float, seed: int) -> None:
    """The threshold is 5 instead of 40, so that few tweets are enough. Of 5 or fewer tweets, none is a test tweet."""
    frequent = frequent_accounts(data.tweets.account, more_tweets_than=5)
    assume(len(frequent) > 0)
    num_clients = (len(frequent) + 1) // 2
    problem = ""
    try:
        split = split_accounts(data, num_clients=num_clients, alpha=alpha, seed=seed, more_tweets_than=5)
    except DataError as error:
        problem = str(error)
    if problem:
        assert re.search(r", [0-5] tweets of", problem)
    else:
        check_split(split, data, frequent.tolist(), num_clients, alpha)


def check_split(split: AccountSplit, data: TweetSet, frequent: list[int], num_clients: int, alpha: float) -> None:
    tweets = data.tweets
    assert len(split.accounts) + split.num_dropped == num_clients
    assert set(split.accounts) <= set(frequent)
    assert (np.diff(split.offsets) > 0).all()
    np.testing.assert_array_equal(tweets.account[split.rows], np.repeat(split.accounts, np.diff(split.offsets)))
    np.testing.assert_array_equal(tweets.second[split.rows], split.second)
    kept = np.concatenate([split.rows, split.test_rows])
    assert len(set(kept.tolist())) == len(kept)
    assert len(split.test_rows) == round(0.1 * len(kept))
    lengths = np.diff(tweets.texts.offsets)[split.test_rows]
    assert (np.diff(lengths) >= 0).all()
    for hour in range(24):
        positive = tweets.positive[kept[tweets.second[kept] // HOUR == hour]]
        assert abs(positive.sum() - positive_share(hour, alpha) * len(positive)) <= 0.5 + 1e-9


def num_in_window(sent: list[int], start: int, length: int = 8 * HOUR) -> int:
    return sum((second - start) % SECONDS_PER_DAY < length for second in sent)


@pytest.mark.parametrize(
    ("hours_sent", "start"),
    [
        ([8, 23], 11.5),  # no tweets from 8 to 23, so starts from 8 to 15 are equal: the middle is [11.5, 19.5)
        ([6, 20], 9),  # 20 to 6 is 10 hours, 6 to 20 is 14: [9, 17) is the middle of the longer one
        ([9, 12, 15, 18, 21], 23),  # no tweets from 21 to 9, 12 hours that include midnight: [23, 7)
    ],
)
def test_sleep_window_by_hand(hours_sent: list[int], start: float) -> None:
    assert sleep_window([hour * HOUR for hour in hours_sent]) == pytest.approx(start * HOUR, abs=1)


def test_sleep_window_with_the_fewest_tweets_if_none_is_empty() -> None:
    """Every half hour from 8:00 to 23:30, once at 3:00: starts from 23:30 to 0:00 contain one; the middle is 23:45."""
    sent = [hour * HOUR // 2 for hour in range(16, 48)] + [3 * HOUR]
    start = sleep_window(sent)
    assert start == 23 * HOUR + 45 * 60
    assert num_in_window(sent, start) == 1


@given(st.lists(st.integers(0, SECONDS_PER_DAY - 1), max_size=12), st.sampled_from([1, 8, 23]))
def test_no_other_window_has_fewer_tweets(sent: list[int], hours: int) -> None:
    """Compared with windows at every point where the count can change."""
    start = sleep_window(sent, hours=hours)
    assert 0 <= start < SECONDS_PER_DAY
    length = hours * HOUR
    others = [(second + shift) % SECONDS_PER_DAY for second in sent for shift in (1, 1 - length, 0, -length)]
    assert num_in_window(sent, start, length) == min(
        (num_in_window(sent, other, length) for other in [start, *others]), default=0
    )


@given(st.lists(st.integers(0, SECONDS_PER_DAY - 1), min_size=1, max_size=8), st.integers(0, SECONDS_PER_DAY - 1))
def test_shifted_tweets_shift_the_sleep_window(sent: list[int], shift: int) -> None:
    """The number of tweets in the window stays the same; the choice among equal windows may differ."""
    moved = [(second + shift) % SECONDS_PER_DAY for second in sent]
    start, later = sleep_window(sent), sleep_window(moved)
    assert num_in_window(sent, start) == num_in_window(moved, later)


def test_sleep_window_with_invalid_arguments() -> None:
    assert sleep_window([]) == 0
    for seconds in ([-1], [SECONDS_PER_DAY], [[1]]):
        with pytest.raises(DataError, match="seconds: must be times of day"):
            sleep_window(seconds)
    with pytest.raises(DataError, match="hours=24"):
        sleep_window([1], hours=24)


def test_positive_share_by_hand() -> None:
    assert positive_share(0, 0.25) == 0.25
    assert positive_share(12, 0.25) == 0.75
    assert positive_share(6, 0.25) == positive_share(18, 0.25) == 0.5
    assert all(positive_share(hour, 0.5) == 0.5 for hour in range(24))


@given(
    st.lists(st.tuples(st.integers(0, SECONDS_PER_DAY - 1), st.booleans()), max_size=60),
    st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    st.integers(0, 3),
)
def test_each_hour_has_its_share_of_positive_tweets(tweets: list[tuple[int, bool]], alpha: float, seed: int) -> None:
    """At most one label loses tweets, and the kept positives are the share of the kept tweets, to half a tweet."""
    second = np.array([when for when, _ in tweets], np.int32)
    positive = np.array([is_positive for _, is_positive in tweets], bool)
    kept = balance_by_hour(second, positive, alpha=alpha, seed=seed)
    for hour in range(24):
        in_hour, share = second // 3600 == hour, positive_share(hour, alpha)
        positives, negatives = int((in_hour & positive).sum()), int((in_hour & ~positive).sum())
        kept_positives, kept_negatives = int((kept & in_hour & positive).sum()), int((kept & in_hour & ~positive).sum())
        assert kept_positives == positives or kept_negatives == negatives
        assert abs(kept_positives - share * (kept_positives + kept_negatives)) <= 0.5 + 1e-9
    again = balance_by_hour(second, positive, alpha=alpha, seed=seed)
    np.testing.assert_array_equal(kept, again)


def test_an_invalid_alpha_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"alpha=1\.5"):
        balance_by_hour(np.zeros(0, np.int32), np.zeros(0, bool), alpha=1.5, seed=0)


def test_the_real_data(tweets_folder: Path) -> None:
    """1473 accounts with more than 40 tweets is the number of the paper; a second load, from the cache, is equal."""
    data, again = load_sentiment140(tweets_folder), load_sentiment140(tweets_folder)
    tweets = data.tweets
    assert len(frequent_accounts(tweets.account)) == 1473
    assert len(tweets.positive) >= 100_000
    assert tweets.num_malformed == 0
    assert 0.2 < data.vectors.any(axis=1).mean() < 1
    assert again.tweets.texts.words == tweets.texts.words
    assert again.tweets.accounts == tweets.accounts
    np.testing.assert_array_equal(again.tweets.texts.offsets, tweets.texts.offsets)
    np.testing.assert_array_equal(again.vectors, data.vectors)
    split = split_accounts(data, num_clients=1000)
    check_split(split, data, frequent_accounts(tweets.account).tolist(), 1000, 0.0)
    with pytest.raises(ConfigError, match="num_clients=1474: must be at least 1 and at most 1473"):
        split_accounts(data, num_clients=1474)
