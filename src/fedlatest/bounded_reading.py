"""Reading compressed and archived files without trusting what they claim: the decompressed size has a limit.

A few hundred kilobytes of gzip can decompress to gigabytes. All readers of compressed files in this package go through
`LimitedReader`, which raises `TooLargeError` as soon as more than a stated number of bytes comes out, and which
allocates memory for what a file contains, not for what its header announces. Callers catch `DECOMPRESSION_ERRORS` and
raise the exception of their package with the name of the file.
"""

import gzip
import io
import math
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

BLOCK = 2**18  # bytes that are decompressed at a time
MAX_LINE = 2**20  # characters in a line of a text file
GZIP_MAGIC = b"\x1f\x8b"
DECOMPRESSION_ERRORS = (OSError, EOFError, zlib.error, zipfile.BadZipFile)  # OSError includes TooLargeError
_ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # the zipfile module does not limit the output of the others


class TooLargeError(OSError):
    """A file contains more than the limit for files of its kind."""


class LimitedReader(io.RawIOBase):
    """A binary file of which at most `limit` bytes can be read; reading or seeking further raises TooLargeError."""

    def __init__(self, file: IO[bytes], *, limit: int) -> None:
        self._file, self._limit, self._position = file, limit, 0

    def read_up_to(self, size: int) -> bytearray:
        """Return the next `size` bytes, or fewer if the file ends; memory grows with what the file contains."""
        content = bytearray()
        while len(content) < size and (block := self._read_block(size - len(content))):
            content += block
        return content

    def read(self, size: int = -1) -> bytes:
        """Return the next `size` bytes or, if it is negative, all; fewer if the file ends."""
        return bytes(self.read_up_to(size if size >= 0 else self._limit + 1))

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer and return the number of bytes, which is 0 only at the end."""
        view = memoryview(buffer).cast("B")
        block = self._read_block(len(view))
        view[: len(block)] = block
        return len(block)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return whether the file can seek."""
        return self._file.seekable()

    def tell(self) -> int:
        """Return the current position."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position, counted from the start or the current position, and return it."""
        if whence == io.SEEK_END:
            raise io.UnsupportedOperation("the end of a compressed file is not known")
        target = offset + (self._position if whence == io.SEEK_CUR else 0)
        if target > self._limit:
            raise self._too_large()
        self._position = self._file.seek(target)
        return self._position

    def _read_block(self, size: int) -> bytes:
        block = self._file.read(min(size, BLOCK, self._limit + 1 - self._position))
        self._position += len(block)
        if self._position > self._limit:
            raise self._too_large()
        return block

    def _too_large(self) -> TooLargeError:
        return TooLargeError(f"it contains more than {self._limit:,} bytes, the limit for such files")


def limited_gzip(raw: IO[bytes], *, limit: int) -> LimitedReader:
    """Return the decompressed content of an open gzip file, all members together, of at most `limit` bytes."""
    return LimitedReader(gzip.GzipFile(fileobj=raw), limit=limit)  # type: ignore[arg-type]


def limited_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, *, limit: int) -> LimitedReader:
    """Return the decompressed content of a member of a zip archive.

    Args:
        archive: The archive.
        info: The member.
        limit: The largest number of bytes that may come out.

    Raises:
        TooLargeError: The archive announces more bytes.
        zipfile.BadZipFile: The member is encrypted, or neither stored nor deflated.
    """
    if info.compress_type not in _ZIP_METHODS:
        raise zipfile.BadZipFile(
            f"{info.filename} cannot be unpacked (compression method {info.compress_type}; only stored and deflated "
            "members are read)"
        )
    if info.file_size > limit:
        raise TooLargeError(f"{info.filename} announces {info.file_size:,} bytes, the limit is {limit:,}")
    try:
        return LimitedReader(archive.open(info), limit=limit)
    except (RuntimeError, NotImplementedError) as error:  # encrypted
        raise zipfile.BadZipFile(f"{info.filename} cannot be unpacked ({error})") from error


@contextmanager
def open_lines(path: Path, *, encoding: str, limit: int) -> Iterator[Iterator[str]]:
    """Open a text file and yield its lines, with their line endings.

    Args:
        path: A gzipped file if its name ends in .gz, else a plain one.
        encoding: Encoding of the text.
        limit: The largest number of bytes that may come out of a gzipped file.
    """
    with path.open("rb") as raw:
        file = io.BufferedReader(limited_gzip(raw, limit=limit)) if path.suffix == ".gz" else raw
        with io.TextIOWrapper(file, encoding=encoding, newline="") as text:
            yield limited_lines(text)


def limited_lines(text: io.TextIOWrapper) -> Iterator[str]:
    """Yield the lines of a text; raise TooLargeError if one is longer than MAX_LINE characters."""
    number = 0
    while line := text.readline(MAX_LINE):
        number += 1
        if len(line) == MAX_LINE and not line.endswith(("\n", "\r")):
            raise TooLargeError(f"line {number} is longer than {MAX_LINE:,} characters")
        yield line


def read_npz(path: Path, *, limit: int, names: Collection[str] | None = None) -> dict[str, np.ndarray[Any, Any]]:
    """Return named arrays of a .npz file; pickled arrays are errors.

    Args:
        path: The file.
        limit: The largest number of bytes that may come out of all arrays together.
        names: The arrays to read if the file contains them; by default all.

    Raises:
        ValueError: An array is not in the format of NumPy, or its length differs from what its header announces.
        TooLargeError: The arrays are larger than the limit.
    """
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    with path.open("rb") as raw, zipfile.ZipFile(raw) as archive:
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if names is None or name in names:
                with limited_member(archive, info, limit=limit) as file:
                    arrays[name] = _read_npy(file, info)
                limit -= info.file_size
    return arrays


def _read_npy(file: LimitedReader, info: zipfile.ZipInfo) -> np.ndarray[Any, Any]:
    """Return the array in a .npy file that is a member of an archive."""
    try:
        shape, is_fortran, dtype = _read_npy_header(file)
    except DECOMPRESSION_ERRORS:
        raise
    except Exception as error:  # NumPy raises errors of many types about damaged headers
        raise ValueError(f"{info.filename}: is not an array file ({error})") from error
    announced, present = math.prod(shape) * dtype.itemsize, info.file_size - file.tell()
    if announced != present:
        raise ValueError(f"{info.filename}: its header announces {announced:,} bytes, but {present:,} follow")
    content = file.read_up_to(announced + 1)  # one more, so that the checksum at the end is compared
    if len(content) != announced:
        raise ValueError(f"{info.filename}: is truncated after {len(content):,} of {announced:,} bytes")
    flat = np.frombuffer(content, dtype) if announced else np.empty(0, dtype)
    return flat.reshape(shape, order="F" if is_fortran else "C")


def _read_npy_header(file: LimitedReader) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return the shape, whether the order is Fortran's, and the type that the header of a .npy file announces."""
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"version {version} of the format is unknown")
    parse = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = parse(file)
    if dtype.hasobject:
        raise ValueError("it contains Python objects")
    return shape, is_fortran, dtype
