"""Tweets are cleaned as in the paper, read from plain and packed files, and errors name the row."""

import gzip
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlatest import DataError
from fedlatest.data.sentiment140.parsing import NAME, URL, clean, encode, read_tweets, seconds_after_midnight

ROWS = [
    ("0", "1", "Sat Apr 18 14:08:07 PDT 2009", "NO_QUERY", "ann", "@bob I'm sooooo tired &amp; sad :("),
    ("4", "2", "Sun Apr 19 00:00:00 PDT 2009", "NO_QUERY", "bob", 'caf\xe9 "quoted", yes'),
    ("4", "3", "Sun Apr 19 23:59:59 PDT 2009", "NO_QUERY", "ann", "!!!"),
]


def as_csv(rows: Sequence[tuple[str, ...]]) -> bytes:
    lines = [",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows]
    return ("\n".join(lines) + "\n").encode("latin-1")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello WORLD", ["hello", "world"]),
        ("@Some_One99 hi @x", [NAME, "hi", NAME]),
        ("see http://t.co/aBc?x=1, www.site.org now HTTPS://A.B", ["see", URL, URL, "now", URL]),
        ("don't", ["don", "t"]),
        ("soooo coool aab", ["soo", "cool", "aab"]),  # three or more become two
        ("&lt;3 rock&amp;roll &quot;x&quot;", ["rock", "roll", "x"]),
        ("2day is 24/7", ["day", "is"]),
        ("caf\xe9", ["caf"]),  # letters are a .. z
        ("AAAAh", ["aah"]),
        ("", []),
        ("123 :-) ...", []),
    ],
)
def test_clean(text: str, words: list[str]) -> None:
    assert clean(text) == words


@given(st.lists(st.text(alphabet="aB@:/.hwtp&;l 1é", max_size=30), max_size=8))
def test_encode_equals_clean(texts: list[str]) -> None:
    encoded = encode(texts)
    assert [encoded.text(number) for number in range(len(texts))] == [clean(text) for text in texts]
    assert len(set(encoded.words)) == len(encoded.words)


@pytest.mark.parametrize("kind", ["csv", "gz", "zip"])
def test_read_tweets(tmp_path: Path, kind: str) -> None:
    path, content = tmp_path / f"tweets.{kind}", as_csv(ROWS)
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as folder:
            folder.writestr("small.csv", b"")
            folder.writestr("readme.txt", b"x" * 10_000)
            folder.writestr("all/training.csv", content)
    else:
        path.write_bytes(gzip.compress(content) if kind == "gz" else content)
    tweets = read_tweets(path)
    assert tweets.positive.tolist() == [False, True, True]
    assert tweets.accounts == ["ann", "bob"]
    assert tweets.account.tolist() == [0, 1, 0]
    assert tweets.second.tolist() == [14 * 3600 + 8 * 60 + 7, 0, 86399]
    assert tweets.texts.text(0) == [NAME, "i", "m", "soo", "tired", "sad"]
    assert tweets.texts.text(1) == ["caf", "quoted", "yes"]
    assert tweets.texts.text(2) == []
    assert tweets.num_malformed == 0


@pytest.mark.parametrize(
    "malformed",
    [
        ("1", *ROWS[0][1:]),  # an invalid sentiment
        ROWS[0][:5],
        (*ROWS[0], "more"),
        (*ROWS[0][:2], "yesterday", *ROWS[0][3:]),
        (*ROWS[0][:2], "Sat Apr 18 24:08:07 PDT 2009", *ROWS[0][3:]),
        (*ROWS[0][:4], "", "nobody said this"),
    ],
)
def test_malformed_rows_are_counted_and_too_many_are_an_error(tmp_path: Path, malformed: tuple[str, ...]) -> None:
    """One of 100 rows is 1%, which is allowed; one of 99 is more."""
    path = tmp_path / "tweets.csv"
    path.write_bytes(as_csv([*ROWS * 33, malformed]))
    assert read_tweets(path).num_malformed == 1
    path.write_bytes(as_csv([malformed, *(ROWS * 33)[:98]]))
    with pytest.raises(DataError, match=rf"1 of 99 rows are malformed \(first row 1: {malformed[0]},1"):
        read_tweets(path)


def test_invalid_files_are_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.csv: cannot be read"):
        read_tweets(tmp_path / "nowhere.csv")
    (tmp_path / "empty.csv").write_bytes(b"")
    with pytest.raises(DataError, match=r"empty\.csv: contains no tweet"):
        read_tweets(tmp_path / "empty.csv")
    (tmp_path / "bad.gz").write_bytes(gzip.compress(as_csv(ROWS))[:30])
    with pytest.raises(DataError, match=r"bad\.gz: cannot be read"):
        read_tweets(tmp_path / "bad.gz")
    with zipfile.ZipFile(tmp_path / "none.zip", "w") as folder:
        folder.writestr("a.txt", b"")
    with pytest.raises(DataError, match=r"none\.zip: contains no file whose name ends with '\.csv'"):
        read_tweets(tmp_path / "none.zip")


@given(st.integers(0, 86399))
def test_times_of_day(second: int) -> None:
    clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    assert seconds_after_midnight(f"Sat Apr 18 {clock} PDT 2009") == second


@given(st.text(max_size=30))
def test_any_text_gives_a_time_of_day_or_none(date: str) -> None:
    second = seconds_after_midnight(date)
    assert second is None or 0 <= second < 86400


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "zip"])
def test_progress_is_reported_in_bytes(tmp_path: Path, kind: str) -> None:
    """45,000 lines: reports after 20,000, 40,000 and at the end; for a zip the uncompressed bytes of the member."""
    path, content, reports = tmp_path / f"tweets.{kind}", as_csv(ROWS * 15_000), list[tuple[int, int | None]]()
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as folder:
            folder.writestr("training.csv", content)
            folder.writestr("other.txt", content)
    else:
        path.write_bytes(gzip.compress(content) if kind == "csv.gz" else content)
    read_tweets(path, on_progress=lambda done, total: reports.append((done, total)))
    size = len(content) if kind == "zip" else path.stat().st_size
    assert len(reports) == 3
    assert {total for _, total in reports} == {size}
    assert 0 < reports[0][0] <= reports[1][0] <= reports[2][0] == size


def test_a_zip_that_cannot_be_unpacked(tmp_path: Path) -> None:
    """The flags of the member are changed to encrypted."""
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as folder:
        folder.writestr("t.csv", as_csv(ROWS))
    content = bytearray((tmp_path / "t.zip").read_bytes())
    content[6] |= 1  # flags in the header of the member
    content[content.rindex(b"PK\x01\x02") + 8] |= 1  # flags in the directory
    (tmp_path / "t.zip").write_bytes(content)
    with pytest.raises(DataError, match=r"t\.csv cannot be unpacked"):
        read_tweets(tmp_path / "t.zip")
