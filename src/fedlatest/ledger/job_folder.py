"""Where things lie in a job's folder, and in the folder of a deployment on one machine around it."""

import json
import os
import shutil
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO

from fedlatest.errors import LedgerError
from fedlatest.files import sync
from fedlatest.ledger.client_store import ClientStore, Folder

LEDGER = "ledger.sqlite"


def find_ledger(path: Path) -> Path:
    """The ledger of a job, named by its file, its folder, or the folder of a deployment that holds the job."""
    for candidate in (path, path / LEDGER, path / "job" / LEDGER):
        if candidate.is_file():
            return candidate
    raise LedgerError(f"{path}: holds no job (no {LEDGER}); name the folder that the server's `job` setting names")


def find_stores(ledger: Path) -> list[ClientStore]:
    """The stores of clients on this machine that lie where `fedlatest deploy local` puts them."""
    nodes = ledger.parent.parent / "nodes"
    return [open_store(folder) for folder in sorted(nodes.glob("*/state"))]


def open_store(folder: Path) -> ClientStore:
    """A client's store, which must be there."""
    if not folder.is_dir():
        raise LedgerError(f"{folder}: is not a client's state folder")
    return ClientStore(Folder(folder))


def leave_jobs(folder: Path, *, undo: bool = False) -> list[str]:
    """Ask to be taken out of all jobs that a client's state folder knows of, or take that back; their ids."""
    store = open_store(folder)
    known = sorted(path.parent.name for path in folder.glob("*/state.json"))
    return [job for job in known if (store.stay(job) if undo else store.leave(job))]


def back_up(ledger: Path, copy: Path) -> None:
    """Copy a ledger as it is at one moment, also while a server is at work."""
    if copy.exists():
        raise LedgerError(f"{copy}: is there already; choose another name")
    source = sqlite3.connect(ledger)
    try:
        with closing(sqlite3.connect(copy)) as target:
            source.backup(target)
    except sqlite3.Error as error:
        raise LedgerError(f"{ledger}: could not be copied to {copy} ({error})") from error
    finally:
        source.close()
    sync(copy)


def restore(ledger: Path, copy: Path) -> None:
    """Put a copy in the place of a ledger, and nothing of the old one beside it: its log would be played into it."""
    if not copy.is_file():
        raise LedgerError(f"{copy}: there is no such copy")
    with closing(sqlite3.connect(copy)) as source:
        try:
            source.execute("SELECT round FROM state")
        except sqlite3.Error as error:
            raise LedgerError(f"{copy}: is not a copy of a ledger ({error})") from error
    draft = ledger.with_name(f"{ledger.name}.restored")
    shutil.copyfile(copy, draft)
    sync(draft)
    for ending in ("-wal", "-shm"):
        ledger.with_name(ledger.name + ending).unlink(missing_ok=True)
    draft.replace(ledger)
    sync(ledger.parent)


Event = Mapping[str, Any]


def append_event(path: Path, event: str, **facts: Any) -> None:
    """Add a line with the time, in one write."""
    stamp = {"time": round(time.time(), 3), "event": event}
    line = json.dumps({**stamp, **facts, **stamp})  # first to see, and not to be replaced
    with path.open("a+b") as file:
        torn = file.tell() > 0 and _last_byte(file) != b"\n"  # a crash cut the last line short
        file.write(f"{'' if not torn else chr(10)}{line}\n".encode())


def _last_byte(file: BinaryIO) -> bytes:
    file.seek(-1, os.SEEK_END)
    return file.read(1)


class EventReader:
    """Reads a log that grows: each call gives what is new. A last line that is not whole yet waits for its end.

    A line that a crash cut short and another writer went on from is nobody's event, and is left out.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def new(self) -> list[Event]:
        """Events that were written since the last call."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                content = file.read()
        except FileNotFoundError:
            return []
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [event for line in whole.splitlines() if (event := _parsed(line)) is not None]


def read_events(path: Path) -> list[Event]:
    """All whole events of a log; none if there is no log."""
    return EventReader(path).new()


def _parsed(line: bytes) -> Event | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None
