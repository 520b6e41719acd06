"""Tweets and word vectors as they were read before: parsing the full file takes half a minute, loading it a second."""

import numpy as np
import numpy.typing as npt

from fedlatest.data.cache import Arrays, Source, cached, pack, unpack
from fedlatest.data.glove import DIMENSIONS, read_glove
from fedlatest.data.listener import Told
from fedlatest.data.sentiment140 import Tweets, read_tweets
from fedlatest.data.tweets import Texts
from fedlatest.digest import digest

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
