"""Atomic file writes and file locks, shared by all packages that write files.

Guarantee of the writers: after a crash or an error, `path` holds either its previous content or the complete new one.
The new content is written to a temporary file in the same folder and forced to disk (fsync), then renamed to `path`,
and the rename is forced to disk. `tests/ledger/test_folder_storage.py` checks this order of system calls.
"""

import csv
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from fedlatest.errors import FedlatestError, RunFolderError

try:
    import fcntl
except ImportError:  # Windows has no flock; there, users must not start two processes in one folder
    fcntl = None  # type: ignore[assignment]

DRAFT = ".draft"  # suffix of the temporary files


def write_atomically(
    path: Path,
    write: Callable[[Path], None],
    *,
    mode: int = 0o644,
    error: type[FedlatestError] = RunFolderError,
) -> None:
    """Replace a file by a new one, completely or not at all.

    Args:
        path: the file to write; its folder must exist.
        write: writes the new content to the temporary file whose path it is given.
        mode: permissions of the new file.
        error: the exception to raise if the file cannot be written.

    Raises:
        error: the file could not be written. `path` holds its previous content or, if only the last sync failed, the
            new content, which a power failure may undo. The message says which.
    """
    draft = path.with_name(f".{path.name}{DRAFT}")
    state = "its previous content is unchanged"
    try:
        write(draft)
        draft.chmod(mode)
        sync(draft)
        draft.replace(path)
        state = "it has its new content, which a power failure may undo"
        sync(path.parent)
    except BaseException as problem:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        if not isinstance(problem, OSError | SafetensorError):
            raise
        raise error(f"{path}: could not be written ({problem}); {state}") from problem


def write_text(path: Path, text: str, *, error: type[FedlatestError] = RunFolderError) -> None:
    """Write a UTF-8 text file atomically; raise `error` if that fails."""

    def write(draft: Path) -> None:
        draft.write_text(text, encoding="utf-8")

    write_atomically(path, write, error=error)


def write_csv(path: Path, rows: Iterable[Sequence[Any]], *, error: type[FedlatestError] = RunFolderError) -> None:
    """Write rows as a CSV file atomically; raise `error` if that fails."""

    def write(draft: Path) -> None:
        with draft.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)

    write_atomically(path, write, error=error)


def sync(path: Path) -> None:
    """Force a file's content, or a folder's list of entries, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def acquire_lock(path: Path, *, wait: bool = False, shared: bool = False) -> int | None:
    """Lock a file or folder for this process; pass the returned descriptor to `release_lock`.

    The operating system releases the lock when the process ends, whatever the cause.

    Args:
        path: the file or folder, which must exist.
        wait: wait until the lock is free, instead of raising.
        shared: take a shared lock, which several processes can hold at a time, but not beside an exclusive one.

    Returns:
        The descriptor that holds the lock, or None where locks are not supported.

    Raises:
        BlockingIOError: another process holds the lock, or an exclusive one if `shared` is set, and `wait` is False.
    """
    if fcntl is None:
        return None
    descriptor = os.open(path, os.O_RDONLY)
    try:
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def release_lock(descriptor: int | None) -> None:
    """Release a lock that `acquire_lock` returned."""
    if descriptor is not None:
        os.close(descriptor)
