"""Accounts as clients: the paper's steps from a TweetSet to a Federation.

Select the accounts with many tweets, balance the sentiment by the hour, split off a test set, group by account. Each
step is a function of plain arrays. Axes: [T] tweets, [N] clients.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.data.features import Words
from fedlatest.data.federation import SECONDS_PER_DAY, Federation
from fedlatest.data.sentiment140.tweet_set import TweetSet, pad_texts, vocabulary
from fedlatest.errors import ConfigError, DataError

TWEET_THRESHOLD = 40  # an account is a client if it has more tweets than this
TEST_SHARE = 0.1

Rows = npt.NDArray[np.int64]  # row numbers of tweets


class Stream(IntEnum):
    """The random streams of one seed, one for each random step, so that one step does not affect another."""

    ACCOUNTS = 0
    BALANCE = 1
    TEST = 2


class AccountSplit(NamedTuple):
    """Which tweets each client trains on, and which are the test set.

    Args:
        rows: Training tweets, grouped by client: client i trains on rows[offsets[i] : offsets[i + 1]].
        offsets: [N + 1] where each client begins in `rows`.
        second: Time of each tweet of `rows`, in seconds after midnight.
        accounts: [N] account of each client.
        test_rows: Test tweets, from the shortest text to the longest.
        num_dropped: Sampled accounts that are not clients, because they have no training tweet.
    """

    rows: Rows
    offsets: npt.NDArray[np.int64]
    second: npt.NDArray[np.int32]
    accounts: npt.NDArray[np.int32]
    test_rows: Rows
    num_dropped: int


def split_accounts(
    tweet_set: TweetSet,
    *,
    num_clients: int,
    alpha: float = 0.0,
    seed: int = 0,
    more_tweets_than: int = TWEET_THRESHOLD,
) -> AccountSplit:
    """Sample accounts with many tweets, drop tweets by the hour and split off a test set, in the order of the paper.

    Accounts without a training tweet are dropped, so there may be fewer clients than `num_clients`.

    Args:
        tweet_set: The tweets.
        num_clients: Number of accounts to sample.
        alpha: Share of positive tweets at midnight; it is 1 - alpha at noon and linear in between.
        seed: Seed of all random steps.
        more_tweets_than: Only accounts with more tweets than this are sampled.

    Raises:
        ConfigError: An argument is out of its range.
        DataError: No tweets are left to train or to test on.
    """
    if seed < 0:
        raise ConfigError(f"seed={seed}: must be 0 or larger")
    tweets = tweet_set.tweets
    frequent = frequent_accounts(tweets.account, more_tweets_than=more_tweets_than)
    sampled = sample_accounts(frequent, num_clients=num_clients, seed=seed)
    rows = rows_of_accounts(tweets.account, sampled)
    kept = balance_by_hour(tweets.second[rows], tweets.positive[rows], alpha=alpha, seed=[seed, Stream.BALANCE])
    rows = rows[kept]
    train, test = split_test(rows, seed=seed)
    if not (len(train) and len(test)):
        raise DataError(
            f"{tweet_set.name}: with alpha={alpha}, {len(rows)} tweets of num_clients={num_clients} accounts are left, "
            "too few to train and to test on; use more clients or an alpha nearer to 0.5"
        )
    train, offsets, accounts = group_by_account(train, tweets.account)
    test = sort_by_length(test, np.diff(tweets.texts.offsets))
    return AccountSplit(train, offsets, tweets.second[train], accounts, test, num_clients - len(accounts))


def tweet_federation(tweet_set: TweetSet, split: AccountSplit) -> Federation:
    """Return the Federation in which the clients of the split have their tweets; label 1 is a positive tweet.

    >>> from fedlatest.data import generated_tweets, split_accounts
    >>> tweet_set = generated_tweets(20)
    >>> tweet_federation(tweet_set, split_accounts(tweet_set, num_clients=10)).num_clients
    10
    """
    tweets, texts = tweet_set.tweets, tweet_set.tweets.texts
    table, table_rows = vocabulary(tweet_set, np.concatenate([split.rows, split.test_rows]))
    width = max(int(np.diff(texts.offsets)[rows].max(initial=1)) for rows in (split.rows, split.test_rows))
    train, test = (Words(*pad_texts(texts, rows, table_rows, width=width)) for rows in (split.rows, split.test_rows))
    accounts = np.array(tweets.accounts, np.str_)
    return Federation(
        name=tweet_set.name,
        features=train,
        labels=tweets.positive[split.rows].astype(np.int32),
        test_features=test,
        test_labels=tweets.positive[split.test_rows].astype(np.int32),
        order=np.arange(len(split.rows), dtype=np.int32),
        offsets=split.offsets,
        names=accounts[split.accounts] if accounts.size else None,
        ids=split.accounts,
        table=table,
        second=split.second,
    )


def frequent_accounts(account: npt.NDArray[Any], *, more_tweets_than: int = TWEET_THRESHOLD) -> npt.NDArray[np.int64]:
    """Return the accounts with more than a number of tweets, given the account of each tweet.

    >>> frequent_accounts(np.array([2, 0, 2, 1, 2, 1]), more_tweets_than=1).tolist()
    [1, 2]
    """
    return np.flatnonzero(np.bincount(account) > more_tweets_than)


def sample_accounts(accounts: npt.NDArray[np.int64], *, num_clients: int, seed: int) -> npt.NDArray[np.int64]:
    """Return a random sample in increasing order; with the same seed, a smaller sample is a subset of a larger one.

    Args:
        accounts: The accounts to choose from.
        num_clients: Size of the sample.
        seed: Seed of the sample.
    """
    if not 1 <= num_clients <= len(accounts):
        raise ConfigError(
            f"num_clients={num_clients}: must be at least 1 and at most {len(accounts)}, "
            "the number of accounts with enough tweets"
        )
    rng = np.random.default_rng([seed, Stream.ACCOUNTS])
    return np.sort(rng.permutation(accounts)[:num_clients])


def rows_of_accounts(account: npt.NDArray[Any], accounts: npt.NDArray[np.int64]) -> Rows:
    """Return the tweets of some accounts in increasing order, given the account of each tweet.

    >>> rows_of_accounts(np.array([2, 0, 2, 1]), np.array([0, 2])).tolist()
    [0, 1, 2]
    """
    return np.flatnonzero(np.isin(account, accounts))


def positive_share(hour: int, alpha: float) -> float:
    """Return the share of positive tweets in an hour of the day: alpha at 0, 1 - alpha at 12, linear in between.

    >>> [positive_share(hour, 0.0) for hour in (0, 6, 12, 18)]
    [0.0, 0.5, 1.0, 0.5]
    """
    return alpha + (1 - 2 * alpha) * (1 - abs(hour - 12) / 12)


def balance_by_hour(
    second: npt.NDArray[np.int32], positive: npt.NDArray[np.bool_], *, alpha: float, seed: int | Sequence[int]
) -> npt.NDArray[np.bool_]:
    """Return bool[T]: which tweets to keep so that each hour of the day has its share of positive tweets.

    Of the tweets of all accounts in an hour, as many as possible are kept, chosen at random. An hour that has tweets of
    one label only keeps none, unless its share is entirely that label.

    Args:
        second: [T] time of each tweet, in seconds after midnight.
        positive: [T] sentiment of each tweet.
        alpha: Share of positive tweets at midnight, see `positive_share`.
        seed: Seed of the choice.
    """
    if not 0 <= alpha <= 1:
        raise ConfigError(f"alpha={alpha}: must be in [0, 1]")
    rng = np.random.default_rng(seed)
    kept = np.zeros(len(second), bool)
    for hour in range(24):
        share = positive_share(hour, alpha)
        in_hour = second // 3600 == hour
        positives, negatives = np.flatnonzero(in_hour & positive), np.flatnonzero(in_hour & ~positive)
        num_positive, num_negative = _largest_balanced(len(positives), len(negatives), share)
        kept[rng.permutation(positives)[:num_positive]] = True
        kept[rng.permutation(negatives)[:num_negative]] = True
    return kept


def split_test(rows: Rows, *, seed: int, share: float = TEST_SHARE) -> tuple[Rows, Rows]:
    """Return (training, test) tweets, each in increasing order; the test set is a random share of all tweets.

    Args:
        rows: The tweets of all clients.
        seed: Seed of the choice.
        share: Share of the test set.
    """
    rng = np.random.default_rng([seed, Stream.TEST])
    shuffled = rng.permutation(rows)
    num_test = round(share * len(rows))
    return np.sort(shuffled[num_test:]), np.sort(shuffled[:num_test])


def group_by_account(
    rows: Rows, account: npt.NDArray[Any]
) -> tuple[Rows, npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Return tweets grouped by account as (rows, offsets [N + 1], accounts [N]); accounts without a tweet are left out.

    >>> rows, offsets, accounts = group_by_account(np.array([0, 1, 3]), np.array([2, 0, 0, 2]))
    >>> rows.tolist(), offsets.tolist(), accounts.tolist()
    ([1, 0, 3], [0, 1, 3], [0, 2])
    """
    accounts, sizes = np.unique(account[rows], return_counts=True)
    order = np.argsort(account[rows], kind="stable")
    return rows[order], np.concatenate([[0], np.cumsum(sizes)]), accounts.astype(np.int32)


