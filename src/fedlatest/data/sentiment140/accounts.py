"""Accounts become clients: the paper's steps from a TweetSet to who trains on what, each a function of plain arrays."""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.data.features import Words
from fedlatest.data.federation import SECONDS_PER_DAY, Federation
from fedlatest.data.sentiment140.tweet_set import TweetSet, padded, vocabulary
from fedlatest.errors import ConfigError, DataError

MORE_THAN = 40  # tweets, for an account to be a client
TEST_SHARE = 0.1

Rows = npt.NDArray[np.int64]  # positions in the tweets


class Draw(IntEnum):
    """What chance decides; each has a stream of its own, so that one does not move the others."""

    ACCOUNTS = 0
    BALANCE = 1
    TEST = 2


class AccountSplit(NamedTuple):
    """Client i trains on the tweets rows[offsets[i] : offsets[i + 1]], sent at `sent` of the same positions."""

    rows: Rows
    offsets: npt.NDArray[np.int64]  # [N + 1]
    second: npt.NDArray[np.int32]  # seconds after midnight, one for each of `rows`
    accounts: npt.NDArray[np.int32]  # [N] which of the tweets' accounts each client is
    test_rows: Rows  # from the shortest text to the longest
    num_dropped: int  # sampled accounts that have no training tweet, and so are no client


def split_accounts(
    tweet_set: TweetSet, *, num_clients: int, alpha: float = 0.0, seed: int = 0, more_tweets_than: int = MORE_THAN
) -> AccountSplit:
    """Sample accounts with more than 40 tweets, drop tweets by the hour, set a tenth aside to test; the paper's order.

    `alpha` is the share of positive tweets that stays at midnight, 1 - alpha at noon. Accounts with nothing left to
    train on leave: there may be fewer clients than `num_clients`, and `num_left` says how many.
    """
    if seed < 0:
        raise ConfigError(f"seed={seed}: give a whole number from 0")
    tweets = tweet_set.tweets
    frequent = frequent_accounts(tweets.account, more_tweets_than=more_tweets_than)
    sampled = sample_accounts(frequent, num_clients=num_clients, seed=seed)
    pool = rows_of(tweets.account, sampled)
    pool = pool[keep_by_hour(tweets.second[pool], tweets.positive[pool], alpha=alpha, seed=[seed, Draw.BALANCE])]
    train, test = set_aside(pool, seed=seed)
    if not (len(train) and len(test)):
        raise DataError(
            f"{tweet_set.name}: with alpha={alpha}, {len(pool)} tweets of num_clients={num_clients} accounts are left, "
            "too few to train and to test on; use more clients or an alpha nearer to 0.5"
        )
    rows, offsets, accounts = by_account(train, tweets.account)
    lengths = np.diff(tweets.texts.offsets)
    return AccountSplit(
        rows, offsets, tweets.second[rows], accounts, by_length(test, lengths), num_clients - len(accounts)
    )


def frequent_accounts(account: npt.NDArray[Any], *, more_tweets_than: int = MORE_THAN) -> npt.NDArray[np.int64]:
    """The accounts that sent more than so many tweets.

    >>> frequent_accounts(np.array([2, 0, 2, 1, 2, 1]), more_tweets_than=1).tolist()
    [1, 2]
    """
    return np.flatnonzero(np.bincount(account) > more_tweets_than)


def sample_accounts(accounts: npt.NDArray[np.int64], *, num_clients: int, seed: int) -> npt.NDArray[np.int64]:
    """Some of the accounts, in their order; with the same seed, a smaller sample is part of a larger one."""
    if not 1 <= num_clients <= len(accounts):
        raise ConfigError(
            f"num_clients={num_clients}: give at least 1 and at most {len(accounts)}, "
            "the number of accounts with enough tweets"
        )
    rng = np.random.default_rng([seed, Draw.ACCOUNTS])
    return np.sort(rng.permutation(accounts)[:num_clients])


def rows_of(account: npt.NDArray[Any], accounts: npt.NDArray[np.int64]) -> Rows:
    """The tweets of some accounts, in their order.

    >>> rows_of(np.array([2, 0, 2, 1]), np.array([0, 2])).tolist()
    [0, 1, 2]
    """
    return np.flatnonzero(np.isin(account, accounts))


def set_aside(rows: Rows, *, seed: int, share: float = TEST_SHARE) -> tuple[Rows, Rows]:
    """A random share of all tweets together, whoever sent them, is the test set: (training, test), each in order."""
    rng = np.random.default_rng([seed, Draw.TEST])
    shuffled = rng.permutation(rows)
    num_test = round(share * len(rows))
    return np.sort(shuffled[num_test:]), np.sort(shuffled[:num_test])


