"""Reading text files that are plain, gzipped, or members of a zip archive."""

import io
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from fedlatest.bounded_reading import DECOMPRESSION_ERRORS, limited_gzip, limited_lines, limited_member
from fedlatest.data.progress import BytesCallback
from fedlatest.errors import DataError

LINES_PER_REPORT = 20_000
MAX_BYTES = 2**32  # that come out of a compressed file; the largest of GloVe's Twitter vectors have 2.1 * 10^9


def read_lines(
    path: Path,
    *,
    encoding: str,
    member: str = "",
    limit: int = MAX_BYTES,
    on_progress: BytesCallback | None = None,
) -> Iterator[str]:
    """Yield the lines of a text file, including their line endings, without loading the whole file.

    Args:
        path: A plain, .gz or .zip file.
        encoding: Encoding of the text.
        member: In a .zip file, the largest member whose name ends with this is read.
        limit: The largest number of bytes that may come out of a compressed file.
        on_progress: Called with the number of bytes read and the total.

    Raises:
        DataError: The file cannot be read or decoded, is larger than the limit, or has a line of more than MAX_LINE
            characters.
    """
    try:
        with (
            _open(path, member, limit) as (file, size, position),
            io.TextIOWrapper(file, encoding=encoding, newline="") as text,
        ):
            for number, line in enumerate(limited_lines(text), 1):
                yield line
                if on_progress and number % LINES_PER_REPORT == 0:
                    on_progress(position(), size)
        if on_progress:
            on_progress(size, size)
    except (*DECOMPRESSION_ERRORS, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from error


class _OpenFile(NamedTuple):
    """A binary file with its size and current position; for a .gz file both count compressed bytes."""

    file: IO[bytes]
    size: int
    position: Callable[[], int]


@contextmanager
def _open(path: Path, member: str, limit: int) -> Iterator[_OpenFile]:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            info = _find_member(archive, path, member)
            with limited_member(archive, info, limit=limit) as file:
                yield _OpenFile(io.BufferedReader(file), info.file_size, file.tell)
        return
    with path.open("rb") as raw:
        size = path.stat().st_size
        if path.suffix == ".gz":
            yield _OpenFile(io.BufferedReader(limited_gzip(raw, limit=limit)), size, raw.tell)
        else:
            yield _OpenFile(raw, size, raw.tell)


def _find_member(archive: zipfile.ZipFile, path: Path, ending: str) -> zipfile.ZipInfo:
    found = [info for info in archive.infolist() if info.filename.endswith(ending) and not info.is_dir()]
    if not found:
        raise DataError(f"{path}: contains no file whose name ends with {ending!r}")
    return max(found, key=lambda info: info.file_size)
