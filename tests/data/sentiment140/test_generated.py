"""Generated tweets: the properties of the real ones, and a sentiment that can be learned, but not perfectly."""

import csv
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from fedlatest import ConfigError
from fedlatest.data import generated_tweets, split_accounts, write_generated
from fedlatest.data.federation import SECONDS_PER_DAY
from fedlatest.data.sentiment140.accounts import frequent_accounts, sleep_window
from fedlatest.data.sentiment140.parsing import NAME, URL


def test_generated_files(tmp_path: Path) -> None:
    tweets, vectors = write_generated(tmp_path, 20, seed=1)
    with tweets.open(encoding="latin-1", newline="") as file:
        rows = list(csv.reader(file))
    assert {len(row) for row in rows} == {6}
    assert {row[0] for row in rows} == {"0", "4"}
    assert len({row[4] for row in rows}) == 20
    texts = "\n".join(row[5] for row in rows)
    for piece in ("@", "http://", "www.", "&amp;", "&lt;", "\xe9", '"', "!!!"):
        assert piece in texts
    assert {len(line.split(" ")) for line in vectors.read_text().splitlines()} == {26}
    before = tweets.read_bytes(), vectors.read_bytes()
    write_generated(tmp_path, 20, seed=1)
    assert (tweets.read_bytes(), vectors.read_bytes()) == before
    write_generated(tmp_path, 20, seed=2)
    assert tweets.read_bytes() != before[0]


def test_properties_of_the_tweets() -> None:
    """Most accounts have more than 40 tweets, some fewer; there are names, URLs, empty tweets and unknown words."""
    data = generated_tweets()
    tweets = data.tweets
    assert len(tweets.accounts) == 120
    assert 80 <= len(frequent_accounts(tweets.account)) < 110
    assert tweets.num_malformed == 0
    assert 0.45 < tweets.positive.mean() < 0.55
    assert {NAME, URL} <= set(tweets.texts.words)
    assert 300 < len(tweets.texts.words) < 1000
    lengths = np.diff(tweets.texts.offsets)
    assert 0 < (lengths == 0).mean() < 0.05
    known = np.asarray(data.vectors.any(axis=1))[tweets.texts.ids]
    assert 0.8 < known.mean() < 0.99


def test_accounts_have_a_sleep_window() -> None:
    """In the eight hours with the fewest tweets, accounts send less than 5% of their tweets, on average."""
    tweets = generated_tweets(30, seed=2).tweets
    asleep, starts = [], []
    for number in range(30):
        sent = tweets.second[tweets.account == number]
        starts.append(sleep_window(sent))
        asleep.append(((sent - starts[-1]) % SECONDS_PER_DAY < 8 * 3600).mean())
    assert np.mean(asleep) < 0.05
    assert (
        len({start // (3 * 3600) for start in starts}) >= 5
    )  # of eight 3-hour parts of the day, so there are many time zones


@pytest.mark.parametrize("seed", [0, 1])
def test_sentiment_can_be_learned(seed: int) -> None:
    """Logistic regression on the sum of the word vectors of a tweet, evaluated on the test tweets."""
    data = generated_tweets(seed=seed)
    texts = data.tweets.texts
    split = split_accounts(data, num_clients=80, alpha=0.5)

    def features(rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return np.stack([data.vectors[texts.ids[texts.offsets[row] : texts.offsets[row + 1]]].sum(0) for row in rows])

    model = LogisticRegression(max_iter=1000).fit(features(split.rows), data.tweets.positive[split.rows])
    accuracy = model.score(features(split.test_rows), data.tweets.positive[split.test_rows])
    assert 0.72 < accuracy < 0.88


def test_no_accounts_is_an_error() -> None:
    with pytest.raises(ConfigError, match="num_accounts=0"):
        generated_tweets(0)