def by_account(rows: Rows, account: npt.NDArray[Any]) -> tuple[Rows, npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Tweets grouped by who sent them: (rows, offsets [N + 1], accounts [N]); who sent none of them is not there.

    >>> rows, offsets, accounts = by_account(np.array([0, 1, 3]), np.array([2, 0, 0, 2]))
    >>> rows.tolist(), offsets.tolist(), accounts.tolist()
    ([1, 0, 3], [0, 1, 3], [0, 2])
    """
    accounts, sizes = np.unique(account[rows], return_counts=True)
    order = np.argsort(account[rows], kind="stable")
    return rows[order], np.concatenate([[0], np.cumsum(sizes)]), accounts.astype(np.int32)


def by_length(rows: Rows, lengths: npt.NDArray[np.int64]) -> Rows:
    """Tweets from the shortest text to the longest, equals in their order: neighbours then need little padding.

    >>> by_length(np.array([0, 1, 2]), np.array([3, 0, 3])).tolist()
    [1, 0, 2]
    """
    return rows[np.argsort(lengths[rows], kind="stable")]


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


def sleep_window(seconds: npt.ArrayLike, *, hours: float = 8.0) -> int:
    """The second of the day at which the quietest `hours` begin, given the times of day at which tweets were sent.

    The window is [start, start + hours), across midnight if need be. Where it could be shifted without gaining a tweet
    it lies in the middle of that slack; of several slacks in that of the longest, of equal ones the earliest.

    >>> sleep_window([12 * 3600]) / 3600  # awake at noon, asleep from 20:00 to 4:00
    20.0
    """
    sent = np.asarray(seconds, np.int64)
    length = round(hours * 3600)
    if sent.ndim != 1 or (sent.size and not (sent.min() >= 0 and sent.max() < SECONDS_PER_DAY)):
        raise DataError("seconds: give times of day, in [0, 86400)")
    if not 0 < length < SECONDS_PER_DAY:
        raise DataError(f"hours={hours}: a window is shorter than a day and longer than nothing")
    if sent.size == 0:
        return 0
    # A tweet at s is in the window while start is in (s - length, s]; between these points the count does not change.
    starts = np.unique(np.concatenate([(sent - length + 1) % SECONDS_PER_DAY, (sent + 1) % SECONDS_PER_DAY]))
    counts = _num_in_windows(np.sort(sent), starts, length)
    lengths = np.diff(np.append(starts, starts[0] + SECONDS_PER_DAY))
    return _middle_of_the_longest(starts, lengths, counts == counts.min())


def _num_in_windows(sent: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.int64]:
    """How many tweets each window [start, start + length) holds, around midnight too."""
    twice = np.concatenate([sent, sent + SECONDS_PER_DAY])
    return np.searchsorted(twice, starts + length) - np.searchsorted(twice, starts)


def _middle_of_the_longest(
    starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], quiet: npt.NDArray[np.bool_]
) -> int:
    """The middle of the longest run of quiet stretches, which may run across midnight."""
    if quiet.all():
        return 0
    first = int(np.flatnonzero(~quiet)[0])  # begin after a stretch that is not quiet: then no run is cut in two
    order = (np.arange(len(starts)) + first) % len(starts)
    best_start, best_length, run_start, run_length = 0, 0, 0, 0
    for i in order:
        if not quiet[i]:
            run_length = 0
            continue
        if run_length == 0:
            run_start = int(starts[i])
        run_length += int(lengths[i])
        if (run_length, -run_start) > (best_length, -best_start):
            best_start, best_length = run_start, run_length
    return (best_start + (best_length - 1) // 2) % SECONDS_PER_DAY


def tweet_federation(tweet_set: TweetSet, deal: AccountSplit) -> Federation:
    """The Federation in which the deal's accounts hold their tweets; label 1 is a positive tweet.

    >>> from fedlatest.data import split_accounts, generated_tweets
    >>> tweet_set = generated_tweets(20)
    >>> tweet_federation(tweet_set, split_accounts(tweet_set, num_clients=10)).num_clients
    10
    """
    tweets, texts = tweet_set.tweets, tweet_set.tweets.texts
    table, number = vocabulary(tweet_set, np.concatenate([deal.rows, deal.test_rows]))
    width = max(int(np.diff(texts.offsets)[rows].max(initial=1)) for rows in (deal.rows, deal.test_rows))
    train, test = (Words(*padded(texts, rows, number, width=width)) for rows in (deal.rows, deal.test_rows))
    return Federation(
        name=tweet_set.name,
        features=train,
        labels=tweets.positive[deal.rows].astype(np.int32),
        test_features=test,
        test_labels=tweets.positive[deal.test_rows].astype(np.int32),
        order=np.arange(len(deal.rows), dtype=np.int32),
        offsets=deal.offsets,
        ids=deal.accounts,
        table=table,
        second=deal.second,
    )
