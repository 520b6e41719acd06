"""The files of a job: where they are, backup and restore of the ledger, and the event log.

Expected folders, as `fedlatest deploy local` creates them:

    DEPLOYMENT/job/ledger.sqlite
    DEPLOYMENT/nodes/NAME/state/      the state folder of one client
"""

import json
import os
import shutil
import sqlite3
import stat
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO

from fedlatest.errors import LedgerError
from fedlatest.files import sync, write_atomically
from fedlatest.ledger.client_store import ClientStore, FolderStorage

LEDGER = "ledger.sqlite"
Event = Mapping[str, Any]


def find_ledger(path: Path) -> Path:
    """Return the ledger's file, given the file, the job's folder, or the folder of a deployment that holds the job."""
    for candidate in (path, path / LEDGER, path / "job" / LEDGER):
        if candidate.is_file():
            return candidate
    raise LedgerError(f"{path}: holds no job (no {LEDGER}); name the folder that the server's `job` setting names")


def find_stores(ledger: Path) -> list[ClientStore]:
    """Return the stores of the clients of a local deployment, given its ledger's file."""
    nodes = ledger.parent.parent / "nodes"
    return [open_store(folder) for folder in sorted(nodes.glob("*/state"))]


def open_store(folder: Path) -> ClientStore:
    """Return the client's store in an existing state folder."""
    if not folder.is_dir():
        raise LedgerError(f"{folder}: is not a client's state folder")
    return ClientStore(FolderStorage(folder))


def leave_jobs(folder: Path, *, undo: bool = False) -> list[str]:
    """Ask to leave all jobs in a client's state folder, or cancel that with `undo`; return the ids of the jobs."""
    store = open_store(folder)
    known = sorted(path.parent.name for path in folder.glob("*/state.json"))
    return [job for job in known if (store.cancel_leave(job) if undo else store.leave(job))]


def back_up(ledger: Path, copy: Path) -> None:
    """Copy a ledger as of one moment to a new file, also while a server writes to it.

    The copy is complete or does not exist.
    """
    if copy.exists():
        raise LedgerError(f"{copy}: already exists; choose another name")

    def write(draft: Path) -> None:
        try:
            with closing(sqlite3.connect(ledger)) as source, closing(sqlite3.connect(draft)) as target:
                source.backup(target)
        except sqlite3.Error as error:
            raise LedgerError(f"{ledger}: could not be copied to {copy} ({error})") from error

    write_atomically(copy, write, mode=_permissions(ledger), error=LedgerError)


def restore(ledger: Path, copy: Path) -> None:
    """Replace a ledger by a copy, while no server runs.

    The write-ahead log of the old ledger is deleted, because SQLite would apply it to the copy. An error while the copy
    is written leaves the old ledger with its log.
    """
    if not copy.is_file():
        raise LedgerError(f"{copy}: there is no such copy")
    with closing(sqlite3.connect(copy)) as source:
        try:
            source.execute("SELECT round FROM state")
        except sqlite3.Error as error:
            raise LedgerError(f"{copy}: is not a copy of a ledger ({error})") from error

    def write(draft: Path) -> None:
        shutil.copyfile(copy, draft)
        sync(draft)  # the old ledger needs its log until the copy is complete
        for suffix in ("-wal", "-shm"):
            ledger.with_name(ledger.name + suffix).unlink(missing_ok=True)

    write_atomically(ledger, write, mode=_permissions(copy), error=LedgerError)


def _permissions(path: Path) -> int:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise LedgerError(f"{path}: cannot be read ({error.strerror})") from error


def append_event(path: Path, event: str, **facts: Any) -> None:
    """Append an event with the current time to an event log: one JSON object per line, in one write."""
    stamp = {"time": round(time.time(), 3), "event": event}
    line = json.dumps({**stamp, **facts, **stamp})  # the stamp comes first, and facts cannot replace it
    with path.open("a+b") as file:
        is_torn = file.tell() > 0 and _last_byte(file) != b"\n"  # a crash truncated the last line
        file.write(f"{chr(10) if is_torn else ''}{line}\n".encode())


class EventReader:
    """Reads an event log while it grows.

    An incomplete last line is returned by a later call, when it is complete. Lines that a crash truncated are skipped.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def new(self) -> list[Event]:
        """Return the events that were written since the last call."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                content = file.read()
        except FileNotFoundError:
            return []
        complete = content[: content.rfind(b"\n") + 1]
        self._offset += len(complete)
        return [event for line in complete.splitlines() if (event := _parse_event(line)) is not None]


def read_events(path: Path) -> list[Event]:
    """Return all complete events of a log; an empty list if there is no log."""
    return EventReader(path).new()


def _last_byte(file: BinaryIO) -> bytes:
    file.seek(-1, os.SEEK_END)
    return file.read(1)


def _parse_event(line: bytes) -> Event | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None
