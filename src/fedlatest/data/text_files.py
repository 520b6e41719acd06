"""Reading text files that are plain, gzipped, or members of a zip archive."""

import gzip
import io
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from fedlatest.data.progress import BytesCallback
from fedlatest.errors import DataError

LINES_PER_REPORT = 20_000


def read_lines(
    path: Path, *, encoding: str, member: str = "", on_progress: BytesCallback | None = None
) -> Iterator[str]:
    """Yield the lines of a text file, including their line endings, without loading the whole file.

    Args:
        path: A plain, .gz or .zip file.
        encoding: Encoding of the text.
        member: In a .zip file, the largest member whose name ends with this is read.
        on_progress: Called with the number of bytes read and the total.

    Raises:
        DataError: The file cannot be read or decoded.
    """
    try:
        with (
            _open(path, member) as (file, size, position),
            io.TextIOWrapper(file, encoding=encoding, newline="") as text,
        ):
            for number, line in enumerate(text, 1):
                yield line
                if on_progress and number % LINES_PER_REPORT == 0:
                    on_progress(position(), size)
        if on_progress:
            on_progress(size, size)
    except (OSError, EOFError, UnicodeDecodeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path}: cannot be read ({error})") from error


class _OpenFile(NamedTuple):
    """A binary file with its size and current position; for a .gz file both count compressed bytes."""

    file: IO[bytes] | gzip.GzipFile
    size: int
    position: Callable[[], int]


@contextmanager
def _open(path: Path, member: str) -> Iterator[_OpenFile]:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            info = _find_member(archive, path, member)
            with _open_member(archive, info, path) as file:
                yield _OpenFile(file, info.file_size, file.tell)
        return
    with path.open("rb") as raw:
        size = path.stat().st_size
        if path.suffix == ".gz":
            with gzip.GzipFile(fileobj=raw) as file:
                yield _OpenFile(file, size, raw.tell)
        else:
            yield _OpenFile(raw, size, raw.tell)


def _open_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> IO[bytes]:
    try:
        return archive.open(info)
    except (RuntimeError, NotImplementedError) as error:  # encrypted, or an unsupported compression method
        raise DataError(f"{path}: {info.filename} cannot be unpacked ({error})") from error


def _find_member(archive: zipfile.ZipFile, path: Path, ending: str) -> zipfile.ZipInfo:
    found = [info for info in archive.infolist() if info.filename.endswith(ending) and not info.is_dir()]
    if not found:
        raise DataError(f"{path}: contains no file whose name ends with {ending!r}")
    return max(found, key=lambda info: info.file_size)
