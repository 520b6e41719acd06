"""From tweets to clients: every step by hand, then what must hold for any tweets."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fedlatest import ConfigError, DataError
from fedlatest.data import AccountSplit, TweetSet, load_sentiment140, split_accounts
from fedlatest.data.sentiment140.accounts import (
    Draw,
    by_account,
    by_length,
    frequent_accounts,
    positive_share,
    rows_of,
    sample_accounts,
    set_aside,
)
from fedlatest.data.sentiment140.parsing import Texts, Tweets

HOUR = 3600


def tweet_set(account: Any, second: Any, positive: Any, lengths: Any = None) -> TweetSet:
    """Tweets of the word 0, as many times as `lengths` says (once)."""
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
def test_a_sample_of_too_many(num_clients: int) -> None:
    with pytest.raises(ConfigError, match=f"num_clients={num_clients}: give at least 1 and at most 3, the number"):
        sample_accounts(np.arange(3), num_clients=num_clients, seed=0)


def test_rows_of_accounts() -> None:
    assert rows_of(np.array([7, 1, 2, 7, 1]), np.array([1, 7])).tolist() == [0, 1, 3, 4]


@pytest.mark.parametrize(("num_rows", "num_test"), [(100, 10), (14, 1), (16, 2), (4, 0), (0, 0)])
def test_a_tenth_is_set_aside(num_rows: int, num_test: int) -> None:
    """1.4 of 14 is one, 1.6 of 16 is two."""
    rows = np.arange(num_rows) * 3
    train, test = set_aside(rows, seed=0)
    assert len(test) == num_test
    assert sorted([*train, *test]) == rows.tolist()
    assert train.tolist() == sorted(train)


def test_by_account_keeps_order_and_leaves_out_who_has_nothing() -> None:
    """Tweets 1, 2, 4, 5 of accounts 3, 0, 0, 3: client 0 is account 0 with 2 and 4, client 1 account 3 with 1 and 5."""
    rows, offsets, accounts = by_account(np.array([1, 2, 4, 5]), np.array([1, 3, 0, 2, 0, 3]))
    assert rows.tolist() == [2, 4, 1, 5]
    assert offsets.tolist() == [0, 2, 4]
    assert accounts.tolist() == [0, 3]


def test_by_length_is_stable() -> None:
    """Lengths of tweets 3, 1, 0, 2 are 0, 2, 5, 2: first 3, then of the equals 1 as it came first."""
    assert by_length(np.array([3, 1, 0, 2]), np.array([5, 2, 2, 0])).tolist() == [3, 1, 2, 0]


def test_the_steps_by_hand() -> None:
    """Accounts 0 and 2 tweet 50 times, account 1 only 40.

    Account 0 at noon, half of it positive: with alpha = 0 noon is all positive, 25 stay. Account 2 at midnight, 30 of
    50 positive: midnight is all negative, 20 stay. Of the 45 a tenth, 4 (4.5 to the even), is tested; 41 train.
    """
    account = np.repeat([0, 1, 2], [50, 40, 50])
    second = np.repeat([12 * HOUR + 5, 6 * HOUR, 59], [50, 40, 50])
    positive = np.concatenate([np.tile([True, False], 25), np.ones(40, bool), np.repeat([True, False], [30, 20])])
    lengths = np.arange(140) % 4
    data = tweet_set(account, second, positive, lengths)
    deal = split_accounts(data, num_clients=2, alpha=0.0, seed=1)
    assert deal.accounts.tolist() == [0, 2]
    assert deal.num_dropped == 0
    assert len(deal.test_rows) == 4
    assert deal.offsets[-1] == len(deal.rows) == 41
    first, last = deal.rows[: deal.offsets[1]], deal.rows[deal.offsets[1] :]
    kept = sorted([*deal.rows, *deal.test_rows])
    assert kept == [*range(0, 50, 2), *range(120, 140)]
    assert (first < 50).all()
    assert (last >= 120).all()
    assert deal.second.tolist() == [12 * HOUR + 5] * len(first) + [59] * len(last)
    assert np.diff(lengths[deal.test_rows]).min() >= 0


def test_a_client_without_training_tweets_leaves() -> None:
    """Account 1 is positive at midnight only, where alpha = 0 lets nothing positive stay."""
    account = np.repeat([0, 1], 50)
    data = tweet_set(account, np.zeros(100), account == 1)
    deal = split_accounts(data, num_clients=2)
    assert deal.accounts.tolist() == [0]
    assert deal.num_dropped == 1
    assert len(deal.rows) == 45
    assert len(deal.test_rows) == 5


def test_nothing_left() -> None:
    data = tweet_set(np.zeros(50, int), np.zeros(50), np.ones(50))
    with pytest.raises(DataError, match=r"test: with alpha=0\.0, 0 tweets of num_clients=1 accounts are left"):
        split_accounts(data, num_clients=1)
    assert len(split_accounts(data, num_clients=1, alpha=1.0).rows) == 45


def test_nonsense() -> None:
    data = tweet_set(np.zeros(50, int), np.zeros(50), np.arange(50) % 2)
    with pytest.raises(ConfigError, match="num_clients=2: give at least 1 and at most 1"):
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


def test_alpha_moves_no_account_and_the_seed_moves_everything() -> None:
    data = many()
    deals = [split_accounts(data, num_clients=12, alpha=alpha, seed=4) for alpha in (0.0, 0.25, 0.5)]
    assert len({tuple(deal.accounts) for deal in deals}) == 1
    assert len({len(deal.rows) for deal in deals}) == 3
    again, other = (split_accounts(data, num_clients=12, seed=seed) for seed in (4, 5))
    for ours, theirs in zip(deals[0], again, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert other.accounts.tolist() != again.accounts.tolist()


def test_the_streams_of_one_seed_are_different() -> None:
    """Were they one stream, a tweet's place in the first shuffle would say something about the next."""
    draws = [np.random.default_rng([3, draw]).permutation(100).tolist() for draw in Draw]
    assert len({tuple(draw) for draw in draws}) == len(Draw)


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
def test_any_tweets(data: TweetSet, alpha: float, seed: int) -> None:
    """With 5 for 40, so that few tweets are enough. A tenth of at most 5 tweets is none to test on."""
    frequent = frequent_accounts(data.tweets.account, more_tweets_than=5)
    assume(len(frequent) > 0)
    num_clients = (len(frequent) + 1) // 2
    problem = ""
    try:
        deal = split_accounts(data, num_clients=num_clients, alpha=alpha, seed=seed, more_tweets_than=5)
    except DataError as error:
        problem = str(error)
    if problem:
        assert re.search(r", [0-5] tweets of", problem)
    else:
        check(deal, data, frequent.tolist(), num_clients, alpha)


