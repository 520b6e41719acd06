"""A TweetSet: tweets and the vectors of their words, no clients yet."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.data.progress import ProgressCallback, about
from fedlatest.data.sentiment140.files import NUM_TWEETS, cached_tweets, cached_vectors, fetch_files, find_files
from fedlatest.data.sentiment140.parsing import Texts, Tweets
from fedlatest.errors import ConfigError
from fedlatest.paths import data_folder


class TweetSet(NamedTuple):
    """Tweets, and a vector for each of their words: zeros where it is unknown."""

    name: str
    tweets: Tweets
    vectors: npt.NDArray[np.float32]  # [words, 25] in the order of tweets.texts.words


def load_sentiment140(folder: Path | str | None = None, *, on_progress: ProgressCallback | None = None) -> TweetSet:
    """Sentiment140 with GloVe's 25-dimensional Twitter vectors.

    `folder` (or the environment's FEDLATEST_DATA) holds the files as they are published, packed or not, or folders
    sentiment140/ and glove/ with them; without either they are downloaded once and checked. What was read is cached.
    The set is called sentiment140 if all 1.6 million tweets are there, else like the file. `on_progress` hears what is
    being done, how many bytes of it are done, and of how many (None if that is unknown).
    """
    named = data_folder(folder)
    tweets_file, vectors_file = find_files(named) if named else fetch_files(on_progress=on_progress)
    tweets = cached_tweets(tweets_file, told=about(on_progress, "reading tweets"))
    told = about(on_progress, "reading word vectors")
    return TweetSet(
        _name(tweets_file.path, tweets), tweets, cached_vectors(vectors_file, tweets.texts.words, told=told)
    )


def _name(path: Path, tweets: Tweets) -> str:
    """The data set's, if it is all there; else the file's, so that runs on other data are not taken for runs on it."""
    whole = len(tweets.positive) + tweets.num_malformed == NUM_TWEETS
    return "sentiment140" if whole else path.name.split(".")[0]


Unsigned = npt.NDArray[np.unsignedinteger[Any]]


class Vocabulary(NamedTuple):
    """The vectors of the known words, and where in the table each word of the texts is."""

    table: npt.NDArray[np.float32]  # [V + 1, 25], table[0] = 0
    number: Unsigned  # [words] row of the table; 0 for a word without a vector


def vocabulary(tweet_set: TweetSet, rows: npt.NDArray[Any] | None = None) -> Vocabulary:
    """The words with a vector, of all tweets or of some; numbers are of the smallest type that holds them.

    With `rows` a word that occurs in none of them has number 0.
    """
    known = np.asarray(tweet_set.vectors.any(axis=1))
    if rows is not None:
        occurs = np.zeros(len(known), np.bool_)
        occurs[_words_of(tweet_set.tweets.texts, rows)[0]] = True
        known &= occurs
    table = np.concatenate([np.zeros((1, tweet_set.vectors.shape[1]), np.float32), tweet_set.vectors[known]])
    number = np.where(known, np.cumsum(known), 0).astype(np.min_scalar_type(len(table) - 1))
    return Vocabulary(table, number)


def padded(
    texts: Texts, rows: npt.NDArray[Any], number: Unsigned, *, width: int | None = None
) -> tuple[Unsigned, npt.NDArray[np.int32]]:
    """([rows, width] word numbers, filled up with 0; [rows] how many are words) of some texts.

    Without a `width`, it is the number of words of the longest; a text without words takes a column all the same.

    >>> texts = Texts(["a", "b", "c"], np.array([2, 0, 1]), np.array([0, 2, 2, 3]))
    >>> ids, lengths = padded(texts, np.array([0, 1]), number=np.array([5, 6, 7], np.uint8))
    >>> ids.tolist(), lengths.tolist()
    ([[7, 5], [0, 0]], [2, 0])
    """
    words, lengths = _words_of(texts, rows)
    longest = int(lengths.max(initial=1))
    if width is not None and width < longest:
        raise ConfigError(f"width={width}: the longest text takes {longest}; give at least that")
    ids = np.zeros((len(rows), width or longest), number.dtype)
    ids[np.arange(ids.shape[1]) < lengths[:, None]] = number[words]
    return ids, lengths


def _words_of(texts: Texts, rows: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """The words of some texts one after the other, and how many each has."""
    starts, lengths = texts.offsets[rows], np.diff(texts.offsets)[rows]
    ends = np.cumsum(lengths)
    places = np.arange(lengths.sum()) + np.repeat(starts - (ends - lengths), lengths)
    return texts.ids[places], lengths.astype(np.int32)
