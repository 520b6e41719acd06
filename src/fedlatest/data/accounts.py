"""Accounts become clients: the paper's steps from a TweetSet to who trains on what, each a function of plain arrays."""

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.data.balance import keep_by_hour
from fedlatest.data.tweet_set import TweetSet
from fedlatest.errors import ConfigError, DataError

MORE_THAN = 40  # tweets, for an account to be a client
TEST_SHARE = 0.1

Rows = npt.NDArray[np.int64]  # positions in the tweets


class Draw(IntEnum):
    """What chance decides; each has a stream of its own, so that one does not move the others."""

    ACCOUNTS = 0
    BALANCE = 1
    TEST = 2


class Deal(NamedTuple):
    """Client i trains on the tweets rows[offsets[i] : offsets[i + 1]], sent at `sent` of the same positions."""

    rows: Rows
    offsets: npt.NDArray[np.int64]  # [N + 1]
    sent: npt.NDArray[np.int32]  # seconds after midnight, one for each of `rows`
    accounts: npt.NDArray[np.int32]  # [N] which of the tweets' accounts each client is
    test_rows: Rows  # from the shortest text to the longest
    num_left: int  # sampled accounts that have no training tweet, and so are no client


def deal_accounts(
    tweet_set: TweetSet, *, num_clients: int, alpha: float = 0.0, seed: int = 0, more_tweets_than: int = MORE_THAN
) -> Deal:
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
    return Deal(rows, offsets, tweets.second[rows], accounts, by_length(test, lengths), num_clients - len(accounts))


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
