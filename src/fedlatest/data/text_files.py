"""Text files as people have them: plain, gzipped, or a member of a zip."""

import gzip
import io
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from fedlatest.data.progress import Told
from fedlatest.errors import DataError

LINES_PER_REPORT = 20_000


def read_lines(path: Path, *, encoding: str, member: str = "", told: Told | None = None) -> Iterator[str]:
    """The lines of a text file as they stand, streamed; of a zip, the largest member whose name ends in `member`."""
    try:
        with (
            _opened(path, member) as (file, size, position),
            io.TextIOWrapper(file, encoding=encoding, newline="") as text,
        ):
            for number, line in enumerate(text, 1):
                yield line
                if told and number % LINES_PER_REPORT == 0:
                    told(position(), size)
        if told:
            told(size, size)
    except (OSError, EOFError, UnicodeDecodeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path}: cannot be read ({error})") from error


class _Source(NamedTuple):
    """A file of bytes, and how far one is in it: for a gzipped one in compressed bytes, whose number is known."""

    file: IO[bytes] | gzip.GzipFile
    size: int
    position: Callable[[], int]


@contextmanager
def _opened(path: Path, member: str) -> Iterator[_Source]:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as folder:
            info = _member(folder, path, member)
            with _open_member(folder, info, path) as file:
                yield _Source(file, info.file_size, file.tell)
        return
    with path.open("rb") as raw:
        size = path.stat().st_size
        if path.suffix == ".gz":
            with gzip.GzipFile(fileobj=raw) as file:
                yield _Source(file, size, raw.tell)
        else:
            yield _Source(raw, size, raw.tell)


def _open_member(folder: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> IO[bytes]:
    try:
        return folder.open(info)
    except (RuntimeError, NotImplementedError) as error:  # encrypted; packed in a way that Python does not know
        raise DataError(f"{path}: {info.filename} cannot be unpacked ({error})") from error


def _member(folder: zipfile.ZipFile, path: Path, ending: str) -> zipfile.ZipInfo:
    found = [info for info in folder.infolist() if info.filename.endswith(ending) and not info.is_dir()]
    if not found:
        raise DataError(f"{path}: holds no file that ends in {ending!r}")
    return max(found, key=lambda info: info.file_size)
