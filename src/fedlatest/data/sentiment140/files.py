"""The files of Sentiment140 and of GloVe's Twitter vectors: found in a folder, or downloaded."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedlatest.data.cache import Arrays, Source, cached, pack, source, unpack
from fedlatest.data.download import fetch
from fedlatest.data.progress import ProgressCallback, Told, about
from fedlatest.data.sentiment140.glove import DIMENSIONS, check_glove, read_glove
from fedlatest.data.sentiment140.parsing import Texts, Tweets, read_tweets
from fedlatest.digest import digest
from fedlatest.errors import DataError
from fedlatest.paths import cache_folder

TWEETS_URL = "https://cs.stanford.edu/people/alecmgo/trainingandtestdata.zip"
VECTORS_URL = "https://nlp.stanford.edu/data/glove.twitter.27B.zip"
NUM_TWEETS = 1_600_000  # rows of the original file

# Names, the most telling first.
TWEETS = ("trainingandtestdata.zip", "training.1600000*.csv", "training.1600000*.csv.gz", "*.csv", "*.csv.gz")
VECTORS = ("glove.twitter.27B.25d.txt", "glove.twitter.27B.25d.txt.gz", "glove.twitter.27B.zip")
SOMETHING_ELSE = ("testdata.manual", ".")  # Sentiment140's small test set, which has a third label; hidden files


def find_files(folder: Path) -> tuple[Source, Source]:
    """The tweets and the word vectors in a folder, or in its folders sentiment140/ and glove/."""
    if not folder.is_dir():
        raise DataError(f"data={folder}: no such folder; name the one that holds sentiment140/ and glove/")
    tweets = _find(folder, "sentiment140", TWEETS, "tweets")
    return source(tweets), source(_find(folder, "glove", VECTORS, "word vectors"))


def fetch_files(*, on_progress: ProgressCallback | None = None) -> tuple[Source, Source]:
    """Both files as downloaded, now or before; what is downloaded is read to its end once before it is believed."""

    def check_tweets(path: Path) -> None:
        tweets = cached_tweets(source(path), told=about(on_progress, "reading tweets"))
        num_rows = len(tweets.positive) + tweets.num_malformed
        if num_rows != NUM_TWEETS:
            raise DataError(f"{path.name}: holds {num_rows} tweets, expected {NUM_TWEETS}")

    def check_vectors(path: Path) -> None:
        check_glove(path, told=about(on_progress, "checking word vectors"))

    cache, told = cache_folder(), about(on_progress, "downloading tweets")
    tweets = fetch(TWEETS_URL, cache / "sentiment140", check=check_tweets, told=told, beside=f" and {VECTORS_URL}")
    told = about(on_progress, "downloading word vectors")
    return tweets, fetch(VECTORS_URL, cache / "glove", check=check_vectors, told=told, beside=f" and {TWEETS_URL}")


def _find(folder: Path, below: str, patterns: Sequence[str], what: str) -> Path:
    for place in (folder / below, folder):
        for pattern in patterns:
            found = sorted(path for path in place.glob(pattern) if not path.name.startswith(SOMETHING_ELSE))
            if len(found) > 1:
                names = ", ".join(path.name for path in found)
                raise DataError(f"data={place}: {names} could all be the {what}; leave one of them there")
            if found:
                return found[0]
    raise DataError(f"data={folder}: holds no {what}; expected {', '.join(patterns)} there or in its folder {below}/")


FORMAT = 2  # another number when reading or cleaning changes: what is cached under an old one is not used


def cached_tweets(file: Source, *, told: Told | None = None) -> Tweets:
    """`read_tweets`, once for each content."""
    key = f"tweets {FORMAT} {file.checksum}"
    return _unpacked(cached("tweets", key, lambda: _packed(read_tweets(file.path, told=told))))


def cached_vectors(file: Source, words: list[str], *, told: Told | None = None) -> npt.NDArray[np.float32]:
    """`read_glove`, once for each content and list of words; of the words, those that have a vector are kept."""
    key = f"vectors {FORMAT} {file.checksum} {digest(*pack(words))}"

    def read() -> Arrays:
        vectors = read_glove(file.path, words, told=told)
        known = np.flatnonzero(vectors.any(axis=1)).astype(np.int32)
        return {"known": known, "vectors": vectors[known]}

    kept = cached("vectors", key, read)
    vectors = np.zeros((len(words), DIMENSIONS), np.float32)
    vectors[kept["known"]] = kept["vectors"]
    return vectors


def _packed(tweets: Tweets) -> Arrays:
    words, word_lengths = pack(tweets.texts.words)
    accounts, account_lengths = pack(tweets.accounts)
    return {
        "positive": tweets.positive,
        "account": tweets.account,
        "second": tweets.second,
        "ids": tweets.texts.ids,
        "lengths": np.diff(tweets.texts.offsets).astype(np.int32),
        "words": words,
        "word_lengths": word_lengths,
        "accounts": accounts,
        "account_lengths": account_lengths,
        "num_malformed": np.array(tweets.num_malformed),
        "first_malformed": pack([tweets.first_malformed])[0],
    }


def _unpacked(arrays: Arrays) -> Tweets:
    offsets = np.concatenate([[0], np.cumsum(arrays["lengths"], dtype=np.int64)])
    return Tweets(
        arrays["positive"],
        arrays["account"],
        arrays["second"],
        Texts(unpack(arrays["words"], arrays["word_lengths"]), arrays["ids"], offsets),
        unpack(arrays["accounts"], arrays["account_lengths"]),
        int(arrays["num_malformed"]),
        arrays["first_malformed"].tobytes().decode(),
    )
