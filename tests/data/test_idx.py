"""IDX files: read as written, gzipped or not, and never half-read."""

import gzip
import re
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedlatest import DataError
from fedlatest.data.mnist import read_idx

# 2 x 3 bytes: two zeros, 8 for unsigned bytes, 2 axes, the axes' sizes as big-endian words, the bytes.
SMALL = bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 255])
HEADER = 12


def idx(array: npt.NDArray[np.uint8]) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "small-idx2-ubyte"


def refused(path: Path, content: bytes) -> str:
    """What the error says after the path, which it must start with."""
    path.write_bytes(content)
    with pytest.raises(DataError, match="^" + re.escape(f"{path}: ")) as error:
        read_idx(path)
    return str(error.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize("content", [SMALL, gzip.compress(SMALL)], ids=["plain", "gzipped"])
def test_read_by_hand(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    array = read_idx(path)
    assert array.tolist() == [[1, 2, 3], [4, 5, 255]]
    assert array.dtype == np.dtype(np.uint8)


@given(
    array=arrays.arrays(np.uint8, arrays.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=5)),
    gzipped=st.booleans(),
)
def test_read_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, array: npt.NDArray[np.uint8], gzipped: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "written-idx"
    path.write_bytes(gzip.compress(idx(array)) if gzipped else idx(array))
    assert np.array_equal(read_idx(path), array)


def test_a_missing_file_is_named(path: Path) -> None:
    with pytest.raises(DataError, match="^" + re.escape(f"{path}: cannot be read, it is missing")):
        read_idx(path)


@pytest.mark.parametrize("length", range(2, len(gzip.compress(SMALL))))
def test_a_gzipped_file_cut_anywhere_is_an_error(path: Path, length: int) -> None:
    assert refused(path, gzip.compress(SMALL)[:length]).startswith("cannot be read")


@pytest.mark.parametrize("place", range(-8, -4))
def test_a_gzipped_file_whose_checksum_is_wrong_is_an_error(path: Path, place: int) -> None:
    content = bytearray(gzip.compress(SMALL))
    content[place] ^= 1
    assert refused(path, bytes(content)).startswith("cannot be read")


@pytest.mark.parametrize("length", range(HEADER, len(SMALL)))
def test_a_body_cut_anywhere_says_how_much_is_missing(path: Path, length: int) -> None:
    assert refused(path, SMALL[:length]).startswith(
        f"damaged: its header promises 2 x 3 bytes, {length - HEADER} follow"
    )


def test_bytes_too_many_are_an_error(path: Path) -> None:
    assert refused(path, SMALL + b"\0").startswith("damaged: its header promises 2 x 3 bytes, 7 follow")


@pytest.mark.parametrize("length", range(4))
def test_a_file_shorter_than_its_magic_number_is_an_error(path: Path, length: int) -> None:
    assert refused(path, SMALL[:length]).startswith("not an IDX file")


@pytest.mark.parametrize("length", [4, 8])
def test_a_header_cut_between_sizes_is_an_error(path: Path, length: int) -> None:
    assert refused(path, SMALL[:length]).startswith("damaged")


@pytest.mark.parametrize("length", [5, 6, 7, 9, 10, 11])
def test_a_header_cut_within_a_size_is_an_error(path: Path, length: int) -> None:
    assert refused(path, SMALL[:length]).startswith("damaged")


@pytest.mark.parametrize(
    ("magic", "shown"),
    [
        (b"\0\0\x0d\x02", "00 00 0d 02"),  # floats
        (b"\0\1\x08\x02", "00 01 08 02"),
        (b"\1\0\x08\x02", "01 00 08 02"),
        (b"<htm", "3c 68 74 6d"),  # an error page saved under the file's name
    ],
)
def test_a_wrong_magic_number_is_shown(path: Path, magic: bytes, shown: str) -> None:
    assert refused(path, magic + SMALL[4:]) == f"not an IDX file of unsigned bytes (its first bytes are {shown})"
