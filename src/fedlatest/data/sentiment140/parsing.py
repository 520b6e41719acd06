"""The six-column CSV file of Sentiment140: reading it, and cleaning the text of tweets."""

import csv
import html
import re
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.data.progress import BytesCallback
from fedlatest.data.text_files import read_lines
from fedlatest.errors import DataError

NAME, URL = "<name>", "<url>"  # tokens; no vocabulary contains them, because words consist of letters
MAX_TWEETS_BYTES = 2**30  # that come out of a compressed file; the original has 0.24 * 10^9
COLUMNS = 6  # sentiment, id, date, query, account, text
SENTIMENTS = {"0": False, "4": True}
MAX_MALFORMED = 0.01  # share of the rows
_PIECE = re.compile(r"(?i:https?://|www\.)\S+|@\w+|[A-Za-z]+")
_REPEATED = re.compile(r"([a-z])\1{2,}")


class Texts(NamedTuple):
    """Texts as word numbers: text i consists of the words ids[offsets[i] : offsets[i + 1]]."""

    words: list[str]
    ids: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]

    def text(self, number: int) -> list[str]:
        """Return the words of one text."""
        return [self.words[word] for word in self.ids[self.offsets[number] : self.offsets[number + 1]]]


class Tweets(NamedTuple):
    """Tweets in the order of the file. Axis: [T] tweets."""

    positive: npt.NDArray[np.bool_]  # [T]
    account: npt.NDArray[np.int32]  # [T] position in `accounts`
    second: npt.NDArray[np.int32]  # [T] seconds after midnight, in the time zone of the file
    texts: Texts
    accounts: list[str]
    num_malformed: int  # rows that were skipped
    first_malformed: str = ""  # number and beginning of the first of them


def read_tweets(path: Path, *, on_progress: BytesCallback | None = None) -> Tweets:
    """Read and clean the CSV file of Sentiment140 (Latin-1; plain, .gz or in a .zip), one row at a time.

    Malformed rows are skipped and counted. `on_progress` is called with the number of bytes read and the total.

    Raises:
        DataError: The file cannot be read, contains no tweet, or more than 1% of its rows are malformed.
    """
    reader = _RowReader()
    lines = read_lines(path, encoding="latin-1", member=".csv", limit=MAX_TWEETS_BYTES, on_progress=on_progress)
    try:
        texts = encode(reader.texts(csv.reader(lines)))
    except csv.Error as error:
        raise DataError(f"{path}: is not a CSV file ({error})") from error
    if not reader.positive:
        raise DataError(f"{path}: contains no tweet{_first_row(reader.first_malformed)}")
    if reader.num_malformed > MAX_MALFORMED * (reader.num_malformed + len(reader.positive)):
        total = reader.num_malformed + len(reader.positive)
        raise DataError(
            f"{path}: {reader.num_malformed} of {total} rows are malformed{_first_row(reader.first_malformed)}; "
            "expected sentiment (0 or 4), id, date, query, account, text"
        )
    return Tweets(
        np.array(reader.positive, bool),
        np.array(reader.account, np.int32),
        np.array(reader.second, np.int32),
        texts,
        list(reader.accounts),
        reader.num_malformed,
        reader.first_malformed,
    )


def clean(text: str) -> list[str]:
    """Return the words of a tweet, cleaned as in the paper.

    HTML entities are decoded, each @name and each URL is replaced by one token, and letters become lower case. All
    other characters are dropped. A letter that is repeated more than twice in a row is kept twice.

    >>> clean("@you I LOOOOVE it &lt;3 don't http://x.y/Z")
    ['<name>', 'i', 'loove', 'it', 'don', 't', '<url>']
    """
    return [_word(piece) for piece in _pieces(text)]


def encode(texts: Iterable[str]) -> Texts:
    """Return many tweets, cleaned; words are numbered in the order of their first appearance.

    >>> encode(["Good morning", "", "GOOD night"]).ids.tolist()
    [0, 1, 0, 2]
    """
    seen: dict[str, int] = {}  # piece of text -> number of its word; most pieces occur many times
    numbers: dict[str, int] = {}
    ids, offsets = array("i"), array("q", [0])
    for text in texts:
        for piece in _pieces(text):
            number = seen.get(piece)
            if number is None:
                word = _word(piece)
                number = numbers.setdefault(word, len(numbers))
                if word not in (NAME, URL):  # most names and URLs occur once
                    seen[piece] = number
            ids.append(number)
        offsets.append(len(ids))
    return Texts(list(numbers), np.array(ids, np.int32), np.array(offsets, np.int64))


def seconds_after_midnight(date: str) -> int | None:
    """Return the time of day of a date such as `Sat Apr 18 14:08:07 PDT 2009`, or None if the format is another.

    >>> seconds_after_midnight("Sat Apr 18 14:08:07 PDT 2009")
    50887
    """
    clock = date[11:19]
    if len(date) < 24 or clock[2:3] != ":" or clock[5:6] != ":":
        return None
    parts = clock[:2], clock[3:5], clock[6:]
    if not all(part.isdecimal() and len(part) == 2 for part in parts):
        return None
    hour, minute, second = map(int, parts)
    return 3600 * hour + 60 * minute + second if hour < 24 and minute < 60 and second < 60 else None


class _RowReader:
    """Collects the columns of the rows that it reads, except for the text, which it yields."""

    def __init__(self) -> None:
        self.positive, self.account, self.second = array("b"), array("i"), array("i")
        self.accounts: dict[str, int] = {}
        self.num_malformed, self.first_malformed = 0, ""

    def texts(self, lines: Iterator[list[str]]) -> Iterator[str]:
        for number, row in enumerate(lines, 1):
            sentiment = SENTIMENTS.get(row[0]) if len(row) == COLUMNS else None
            second = seconds_after_midnight(row[2]) if sentiment is not None else None
            if sentiment is None or second is None or not row[4]:
                self.num_malformed += 1
                self.first_malformed = self.first_malformed or f"row {number}: {','.join(row)[:100]}"
                continue
            self.positive.append(sentiment)
            self.account.append(self.accounts.setdefault(row[4], len(self.accounts)))
            self.second.append(second)
            yield row[5]


def _first_row(row: str) -> str:
    return f" (first {row})" if row else ""


def _pieces(text: str) -> list[str]:
    return _PIECE.findall(html.unescape(text) if "&" in text else text)


def _word(piece: str) -> str:
    if piece[0] == "@":
        return NAME
    word = piece.lower()
    if word.startswith(("http://", "https://", "www.")):
        return URL
    return _REPEATED.sub(r"\1\1", word)
