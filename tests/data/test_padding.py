"""Word numbers in rectangles: by hand, and against one text at a time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlatest import ConfigError
from fedlatest.data import TweetSet, padded, vocabulary
from fedlatest.data.sentiment140.parsing import Texts, Tweets, encode


def tweet_set(texts: Texts, vectors: list[float]) -> TweetSet:
    """Vectors of one number."""
    column = np.zeros(len(texts.offsets) - 1, np.int32)
    table = np.array(vectors, np.float32).reshape(-1, 1)
    return TweetSet("test", Tweets(column.astype(bool), column, column, texts, ["ann"], 0), table)


def test_by_hand() -> None:
    """The cat has no vector: the = 1, dog = 2 and everything else 0."""
    texts = encode(["the cat", "", "dog the the", "cat"])
    data = tweet_set(texts, [0.5, 0, -1])
    table, number = vocabulary(data)
    assert table.tolist() == [[0], [0.5], [-1]]
    assert number.tolist() == [1, 0, 2]
    ids, lengths = padded(texts, np.array([2, 1, 0, 2]), number)
    assert ids.tolist() == [[2, 1, 1], [0, 0, 0], [1, 0, 0], [2, 1, 1]]
    assert lengths.tolist() == [3, 0, 2, 3]
    assert ids.dtype == np.dtype(np.uint8)
    assert lengths.dtype == np.dtype(np.int32)


def test_words_of_some_tweets_alone() -> None:
    texts = encode(["the cat", "dog"])
    table, number = vocabulary(tweet_set(texts, [0.5, 0, -1]), rows=np.array([1]))
    assert table.tolist() == [[0], [-1]]
    assert number.tolist() == [0, 0, 1]


def test_width() -> None:
    texts = encode(["a b", ""])
    number = np.array([1, 2], np.uint8)
    ids, _ = padded(texts, np.array([0]), number, width=4)
    assert ids.tolist() == [[1, 2, 0, 0]]
    ids, lengths = padded(texts, np.array([1]), number)  # one empty text
    assert (ids.tolist(), lengths.tolist()) == ([[0]], [0])
    assert padded(texts, np.zeros(0, int), number)[0].shape == (0, 1)
    for width in (1, 0):
        with pytest.raises(ConfigError, match=f"width={width}: the longest text takes 2"):
            padded(texts, np.array([0]), number, width=width)


@pytest.mark.parametrize(
    ("num_words", "dtype"), [(255, "uint8"), (256, "uint16"), (65535, "uint16"), (65536, "uint32")]
)
def test_the_smallest_type_that_holds_the_numbers(num_words: int, dtype: str) -> None:
    """V words need the numbers 0 .. V."""
    texts = Texts([str(word) for word in range(num_words)], np.zeros(0, np.int32), np.zeros(1, np.int64))
    table, number = vocabulary(tweet_set(texts, [1.0] * num_words))
    assert len(table) == num_words + 1
    assert number.dtype == np.dtype(dtype)
    assert number[-1] == num_words


@given(
    texts=st.lists(st.lists(st.sampled_from("abcde"), max_size=4), min_size=1, max_size=8),
    known=st.lists(st.booleans(), min_size=5, max_size=5),
    data=st.data(),
)
def test_vectors_of_any_texts(texts: list[list[str]], known: list[bool], data: st.DataObject) -> None:
    """Looked up in the table, each text gives the vectors of its words, then zeros."""
    encoded = encode(" ".join(words) for words in texts)
    vectors = [float(i + 1) * known[i] for i in range(len(encoded.words))]
    table, number = vocabulary(tweet_set(encoded, vectors))
    rows = np.array(data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=6)), np.int64)
    ids, lengths = padded(encoded, rows, number)
    for i, row in enumerate(rows):
        expected = [vectors[encoded.words.index(word)] for word in texts[row]]
        assert table[ids[i], 0].tolist() == expected + [0] * (ids.shape[1] - len(expected))
        assert lengths[i] == len(expected)
