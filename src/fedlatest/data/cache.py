"""A cache of arrays: one .npz for each thing, found by its key, made again where it is missing or damaged."""

import hashlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.errors import DataError
from fedlatest.paths import cache_folder

Arrays = Mapping[str, npt.NDArray[Any]]
KEY = "key"


class Source(NamedTuple):
    """A file, and the sha256 of its content."""

    path: Path
    checksum: str


def cached(name: str, key: str, make: Callable[[], Arrays]) -> Arrays:
    """What `make` makes, or what it made before under the same name and key; a cache out of reach is no error."""
    path = cache_folder() / "parsed" / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:24]}.npz"
    found = _load(path, key)
    if found is None:
        found = make()
        with suppress(OSError):
            _save(path, key, found)
    return found


def source(path: Path) -> Source:
    """A file with its sha256, read off its content."""
    try:
        with path.open("rb") as file:
            return Source(path, hashlib.file_digest(file, "sha256").hexdigest())
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error})") from error


def pack(words: Sequence[str]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """Words as one array of bytes and their lengths in it, whatever characters they hold.

    >>> pack(["to", "be"])[0].tobytes()
    b'tobe'
    """
    encoded = [word.encode() for word in words]
    lengths = np.array([len(word) for word in encoded], np.int32)
    return np.frombuffer(b"".join(encoded), np.uint8), lengths


def unpack(content: npt.NDArray[np.uint8], lengths: npt.NDArray[np.int32]) -> list[str]:
    """What `pack` packed.

    >>> unpack(*pack(["to", "", "be"]))
    ['to', '', 'be']
    """
    joined, ends = content.tobytes(), np.cumsum(lengths, dtype=np.int64)
    return [joined[end - length : end].decode() for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)]


def _load(path: Path, key: str) -> Arrays | None:
    """The arrays; None if the file is not there, cannot be read to its end or was made for another key."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
            arrays = {name: content[name] for name in content.files}  # a wrong CRC is an error here
    except Exception:  # what a damaged file brings about is beyond listing; it is made again
        return None
    return arrays if arrays.pop(KEY, np.zeros(0)).tobytes() == key.encode() else None


def _save(path: Path, key: str, arrays: Arrays) -> None:
    """Write beside `path`, then take its place; of several processes at it the last one wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".draft-") as folder:
        draft = Path(folder) / path.name
        with draft.open("wb") as file:
            np.savez(file, **arrays, **{KEY: np.frombuffer(key.encode(), np.uint8)})  # type: ignore[arg-type]
        draft.replace(path)
