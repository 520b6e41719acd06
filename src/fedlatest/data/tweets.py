"""Tweets as words: how a text is cleaned, and many of them as flat arrays."""

import html
import re
from array import array
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

NAME, URL = "<name>", "<url>"  # no vocabulary holds them: words are letters only
_PIECE = re.compile(r"(?i:https?://|www\.)\S+|@\w+|[A-Za-z]+")
_REPEATED = re.compile(r"([a-z])\1{2,}")


class Texts(NamedTuple):
    """Text i is the words of the numbers ids[offsets[i] : offsets[i + 1]]."""

    words: list[str]
    ids: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]

    def text(self, number: int) -> list[str]:
        """The words of one text."""
        return [self.words[word] for word in self.ids[self.offsets[number] : self.offsets[number + 1]]]


def clean(text: str) -> list[str]:
    """The words of a tweet, as the paper's task has them.

    HTML entities are decoded; a @name and a URL become one token each; lower case; letters only; a letter repeated more
    than twice is kept twice.

    >>> clean("@you I LOOOOVE it &lt;3 don't http://x.y/Z")
    ['<name>', 'i', 'loove', 'it', 'don', 't', '<url>']
    """
    return [_word(piece) for piece in _pieces(text)]


def encode(texts: Iterable[str]) -> Texts:
    """Clean many tweets; words are numbered as they appear.

    >>> encode(["Good morning", "", "GOOD night"]).ids.tolist()
    [0, 1, 0, 2]
    """
    seen: dict[str, int] = {}  # a piece of text as it stands -> the number of its word: most pieces come again
    numbers: dict[str, int] = {}
    ids, offsets = array("i"), array("q", [0])
    for text in texts:
        for piece in _pieces(text):
            number = seen.get(piece)
            if number is None:
                word = _word(piece)
                number = numbers.setdefault(word, len(numbers))
                if word not in (NAME, URL):  # of those hardly one comes twice
                    seen[piece] = number
            ids.append(number)
        offsets.append(len(ids))
    return Texts(list(numbers), np.array(ids, np.int32), np.array(offsets, np.int64))


def _pieces(text: str) -> list[str]:
    return _PIECE.findall(html.unescape(text) if "&" in text else text)


def _word(piece: str) -> str:
    if piece[0] == "@":
        return NAME
    word = piece.lower()
    if word.startswith(("http://", "https://", "www.")):
        return URL
    return _REPEATED.sub(r"\1\1", word)
