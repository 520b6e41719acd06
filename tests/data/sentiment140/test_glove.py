"""GloVe word vectors: read from plain and packed files; a few malformed lines are tolerated."""

import gzip
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fedlatest import DataError
from fedlatest.data.sentiment140.glove import check_glove, read_glove
from fedlatest.data.sentiment140.parsing import NAME


def test_read_glove(tmp_path: Path) -> None:
    """The vectors are in the order of the requested words; a word that is not in the file gets zeros."""
    text = b"the 1 2 3\ncat 4 5 6\n\xe2\x82\xac 7 8 9\n"
    (tmp_path / "v.3d.txt").write_bytes(text)
    (tmp_path / "v.gz").write_bytes(gzip.compress(text))
    with zipfile.ZipFile(tmp_path / "v.zip", "w") as folder:
        folder.writestr("v.3d.txt", text)
        folder.writestr("v.50d.txt", b"the " + b"0 " * 50)
    for name in ("v.3d.txt", "v.gz", "v.zip"):
        vectors = read_glove(tmp_path / name, ["cat", NAME, "the"], dimensions=3)
        np.testing.assert_array_equal(vectors, [[4, 5, 6], [0, 0, 0], [1, 2, 3]])
    with pytest.raises(DataError, match="line 2: contains 3 numbers, expected 25 finite ones"):
        read_glove(tmp_path / "v.3d.txt", ["cat"])
    with pytest.raises(DataError, match="contains none of the 1 requested words"):
        read_glove(tmp_path / "v.3d.txt", ["dog"], dimensions=3)
    (tmp_path / "w.txt").write_text("cat one two three\n")
    with pytest.raises(DataError, match="line 1: is not a word and its vector"):
        read_glove(tmp_path / "w.txt", ["cat"], dimensions=3)


def test_words_with_a_malformed_line_are_unknown(tmp_path: Path) -> None:
    """One of 200 lines may be malformed or exceed the range of float32; three of 200 are an error."""
    words = [f"w{number}" for number in range(200)]
    lines = [f"{word} 1 2 3" for word in words]
    lines[5] = "w5 1 1e60 3"
    (tmp_path / "v.txt").write_text("\n".join(lines))
    vectors = read_glove(tmp_path / "v.txt", words, dimensions=3)
    assert vectors[4].tolist() == [1, 2, 3]
    assert vectors[5].tolist() == [0, 0, 0]
    lines[6], lines[7] = "w6 1 2", "w7 a b c"
    (tmp_path / "v.txt").write_text("\n".join(lines))
    with pytest.raises(DataError, match=r"line 6: contains 3 numbers, expected 3 finite ones"):
        read_glove(tmp_path / "v.txt", words, dimensions=3)


def test_check_glove(tmp_path: Path) -> None:
    """One malformed line of 100 (1%) is allowed, two are an error, and so is an empty file."""
    path, good = tmp_path / "v.txt", b"a 1 2\n"
    path.write_bytes(good * 99 + b"b 1\n")
    check_glove(path, dimensions=2)
    path.write_bytes(good * 98 + b"b 1\n" * 2)
    with pytest.raises(DataError, match=r"2 of 100 lines are not a word and 2 numbers \(first line 99: b 1\)"):
        check_glove(path, dimensions=2)
    path.write_bytes(b"")
    with pytest.raises(DataError, match="0 of 0 lines"):
        check_glove(path, dimensions=2)
