"""Readers of compressed files: memory stays small whatever comes out of a file, and damage is one line that names it.

A bomb is a file of some 65 kB that decompresses to 64 MiB of zeros. All readers must raise with a peak of less than
8 MiB; readers that decompress everything first take at least 64.
"""

import bz2
import gzip
import io
import json
import math
import re
import tarfile
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlatest import DataError
from fedlatest.availability import read_trace
from fedlatest.availability.plain_pickle import read_plain_pickle
from fedlatest.bounded_reading import LimitedReader, TooLargeError, limited_gzip, open_lines, read_npz
from fedlatest.data.cifar10 import FILES, INNER_FOLDER, load_cifar10
from fedlatest.data.digits import load_digits
from fedlatest.data.mnist import read_idx
from fedlatest.data.sentiment140.glove import check_glove, read_glove
from fedlatest.data.sentiment140.parsing import read_tweets
from fedlatest.errors import FedlatestError, RunFolderError
from fedlatest.report import read_published
from fedlatest.runs.array_files import load_arrays, load_npz, save_npz

MIB = 2**20
BOMB, PEAK = 64 * MIB, 8 * MIB
IDX = bytes([0, 0, 8, 1, 0, 0, 0, 3, 1, 2, 3])  # three bytes
GLOVE = b"the 1 2 3\n"
TWEET = b'"4","1","Sat Apr 18 14:08:07 PDT 2009","NO_QUERY","you","hi"\n'
TRACE = b"client,start,end\n0,0,1\n"
PUBLISHED = b"algorithm,setting,round,train_loss,test_accuracy\nFedAvg,E1,0,2.0,0.1\n"


