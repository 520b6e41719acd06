"""A TweetSet: tweets and the vectors of their words, before the tweets are divided among clients."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.data.progress import ProgressCallback, for_task
from fedlatest.data.sentiment140.parsing import Texts, Tweets
from fedlatest.data.sentiment140.source_files import (
    NUM_TWEETS,
    cached_tweets,
    cached_vectors,
    fetch_files,
    find_files,
)
from fedlatest.errors import ConfigError
from fedlatest.paths import data_folder

Unsigned = npt.NDArray[np.unsignedinteger[Any]]


class TweetSet(NamedTuple):
    """Tweets and a vector for each of their words.

    Args:
        name: Name of the data set.
        tweets: The tweets.
        vectors: [words, 25] vectors in the order of `tweets.texts.words`; zeros for unknown words.
    """

    name: str
    tweets: Tweets
    vectors: npt.NDArray[np.float32]


class Vocabulary(NamedTuple):
    """The vectors of the known words, and the position of each word of the texts in this table."""

    table: npt.NDArray[np.float32]  # [V + 1, 25], table[0] = 0
    table_rows: Unsigned  # [words] row of each word in the table; 0 for a word without a vector


def load_sentiment140(folder: Path | str | None = None, *, on_progress: ProgressCallback | None = None) -> TweetSet:
    """Return Sentiment140 with the 25-dimensional GloVe Twitter vectors.

    The result is called sentiment140 if it contains all 1.6 million tweets; otherwise it has the name of the file, so
    that runs on other data are not mistaken for runs on Sentiment140. Parsed files are cached.

    Args:
        folder: Folder with the published files, packed or not, or with subfolders sentiment140/ and glove/. By default
            the environment variable FEDLATEST_DATA; if that is not set, the files are downloaded once and checked.
        on_progress: Called with the current task, the number of bytes done, and the total (None if unknown).
    """
    chosen = data_folder(folder)
    tweets_file, vectors_file = find_files(chosen) if chosen else fetch_files(on_progress=on_progress)
    tweets = cached_tweets(tweets_file, on_progress=for_task(on_progress, "reading tweets"))
    vectors = cached_vectors(
        vectors_file, tweets.texts.words, on_progress=for_task(on_progress, "reading word vectors")
    )
    is_complete = len(tweets.positive) + tweets.num_malformed == NUM_TWEETS
    return TweetSet("sentiment140" if is_complete else tweets_file.path.name.split(".")[0], tweets, vectors)


def vocabulary(tweet_set: TweetSet, rows: npt.NDArray[Any] | None = None) -> Vocabulary:
    """Return the words with a vector, with row numbers in the smallest unsigned type.

    If `rows` is given, only the words of these tweets are included, and all others have row 0.
    """
    known = np.asarray(tweet_set.vectors.any(axis=1))
    if rows is not None:
        occurs = np.zeros(len(known), np.bool_)
        occurs[_words_of(tweet_set.tweets.texts, rows)[0]] = True
        known &= occurs
    table = np.concatenate([np.zeros((1, tweet_set.vectors.shape[1]), np.float32), tweet_set.vectors[known]])
    table_rows = np.where(known, np.cumsum(known), 0).astype(np.min_scalar_type(len(table) - 1))
    return Vocabulary(table, table_rows)


def pad_texts(
    texts: Texts, rows: npt.NDArray[Any], table_rows: Unsigned, *, width: int | None = None
) -> tuple[Unsigned, npt.NDArray[np.int32]]:
    """Return some texts as rows of a table of word vectors, padded with 0 to equal lengths.

    Args:
        texts: All texts.
        rows: The texts to return.
        table_rows: [words] table row of each word, from `vocabulary`.
        width: Length of the padded texts; by default that of the longest, and at least 1.

    Returns:
        ([rows, width] table rows, [rows] number of words).

    >>> texts = Texts(["a", "b", "c"], np.array([2, 0, 1]), np.array([0, 2, 2, 3]))
    >>> ids, lengths = pad_texts(texts, np.array([0, 1]), np.array([5, 6, 7], np.uint8))
    >>> ids.tolist(), lengths.tolist()
    ([[7, 5], [0, 0]], [2, 0])
    """
    words, lengths = _words_of(texts, rows)
    longest = int(lengths.max(initial=1))
    if width is not None and width < longest:
        raise ConfigError(f"width={width}: must be at least {longest}, the length of the longest text")
    ids = np.zeros((len(rows), width or longest), table_rows.dtype)
    ids[np.arange(ids.shape[1]) < lengths[:, None]] = table_rows[words]
    return ids, lengths


def _words_of(texts: Texts, rows: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return the concatenated words of some texts, and the number of words of each."""
    starts, lengths = texts.offsets[rows], np.diff(texts.offsets)[rows]
    ends = np.cumsum(lengths)
    positions = np.arange(lengths.sum()) + np.repeat(starts - (ends - lengths), lengths)
    return texts.ids[positions], lengths.astype(np.int32)
