"""A cache of arrays on disk: one .npz file per entry, recomputed if it is missing or damaged."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.bounded_reading import read_npz
from fedlatest.errors import DataError, FedlatestError
from fedlatest.files import acquire_lock, release_lock, write_atomically
from fedlatest.paths import cache_folder

Arrays = Mapping[str, npt.NDArray[Any]]
KEY = "key"  # the array that stores an entry's key


class HashedFile(NamedTuple):
    """A file and the SHA-256 of its content."""

    path: Path
    checksum: str


def cached(name: str, key: str, compute: Callable[[], Arrays]) -> Arrays:
    """Return the arrays that `compute` returned before for this name and key, or call it and store the result.

    A cache that cannot be read or written is not an error.

    Args:
        name: Kind of entry; the beginning of the file's name.
        key: Everything that the arrays depend on.
        compute: Function that computes the arrays.
    """
    path = cache_folder() / "parsed" / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:24]}.npz"
    arrays = _load(path, key)
    if arrays is None:
        arrays = compute()
        with suppress(OSError, FedlatestError):
            _save(path, key, arrays)
    return arrays


def write_shared(path: Path, write: Callable[[Path], None]) -> None:
    """Write a file of the cache with `write_atomically`, while no other process writes to its folder."""
    lock = acquire_lock(path.parent, wait=True)  # otherwise two processes could use the same temporary file
    try:
        write_atomically(path, write)
    finally:
        release_lock(lock)


def hash_file(path: Path) -> HashedFile:
    """Return a file with the SHA-256 of its content."""
    try:
        with path.open("rb") as file:
            return HashedFile(path, hashlib.file_digest(file, "sha256").hexdigest())
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error})") from error


def pack_strings(strings: Sequence[str]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """Return the UTF-8 bytes of all strings in one array, and the length of each string in bytes.

    >>> pack_strings(["to", "be"])[0].tobytes()
    b'tobe'
    """
    encoded = [string.encode() for string in strings]
    lengths = np.array([len(string) for string in encoded], np.int32)
    return np.frombuffer(b"".join(encoded), np.uint8), lengths


def unpack_strings(content: npt.NDArray[np.uint8], lengths: npt.NDArray[np.int32]) -> list[str]:
    """Return the strings that `pack_strings` packed.

    >>> unpack_strings(*pack_strings(["to", "", "be"]))
    ['to', '', 'be']
    """
    joined, ends = content.tobytes(), np.cumsum(lengths, dtype=np.int64)
    return [joined[end - length : end].decode() for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)]


def _load(path: Path, key: str) -> Arrays | None:
    """Return the arrays, or None if the file does not exist, is damaged or was written for another key."""
    try:
        # Entries are not compressed, so that they are no larger than their file. Raises if a CRC does not match.
        arrays = read_npz(path, limit=path.stat().st_size)
    except Exception:  # a damaged file can cause many kinds of errors; in all cases the entry is recomputed
        return None
    return arrays if arrays.pop(KEY, np.zeros(0)).tobytes() == key.encode() else None


def _save(path: Path, key: str, arrays: Arrays) -> None:
    def write(draft: Path) -> None:
        with draft.open("wb") as file:
            np.savez(file, **arrays, **{KEY: np.frombuffer(key.encode(), np.uint8)})  # type: ignore[arg-type]

    path.parent.mkdir(parents=True, exist_ok=True)
    write_shared(path, write)
