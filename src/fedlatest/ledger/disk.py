"""A small durable place for named contents: each is there as it was last written, or not at all."""

import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from fedlatest.errors import LedgerError
from fedlatest.files import release_lock, sync, take_lock, write_atomically


class Disk(Protocol):
    """What a client's store needs of the place where it lies; `put` returns once the content cannot be lost."""

    def get(self, name: str) -> bytes | None:
        """The content under a name, if there is one."""

    def put(self, name: str, content: bytes) -> None:
        """Put a content under a name, in place of what was there: all of it or, at a crash, none."""

    def drop(self, name: str) -> None:
        """Remove a name, if it is there."""

    def names(self, folder: str) -> list[str]:
        """All names that begin with `folder/`."""

    def lock(self) -> AbstractContextManager[None]:
        """Hold others off for a while."""


class Folder:
    """A folder of files; writes are forced to the disk before they take their place."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LedgerError(f"{self.path}: cannot be made ({error.strerror}); choose another state folder") from error

    def get(self, name: str) -> bytes | None:
        """The content of a file."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LedgerError(f"{self.path / name}: cannot be read ({error.strerror})") from error

    def put(self, name: str, content: bytes) -> None:
        """Write beside the file, force it to the disk, then take its place."""
        path = self.path / name
        try:
            if not path.parent.is_dir():
                path.parent.mkdir(parents=True)
                sync(path.parent.parent)
        except OSError as error:
            raise LedgerError(f"{path.parent}: cannot be made ({error.strerror})") from error

        def write(draft: Path) -> None:
            draft.write_bytes(content)

        write_atomically(path, write, mode=0o600)

    def drop(self, name: str) -> None:
        """Delete a file."""
        (self.path / name).unlink(missing_ok=True)

    def names(self, folder: str) -> list[str]:
        """The files in a folder below this one, with the drafts of writes that a crash cut short."""
        return sorted(f"{folder}/{path.name}" for path in (self.path / folder).glob("*"))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Wait until no other process holds the folder's lock, then hold it."""
        descriptor = take_lock(self.path, wait=True)
        try:
            yield
        finally:
            release_lock(descriptor)


def durable_id(disk: Disk) -> str:
    """The name that a client made for itself once, here."""
    with disk.lock():
        known = disk.get("client-id")
        if known is None:
            known = uuid.uuid4().hex.encode()
            disk.put("client-id", known)
    return known.decode()