def check(deal: AccountSplit, data: TweetSet, frequent: list[int], num_clients: int, alpha: float) -> None:
    tweets = data.tweets
    assert len(deal.accounts) + deal.num_dropped == num_clients
    assert set(deal.accounts) <= set(frequent)
    assert (np.diff(deal.offsets) > 0).all()
    np.testing.assert_array_equal(tweets.account[deal.rows], np.repeat(deal.accounts, np.diff(deal.offsets)))
    np.testing.assert_array_equal(tweets.second[deal.rows], deal.second)
    kept = np.concatenate([deal.rows, deal.test_rows])
    assert len(set(kept.tolist())) == len(kept)
    assert len(deal.test_rows) == round(0.1 * len(kept))
    lengths = np.diff(tweets.texts.offsets)[deal.test_rows]
    assert (np.diff(lengths) >= 0).all()
    for hour in range(24):
        positive = tweets.positive[kept[tweets.second[kept] // HOUR == hour]]
        assert abs(positive.sum() - positive_share(hour, alpha) * len(positive)) <= 0.5 + 1e-9


def test_the_data_at_hand(tweets_folder: Path) -> None:
    """1473 accounts with more than 40 tweets is the paper's number; the cache gives what the file gave."""
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
    deal = split_accounts(data, num_clients=1000)
    check(deal, data, frequent_accounts(tweets.account).tolist(), 1000, 0.0)
    with pytest.raises(ConfigError, match="num_clients=1474: give at least 1 and at most 1473"):
        split_accounts(data, num_clients=1474)
