"""Files that are either whole or not there."""

import csv
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from fedlatest.errors import RunFolderError

try:
    import fcntl
except ImportError:  # Windows has no such lock; there, two processes in one place are the user's to avoid
    fcntl = None  # type: ignore[assignment]

DRAFT = ".draft"


def write_atomically(path: Path, write: Callable[[Path], None], *, mode: int = 0o644) -> None:
    """Write beside `path`, force it to the disk, then take its place; a failure leaves what was there before."""
    draft = path.with_name(f".{path.name}{DRAFT}")
    try:
        write(draft)
        draft.chmod(mode)
        sync(draft)
        draft.replace(path)
        sync(path.parent)
    except BaseException as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        if not isinstance(error, OSError | SafetensorError):
            raise
        raise RunFolderError(f"{path}: could not be written ({error}); what was there before is intact") from error


def write_text(path: Path, text: str) -> None:
    """Write a text, atomically."""

    def write(draft: Path) -> None:
        draft.write_text(text, encoding="utf-8")

    write_atomically(path, write)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object, atomically."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def write_csv(path: Path, rows: Iterable[Sequence[Any]]) -> None:
    """Write a CSV, atomically."""

    def write(draft: Path) -> None:
        with draft.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)

    write_atomically(path, write)


def sync(path: Path) -> None:
    """Force a file or a folder's entries to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def take_lock(path: Path, *, wait: bool = False) -> int | None:
    """Lock a file or a folder for this process, until the descriptor that is returned is closed.

    Where another process holds it, `BlockingIOError` is raised, or that process is waited for.
    """
    if fcntl is None:
        return None
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def release_lock(descriptor: int | None) -> None:
    """Let go of a lock."""
    if descriptor is not None:
        os.close(descriptor)
