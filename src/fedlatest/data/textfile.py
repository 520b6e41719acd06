"""Text files as people have them: plain, gzipped, or a member of a zip."""

import gzip
import io
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from fedlatest.errors import DataError


@contextmanager
def open_text(path: Path, *, encoding: str, member: str = "") -> Iterator[TextIO]:
    """Open a text file to be streamed; of a zip, the largest member whose name ends in `member`."""
    try:
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as folder, folder.open(_member(folder, path, member)) as file:
                yield io.TextIOWrapper(file, encoding=encoding, newline="")
        elif path.suffix == ".gz":
            with gzip.open(path, "rt", encoding=encoding, newline="") as file:
                yield file
        else:
            with path.open(encoding=encoding, newline="") as file:
                yield file
    except (OSError, EOFError, UnicodeDecodeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path}: cannot be read ({error})") from error


def _member(folder: zipfile.ZipFile, path: Path, ending: str) -> zipfile.ZipInfo:
    found = [info for info in folder.infolist() if info.filename.endswith(ending) and not info.is_dir()]
    if not found:
        raise DataError(f"{path}: holds no file that ends in {ending!r}")
    return max(found, key=lambda info: info.file_size)
