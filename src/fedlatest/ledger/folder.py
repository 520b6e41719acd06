"""Where things lie in a job's folder, and in the folder of a deployment on one machine around it."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from fedlatest.errors import LedgerError
from fedlatest.files import sync
from fedlatest.ledger.disk import Folder
from fedlatest.ledger.store import ClientStore

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
