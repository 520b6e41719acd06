"""Folders and files that only their owner can read: a deployment contains keys, ledgers, updates and logs."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

UMASK = 0o077  # of the processes that a deployment starts
_FOLDER_MODE, _FILE_MODE = 0o700, 0o600


@contextmanager
def private_umask() -> Iterator[None]:
    """Context in which all files that this process creates are private."""
    before = os.umask(UMASK)
    try:
        yield
    finally:
        os.umask(before)


def make_folder(folder: Path) -> None:
    """Create a folder, or take the permissions of others from an existing one; missing parents have the usual mode."""
    folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    folder.chmod(_FOLDER_MODE)


def open_to_append(path: Path) -> BinaryIO:
    """Open a file to append to it; it is created if necessary, and others lose their permissions."""
    file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, _FILE_MODE), "ab")
    os.fchmod(file.fileno(), _FILE_MODE)
    return file


def write(path: Path, content: str | bytes, *, new: bool = False) -> None:
    """Write a file.

    Args:
        path: The file.
        content: Its content; a string is written as UTF-8.
        new: Raise FileExistsError if the file exists.
    """
    kind = os.O_EXCL if new else os.O_TRUNC
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | kind, _FILE_MODE), "wb") as file:
        os.fchmod(file.fileno(), _FILE_MODE)
        file.write(content.encode() if isinstance(content, str) else content)
