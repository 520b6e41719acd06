"""From data and values to a federation and a specification."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from fedlatest.availability.patterns import Windows
from fedlatest.data import AccountSplit, TweetSet, generated_tweets, load_digits, tweet_federation
from fedlatest.data.sentiment140.accounts import sleep_window
from fedlatest.data.sentiment140.parsing import Tweets, encode
from fedlatest.experiments import RECIPES, FederationBuilder


@pytest.fixture(scope="module")
def tweets() -> TweetSet:
    return generated_tweets(30)


def test_experiments_with_equal_partitions_share_a_federation(tweets: TweetSet) -> None:
    builder = FederationBuilder(tweets)

    def federation(*overrides: str) -> object:
        [experiment] = RECIPES["tweets"].experiments(["num_clients=20", *overrides])
        return experiment.spec(builder).federation

    assert federation("algorithm=fedavg", "rounds_per_day=24", "learning_rate=0.1") is federation()
    assert federation("alpha=0.5") is not federation()
    assert federation("num_clients=19") is not federation()
    assert federation("partition_seed=1") is not federation()


def test_sleep_windows_are_computed_from_the_training_tweets(tweets: TweetSet) -> None:
    """As in the paper: after dropping tweets by the hour, and without the test tweets."""
    [experiment] = RECIPES["tweets"].experiments(["num_clients=20", "window_hours=6"])
    spec = experiment.spec(FederationBuilder(tweets))
    federation = spec.federation
    assert federation.second is not None
    assert isinstance(spec.availability, Windows)
    for client in range(20):
        own = federation.second[federation.offsets[client] : federation.offsets[client + 1]]
        assert spec.availability.start[client] == sleep_window(own, hours=6)
    assert (np.asarray(spec.availability.length) == 6 * 3600).all()


def test_accounts_without_training_tweets_are_reported() -> None:
    """Both accounts tweet at noon, when alpha = 0 keeps only positive tweets; the second account has none."""
    positive = np.repeat([True, False], 50)
    account = np.repeat([0, 1], 50).astype(np.int32)
    texts = encode(["good"] * 50 + ["bad"] * 50)
    noon = np.full(100, 12 * 3600, np.int32)
    tweets = TweetSet("two", Tweets(positive, account, noon, texts, ["a", "b"], 0), np.ones((2, 25), np.float32))
    builder = FederationBuilder(tweets)
    [experiment] = RECIPES["tweets"].experiments(["num_clients=2", "participation=1.0"])
    spec = experiment.spec(builder)
    assert spec.federation.num_clients == spec.availability.num_clients == spec.cohort_size == 1
    assert builder.notes == ["1 of 2 accounts have no training tweet left and are not used as clients"]


def test_malformed_rows_are_reported(tweets: TweetSet) -> None:
    broken = tweets._replace(tweets=tweets.tweets._replace(num_malformed=3, first_malformed="row 7: ?"))
    builder = FederationBuilder(broken)
    [experiment] = RECIPES["tweets"].experiments(["num_clients=20"])
    [note] = experiment.spec(builder).notes
    total = 3 + len(tweets.tweets.positive)
    assert note == f"generated-tweets: 3 of {total} rows are malformed and were skipped (first row 7: ?)"
    assert builder.notes == [note]


def test_federation_of_four_tweets() -> None:
    """Words with a vector get numbers 1, 2, ... in the order of the texts; 0 is any other word, and padding.

    Tweets: 0 "sun rain" (known, known), 1 "fog sun" (unknown, known), 2 "", 3 "rain" (the test set).
    """
    texts = encode(["sun rain", "fog sun", "", "rain"])
    assert texts.words == ["sun", "rain", "fog"]
    vectors = np.array([[1, 1], [2, 2], [0, 0]], np.float32)
    positive, account = np.array([True, False, True, False]), np.array([7, 3, 7, 3], np.int32)
    tweets = Tweets(positive, account, np.arange(4, dtype=np.int32), texts, [], 0)
    split = AccountSplit(
        rows=np.array([1, 0, 2]), offsets=np.array([0, 1, 3]), second=np.array([1, 0, 2], np.int32),
        accounts=np.array([3, 7], np.int32), test_rows=np.array([3]), num_dropped=0,
    )  # fmt: skip
    federation = tweet_federation(TweetSet("by hand", tweets, vectors), split)
    assert federation.table is not None
    assert federation.table.tolist() == [[0, 0], [1, 1], [2, 2]]
    assert federation.features.ids.tolist() == [[0, 1], [1, 2], [0, 0]]
    assert federation.features.lengths.tolist() == [2, 2, 0]
    assert federation.labels.tolist() == [0, 1, 1]
    assert federation.test_features.ids.tolist() == [[2, 0]]
    assert federation.ids.tolist() == [3, 7]
    assert federation.client_labels().tolist() == [0, 1]


def test_clients_have_the_delays_of_the_phones_whose_availability_they_follow(tmp_path: Path) -> None:
    """Phone p is available in the first p of 9 hours and takes p seconds; phone 0 is never available."""
    lines = [f"{phone},0,{phone * 3600}" for phone in range(1, 10)]
    (tmp_path / "trace.csv").write_text("\n".join(["client,start,end", *lines]))
    lines = [f"{phone},{phone}" for phone in (3, 9, 1, 0, 2, 8, 7, 4, 6, 5)]  # in another order
    (tmp_path / "delays.csv").write_text("\n".join(["client,training_seconds", *lines]))
    [experiment] = RECIPES["digits"].experiments(
        ["num_clients=30", "availability=trace", f"trace={tmp_path / 'trace.csv'}", "devices=sample",
         "drop_absent=true", "round_length=3600", "day_length=32400", f"delays={tmp_path / 'delays.csv'}"]
    )  # fmt: skip
    spec = experiment.spec(FederationBuilder(load_digits()))
    assert spec.timing is not None
    seconds = spec.timing.delays.milliseconds(0, jnp.arange(30), 0) // 1000
    hours = spec.availability.table(9).sum(axis=0)
    assert hours.tolist() == seconds.tolist()
    assert set(hours.tolist()) == set(range(1, 10))
