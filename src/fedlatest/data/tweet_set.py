"""A TweetSet: tweets and the vectors of their words, no clients yet."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.data.listener import Listener, about
from fedlatest.data.sentiment140 import Tweets
from fedlatest.data.tweet_cache import cached_tweets, cached_vectors
from fedlatest.data.tweet_files import NUM_TWEETS, fetch_files, find_files
from fedlatest.places import named_folder


class TweetSet(NamedTuple):
    """Tweets, and a vector for each of their words: zeros where it is unknown."""

    name: str
    tweets: Tweets
    vectors: npt.NDArray[np.float32]  # [words, 25] in the order of tweets.texts.words


def load_sentiment140(folder: Path | str | None = None, *, listener: Listener | None = None) -> TweetSet:
    """Sentiment140 with GloVe's 25-dimensional Twitter vectors.

    `folder` (or the environment's FEDLATEST_DATA) holds the files as they are published, packed or not, or folders
    sentiment140/ and glove/ with them; without either they are downloaded once and checked. What was read is cached.
    The set is called sentiment140 if all 1.6 million tweets are there, else like the file. `listener` hears what is
    being done, how many bytes of it are done, and of how many (None if that is unknown).
    """
    named = named_folder(folder)
    tweets_file, vectors_file = find_files(named) if named else fetch_files(listener=listener)
    tweets = cached_tweets(tweets_file, told=about(listener, "reading tweets"))
    told = about(listener, "reading word vectors")
    return TweetSet(
        _name(tweets_file.path, tweets), tweets, cached_vectors(vectors_file, tweets.texts.words, told=told)
    )


def _name(path: Path, tweets: Tweets) -> str:
    """The data set's, if it is all there; else the file's, so that runs on other data are not taken for runs on it."""
    whole = len(tweets.positive) + tweets.num_malformed == NUM_TWEETS
    return "sentiment140" if whole else path.name.split(".")[0]