def sort_by_length(rows: Rows, lengths: npt.NDArray[np.int64]) -> Rows:
    """Return tweets from the shortest text to the longest, so that batches of neighbours need little padding.

    >>> sort_by_length(np.array([0, 1, 2]), np.array([3, 0, 3])).tolist()
    [1, 0, 2]
    """
    return rows[np.argsort(lengths[rows], kind="stable")]


def sleep_window(seconds: npt.ArrayLike, *, hours: float = 8.0) -> int:
    """Return the start of the `hours` of the day with the fewest tweets, in seconds after midnight.

    The window is [start, start + hours) and may include midnight. All starts with the fewest tweets form intervals; the
    result is the middle of the longest interval, and of the earliest if there are several.

    >>> sleep_window([12 * 3600]) / 3600  # one tweet at noon: the window is 20:00 to 4:00
    20.0
    """
    sent = np.asarray(seconds, np.int64)
    length = round(hours * 3600)
    if sent.ndim != 1 or (sent.size and not (sent.min() >= 0 and sent.max() < SECONDS_PER_DAY)):
        raise DataError("seconds: must be times of day in [0, 86400)")
    if not 0 < length < SECONDS_PER_DAY:
        raise DataError(f"hours={hours}: must be above 0 and below 24")
    if sent.size == 0:
        return 0
    # The window contains a tweet at s if start is in (s - length, s]. The count changes at these points only.
    starts = np.unique(np.concatenate([(sent - length + 1) % SECONDS_PER_DAY, (sent + 1) % SECONDS_PER_DAY]))
    counts = _num_in_windows(np.sort(sent), starts, length)
    lengths = np.diff(np.append(starts, starts[0] + SECONDS_PER_DAY))
    return _middle_of_longest_run(starts, lengths, counts == counts.min())


