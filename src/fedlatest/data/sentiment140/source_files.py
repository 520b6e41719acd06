"""The files of Sentiment140 and of the GloVe Twitter vectors: found or downloaded, parsed once and cached."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedlatest.data.cache import Arrays, HashedFile, cached, hash_file, pack_strings, unpack_strings
from fedlatest.data.download import fetch
from fedlatest.data.progress import BytesCallback, ProgressCallback, for_task
from fedlatest.data.sentiment140.glove import DIMENSIONS, check_glove, read_glove
from fedlatest.data.sentiment140.parsing import Texts, Tweets, read_tweets
from fedlatest.digest import digest
from fedlatest.errors import DataError
from fedlatest.paths import cache_folder

TWEETS_URL = "https://cs.stanford.edu/people/alecmgo/trainingandtestdata.zip"
VECTORS_URL = "https://nlp.stanford.edu/data/glove.twitter.27B.zip"
NUM_TWEETS = 1_600_000  # rows of the original file
FORMAT = 2  # increase when parsing changes, so that cached results of older versions are not used

# Patterns of file names, the most specific first.
TWEET_FILES = ("trainingandtestdata.zip", "training.1600000*.csv", "training.1600000*.csv.gz", "*.csv", "*.csv.gz")
VECTOR_FILES = ("glove.twitter.27B.25d.txt", "glove.twitter.27B.25d.txt.gz", "glove.twitter.27B.zip")
IGNORED_PREFIXES = ("testdata.manual", ".")  # the small test set of Sentiment140, which has a third label; hidden files


def find_files(folder: Path) -> tuple[HashedFile, HashedFile]:
    """Return the files of the tweets and of the word vectors in a folder or its subfolders sentiment140/ and glove/."""
    if not folder.is_dir():
        raise DataError(f"data={folder}: no such folder; give the folder that contains sentiment140/ and glove/")
    tweets = _find(folder, "sentiment140", TWEET_FILES, "tweets")
    return hash_file(tweets), hash_file(_find(folder, "glove", VECTOR_FILES, "word vectors"))


def fetch_files(*, on_progress: ProgressCallback | None = None) -> tuple[HashedFile, HashedFile]:
    """Return both files, downloaded if they are not in the cache; a download is read completely once to check it."""

    def check_tweets(path: Path) -> None:
        tweets = cached_tweets(hash_file(path), on_progress=for_task(on_progress, "reading tweets"))
        num_rows = len(tweets.positive) + tweets.num_malformed
        if num_rows != NUM_TWEETS:
            raise DataError(f"{path.name}: contains {num_rows} tweets, expected {NUM_TWEETS}")

    def check_vectors(path: Path) -> None:
        check_glove(path, on_progress=for_task(on_progress, "checking word vectors"))

    cache = cache_folder()
    tweets = fetch(
        TWEETS_URL,
        cache / "sentiment140",
        check=check_tweets,
        on_progress=for_task(on_progress, "downloading tweets"),
        also_needed=f" and {VECTORS_URL}",
    )
    vectors = fetch(
        VECTORS_URL,
        cache / "glove",
        check=check_vectors,
        on_progress=for_task(on_progress, "downloading word vectors"),
        also_needed=f" and {TWEETS_URL}",
    )
    return tweets, vectors


def cached_tweets(file: HashedFile, *, on_progress: BytesCallback | None = None) -> Tweets:
    """Return the result of `read_tweets`, from the cache if a file with this content was read before."""
    key = f"tweets {FORMAT} {file.checksum}"
    return _unpack(cached("tweets", key, lambda: _pack(read_tweets(file.path, on_progress=on_progress))))


def cached_vectors(
    file: HashedFile, words: list[str], *, on_progress: BytesCallback | None = None
) -> npt.NDArray[np.float32]:
    """Return the result of `read_glove`, from the cache if it was called for this content and these words before.

    Args:
        file: The file of word vectors.
        words: The words whose vectors are returned.
        on_progress: Called with the number of bytes read and the total.
    """
    key = f"vectors {FORMAT} {file.checksum} {digest(*pack_strings(words))}"

    def read() -> Arrays:
        vectors = read_glove(file.path, words, on_progress=on_progress)
        known = np.flatnonzero(vectors.any(axis=1)).astype(np.int32)
        return {"known": known, "vectors": vectors[known]}

    entry = cached("vectors", key, read)
    vectors = np.zeros((len(words), DIMENSIONS), np.float32)
    vectors[entry["known"]] = entry["vectors"]
    return vectors


def _find(folder: Path, subfolder: str, patterns: Sequence[str], content: str) -> Path:
    for place in (folder / subfolder, folder):
        for pattern in patterns:
            found = sorted(path for path in place.glob(pattern) if not path.name.startswith(IGNORED_PREFIXES))
            if len(found) > 1:
                names = ", ".join(path.name for path in found)
                raise DataError(f"data={place}: {names} could all be the {content}; keep only one of them there")
            if found:
                return found[0]
    raise DataError(
        f"data={folder}: contains no {content}; expected {', '.join(patterns)} there or in its subfolder {subfolder}/"
    )


def _pack(tweets: Tweets) -> Arrays:
    words, word_lengths = pack_strings(tweets.texts.words)
    accounts, account_lengths = pack_strings(tweets.accounts)
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
        "first_malformed": pack_strings([tweets.first_malformed])[0],
    }


def _unpack(arrays: Arrays) -> Tweets:
    offsets = np.concatenate([[0], np.cumsum(arrays["lengths"], dtype=np.int64)])
    return Tweets(
        arrays["positive"],
        arrays["account"],
        arrays["second"],
        Texts(unpack_strings(arrays["words"], arrays["word_lengths"]), arrays["ids"], offsets),
        unpack_strings(arrays["accounts"], arrays["account_lengths"]),
        int(arrays["num_malformed"]),
        arrays["first_malformed"].tobytes().decode(),
    )