def read_digits(path: Path) -> None:
    """Read `path` as the file of scikit-learn."""
    data = path.parent / "datasets" / "data"
    data.mkdir(parents=True)
    (data / "digits.csv.gz").write_bytes(path.read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        spec = ModuleSpec("sklearn", None, origin=str(path.parent / "__init__.py"))
        patch.setattr("fedlatest.data.digits.find_spec", lambda name: spec)
        load_digits()


def read_cifar10(path: Path) -> None:
    """Read `path` as the archive of CIFAR-10."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("FEDLATEST_DATA", raising=False)
        patch.setattr("pooch.retrieve", lambda *arguments, **options: str(path))
        load_cifar10()


def read_vectors(path: Path) -> None:
    read_glove(path, ["the"], dimensions=3)


def check_vectors(path: Path) -> None:
    check_glove(path, dimensions=3)


Reader = Callable[[Path], Any]
GZIPPED: dict[str, tuple[Reader, bytes]] = {  # reader and a valid content
    "idx": (read_idx, IDX),
    "tweets": (read_tweets, TWEET),
    "vectors": (read_vectors, GLOVE),
    "vectors, checked": (check_vectors, GLOVE),
    "trace": (read_trace, TRACE),
    "published": (read_published, PUBLISHED),
}
ALL_GZIPPED = {**GZIPPED, "digits": (read_digits, b"0,1\n"), "cifar10": (read_cifar10, b"")}
ZIPPED: dict[str, tuple[Reader, str]] = {"tweets": (read_tweets, "t.csv"), "vectors": (read_vectors, "v.3d.txt")}


def gzip_bomb(start: bytes = b"", size: int = BOMB) -> bytes:
    """Return gzip of `start` and zeros, made without holding them in memory."""
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    parts = [packer.compress(start), *(packer.compress(bytes(MIB)) for _ in range(size // MIB)), packer.flush()]
    return b"".join(parts)


def error_and_peak(read: Reader, path: Path, error: type[FedlatestError] = DataError) -> tuple[str, int]:
    """Return the message of the error that reading must raise, and the peak memory meanwhile."""
    tracemalloc.start()
    try:
        with pytest.raises(error) as caught:
            read(path)
        return str(caught.value), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def assert_small(read: Reader, path: Path, error: type[FedlatestError] = DataError) -> str:
    assert path.stat().st_size < 100_000
    message, peak = error_and_peak(read, path, error)
    assert peak < PEAK
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", ALL_GZIPPED)
def test_a_gzip_bomb(tmp_path: Path, name: str) -> None:
    read, content = ALL_GZIPPED[name]
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip_bomb(content))
    message = assert_small(read, path)
    assert "bomb.gz" in message or "digits.csv.gz" in message


@pytest.mark.parametrize("name", ZIPPED)
def test_a_zip_bomb(tmp_path: Path, name: str) -> None:
    read, member = ZIPPED[name]
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(member, "w") as file:
        for _ in range(BOMB // MIB):
            file.write(bytes(MIB))
    assert "bomb.zip: cannot be read (line 1 is longer than 1,048,576 characters)" in assert_small(read, path)


@pytest.mark.parametrize("name", ZIPPED)
def test_a_zip_whose_method_has_no_limit_is_refused(tmp_path: Path, name: str) -> None:
    """4 kB of bzip2 can become gigabytes in one step of the zipfile module."""
    read, member = ZIPPED[name]
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr(member, bytes(BOMB))
    assert len(bz2.compress(bytes(BOMB))) < 4096
    assert f"{member} cannot be unpacked (compression method 12" in assert_small(read, path)


LIMITS: dict[str, tuple[Reader, bytes, str]] = {  # reader, valid content, the constant that limits it
    "tweets": (read_tweets, TWEET, "data.sentiment140.parsing.MAX_TWEETS_BYTES"),
    "trace": (read_trace, TRACE, "availability.trace_files.MAX_BYTES"),
    "published": (read_published, PUBLISHED, "report.published_curves.MAX_BYTES"),
}


@pytest.mark.parametrize("name", LIMITS)
def test_the_limit_of_a_text_counts_decompressed_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    read, content, constant = LIMITS[name]
    path = tmp_path / "text.csv.gz"
    path.write_bytes(gzip.compress(content))
    monkeypatch.setattr(f"fedlatest.{constant}", len(content))
    read(path)
    monkeypatch.setattr(f"fedlatest.{constant}", len(content) - 1)
    with pytest.raises(DataError, match=re.escape("text.csv.gz: cannot be read")) as error:
        read(path)
    assert f"it contains more than {len(content) - 1} bytes, the limit for such files" in str(error.value)
    plain = tmp_path / "text.csv"
    plain.write_bytes(content)
    read(plain)  # a plain file is as large as it looks


def damage(content: bytes, kind: str) -> bytes:
    packed = gzip.compress(content)
    return {
        "truncated": packed[:-9],
        "without its end": packed[:-8],
        "wrong checksum": packed[:-8] + bytes([packed[-8] ^ 1]) + packed[-7:],
        "wrong length": packed[:-4] + bytes([packed[-4] ^ 1]) + packed[-3:],
        "garbage after it": packed + b"garbage",
        "a damaged second member": packed + packed[:-5],
        "not gzip": b"\x1f\x8bgarbage",
    }[kind]


DAMAGES = ("truncated", "without its end", "wrong checksum", "wrong length", "garbage after it",
           "a damaged second member", "not gzip")  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("name", GZIPPED)
def test_damage_is_one_line_that_names_the_file(tmp_path: Path, name: str, kind: str) -> None:
    read, content = GZIPPED[name]
    path = tmp_path / "damaged.gz"
    path.write_bytes(damage(content, kind))
    message, _ = error_and_peak(read, path)
    assert re.match(r"(trace=|published=)?\S*damaged\.gz: ", message)
    assert "\n" not in message


@pytest.mark.parametrize("name", GZIPPED)
def test_members_are_read_one_after_the_other(tmp_path: Path, name: str) -> None:
    """RFC 1952: the content of a gzip file is that of all its members; zeros may follow as padding."""
    read, content = GZIPPED[name]
    path = tmp_path / "members.gz"
    path.write_bytes(gzip.compress(content[:7]) + gzip.compress(content[7:]) + bytes(100))
    read(path)


def test_an_idx_file_of_two_members_that_is_too_long(tmp_path: Path) -> None:
    path = tmp_path / "two.gz"
    path.write_bytes(gzip.compress(IDX) * 2)
    with pytest.raises(DataError, match=r"two\.gz: damaged: its header announces 3 bytes, but more follow"):
        read_idx(path)


def write_tar(path: Path, member: tarfile.TarInfo, content: io.BufferedIOBase | None) -> None:
    with tarfile.open(path, "w:gz") as archive:
        archive.addfile(member, content)


def test_a_member_of_a_tar_that_is_too_large(tmp_path: Path) -> None:
    """Also if it is sparse, which needs no content at all in the archive."""
    path = tmp_path / "archive.tar.gz"
    member = tarfile.TarInfo(f"{INNER_FOLDER}/{FILES[0]}")
    member.size = BOMB
    write_tar(path, member, io.BytesIO(bytes(BOMB)))
    assert f"{FILES[0]} announces {BOMB} bytes, expected at most 30730000" in assert_small(read_cifar10, path)
    member.size = 0
    member.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.map": "0,0",
                          "GNU.sparse.size": str(2**40)}  # fmt: skip
    write_tar(path, member, None)
    assert f"{FILES[0]} announces {2**40} bytes" in assert_small(read_cifar10, path)


def test_a_tar_with_a_link_to_itself(tmp_path: Path) -> None:
    path = tmp_path / "archive.tar.gz"
    member = tarfile.TarInfo(f"{INNER_FOLDER}/{FILES[0]}")
    member.type, member.linkname = tarfile.SYMTYPE, FILES[0]
    write_tar(path, member, None)
    assert f"{FILES[0]} is not a file" in assert_small(read_cifar10, path)


def test_a_tar_with_an_endless_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of more than 100 characters are content of the archive; this one announces 8 GiB, of which 64 MiB exist."""
    path = tmp_path / "archive.tar.gz"
    member = tarfile.TarInfo("long")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, 8**11 - 1
    path.write_bytes(gzip_bomb(member.tobuf(tarfile.GNU_FORMAT)))
    monkeypatch.setattr("fedlatest.data.cifar10.MAX_ARCHIVE_BYTES", 2 * MIB)
    assert "archive.tar.gz: cannot be read" in assert_small(read_cifar10, path)


def read_run_file(path: Path) -> None:
    load_npz(path, ["a"])


def npy(header_shape: tuple[int, ...], content: bytes) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": header_shape})
    return file.getvalue() + content


def write_npz(path: Path, member: bytes, method: int = zipfile.ZIP_DEFLATED) -> None:
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("a.npy", member)


@pytest.mark.parametrize(
    "array",
    [np.arange(6).reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.zeros((0, 3), np.uint16),
     np.array(7), np.array([True, False]), np.array("text")],
)  # fmt: skip
def test_npz_files_are_read_as_numpy_reads_them(tmp_path: Path, array: np.ndarray[Any, Any]) -> None:
    save_npz(tmp_path / "a.npz", {"a": array, "other": np.ones(3)})
    found = load_npz(tmp_path / "a.npz", ["a"])[0]
    np.testing.assert_array_equal(found, array, strict=True)
    assert set(read_npz(tmp_path / "a.npz", limit=1000)) == {"a", "other"}


@pytest.mark.parametrize("shape", [(2**40,), (2**31, 28, 28), (4,), (2,), (2**62, 2**62)])
def test_an_array_of_another_length_than_announced(tmp_path: Path, shape: tuple[int, ...]) -> None:
    write_npz(tmp_path / "a.npz", npy(shape, b"abc"))
    message = assert_small(read_run_file, tmp_path / "a.npz", RunFolderError)
    assert re.search(r"a\.npz: cannot be read \(a\.npy: its header announces [\d,]+ bytes, but 3 follow", message)


def test_an_npz_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.npz"
    write_npz(path, npy((3,), bytes(BOMB)))
    assert "announces 3 bytes, but 67,108,864 follow" in assert_small(read_run_file, path, RunFolderError)
    write_npz(path, npy((BOMB,), bytes(BOMB)))
    monkeypatch.setattr("fedlatest.runs.array_files.MAX_NPZ_BYTES", BOMB)  # the header does not fit
    message = assert_small(read_run_file, path, RunFolderError)
    assert message.endswith("a.npz: cannot be read (a.npy announces 67,108,992 bytes, the limit is 67,108,864)")


def test_damaged_npz_files(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    save_npz(path, {"a": np.arange(1000)})
    content = path.read_bytes()
    for damaged in (content[:-30], content[:200] + b"x" + content[201:], b""):
        path.write_bytes(damaged)
        assert_small(read_run_file, path, RunFolderError)
    for member in (b"", b"\x93NUMPY\x09\x00", b"\x93NUMPY\x01\x00\xff\xff{", npy((3,), b"abc").replace(b"|u1", b"|O ")):
        write_npz(path, member)
        assert "a.npy: is not an array file" in assert_small(read_run_file, path, RunFolderError)


@pytest.mark.parametrize("sizes", [(2**31, 28, 28), (2**30 + 1,), (2**32 - 1,) * 255])
@pytest.mark.parametrize("gzipped", [False, True])
def test_an_idx_header_that_announces_too_much(tmp_path: Path, sizes: tuple[int, ...], gzipped: bool) -> None:
    path = tmp_path / "idx"
    content = bytes([0, 0, 8, len(sizes)]) + np.array(sizes, ">u4").tobytes() + b"abc"
    path.write_bytes(gzip.compress(content) if gzipped else content)
    assert re.search(r"idx: its header announces \d.* bytes, the limit is 1073741824", assert_small(read_idx, path))


@pytest.mark.parametrize("gzipped", [False, True])
def test_an_idx_header_that_announces_more_than_follows(tmp_path: Path, gzipped: bool) -> None:
    """2^30 bytes are allowed, but memory is allocated only for the three that exist."""
    path = tmp_path / "idx"
    content = bytes([0, 0, 8, 1]) + (2**30).to_bytes(4, "big") + b"abc"
    path.write_bytes(gzip.compress(content) if gzipped else content)
    assert f"header announces {2**30} bytes, but 3 follow" in assert_small(read_idx, path)


def test_an_idx_file_with_too_many_axes(tmp_path: Path) -> None:
    path = tmp_path / "idx"
    path.write_bytes(bytes([0, 0, 8, 255]) + bytes(4 * 255))
    assert "its header announces 255 axes" in assert_small(read_idx, path)


def read_safetensors(path: Path) -> None:
    load_arrays(path)


@pytest.mark.parametrize("shape", [[2**31, 28, 28], [2**62, 2**62], [4]])
def test_a_safetensors_header_that_announces_more_than_follows(tmp_path: Path, shape: list[int]) -> None:
    path = tmp_path / "a.safetensors"
    header = json.dumps({"a": {"dtype": "U8", "shape": shape, "data_offsets": [0, math.prod(shape)]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"abc")
    assert "a.safetensors: cannot be read" in assert_small(read_safetensors, path, RunFolderError)


@pytest.mark.parametrize("start", [b"\x80\x04\x8d", b"\x80\x04\x8b"], ids=["text", "number"])
def test_a_pickle_that_announces_more_than_follows(tmp_path: Path, start: bytes) -> None:
    """A text with a length of 8 bytes, and a number with one of 4."""
    path = tmp_path / "a.pickle"
    path.write_bytes(start + (2**40 if start[-1] == 0x8D else 2**31 - 1).to_bytes(8, "little") + b"abc.")
    assert "a.pickle: is not a complete pickle" in assert_small(read_plain_pickle, path)


@pytest.mark.parametrize(("rows", "size"), [(1, 10**6), (10**6, 1)])
def test_a_parquet_file_beyond_the_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, size: int
) -> None:
    parquet, pyarrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    path = tmp_path / "trace.parquet"
    parquet.write_table(pyarrow.table({"client": [0, 1], "start": [0, 0], "end": [1, 1]}), path)
    read_trace(path)
    monkeypatch.setattr("fedlatest.availability.trace_files.MAX_ROWS", rows)
    monkeypatch.setattr("fedlatest.availability.trace_files.MAX_BYTES", size)
    with pytest.raises(DataError, match=r"trace\.parquet: announces 2 rows in [\d,]+ bytes, the limits are"):
        read_trace(path)


def test_a_limited_reader_by_hand() -> None:
    """Five bytes, of which four may be read: the fifth raises, and so does a seek beyond the limit."""
    attempts: list[Callable[[LimitedReader], object]] = [
        lambda it: it.read(),
        lambda it: it.read(5),
        lambda it: it.seek(5),
    ]
    for attempt in attempts:
        reader = LimitedReader(io.BytesIO(b"abcde"), limit=4)
        with pytest.raises(TooLargeError, match="more than 4 bytes"):
            attempt(reader)
    reader = LimitedReader(io.BytesIO(b"abcde"), limit=5)
    assert reader.read() == b"abcde"
    assert (reader.seek(-4, io.SEEK_CUR), reader.tell(), reader.read(2), reader.read(9)) == (1, 1, b"bc", b"de")
    with pytest.raises(io.UnsupportedOperation):
        reader.seek(0, io.SEEK_END)


def test_a_file_of_exactly_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(b"a\nb\r\nc"))
    with open_lines(path, encoding="ascii", limit=6) as lines:
        assert list(lines) == ["a\n", "b\r\n", "c"]
    with path.open("rb") as raw, pytest.raises(TooLargeError):
        limited_gzip(raw, limit=5).read()