def _largest_balanced(num_positive: int, num_negative: int, share: float) -> tuple[int, int]:
    """Return how many of both labels to keep at most, so that the positives are a share of all, rounded.

    >>> _largest_balanced(10, 10, 0.5), _largest_balanced(10, 10, 0.25)
    ((10, 10), (3, 10))
    >>> _largest_balanced(10, 10, 1.0), _largest_balanced(0, 10, 0.5)
    ((10, 0), (0, 0))
    """
    if share <= 0:
        return 0, num_negative
    if share >= 1:
        return num_positive, 0
    if num_positive * (1 - share) > share * num_negative:
        return min(num_positive, round(num_negative * share / (1 - share))), num_negative
    return num_positive, min(num_negative, round(num_positive * (1 - share) / share))


def _num_in_windows(sent: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.int64]:
    """Return the number of tweets in each window [start, start + length), which may include midnight."""
    two_days = np.concatenate([sent, sent + SECONDS_PER_DAY])
    return np.searchsorted(two_days, starts + length) - np.searchsorted(two_days, starts)


def _middle_of_longest_run(
    starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], marked: npt.NDArray[np.bool_]
) -> int:
    """Return the middle of the longest run of marked intervals, which may include midnight."""
    if marked.all():
        return 0
    first = int(np.flatnonzero(~marked)[0])  # start at an interval that is not marked, so that no run is cut in two
    order = (np.arange(len(starts)) + first) % len(starts)
    best_start, best_length, run_start, run_length = 0, 0, 0, 0
    for i in order:
        if not marked[i]:
            run_length = 0
            continue
        if run_length == 0:
            run_start = int(starts[i])
        run_length += int(lengths[i])
        if (run_length, -run_start) > (best_length, -best_start):
            best_start, best_length = run_start, run_length
    return (best_start + (best_length - 1) // 2) % SECONDS_PER_DAY
