"""The files of a job: where they are, and requests of an operator.

Expected folders, as `fedlatest deploy local` creates them:

    DEPLOYMENT/job/ledger.sqlite
    DEPLOYMENT/nodes/NAME/state/      the state folder of one client
"""

import sqlite3
from contextlib import closing
from pathlib import Path

from fedlatest.errors import LedgerError
from fedlatest.ledger.client_store import ClientStore, FolderStorage
from fedlatest.ledger.database import Database
from fedlatest.ledger.event_log import read_events

LEDGER, EVENTS = "ledger.sqlite", "events.jsonl"


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


def find_client(ledger: Path, client: str) -> str:
    """Return the id of a client, given its id or the name of its key; raise LedgerError if no client has it."""
    with Database.open_for_reading(ledger) as database:
        found = database.rows("SELECT client FROM clients WHERE client = ? OR name = ?", client, client)
        known = database.rows("SELECT client FROM expelled WHERE client = ?", client)
    if len(found) > 1:
        ids = ", ".join(identifier for (identifier,) in found)
        raise LedgerError(f"{client}: several clients have this name ({ids}); give the id")
    if not found and not known:
        raise LedgerError(f"{client}: no client of the job has this id or name; `fedlatest audit` lists the clients")
    return str((found or known)[0][0])


def expel(ledger: Path, client: str, *, undo: bool = False) -> None:
    """Bar a client from a job, or readmit it; a running server removes it and its update after its current round.

    Args:
        ledger: the ledger's file.
        client: id of the client.
        undo: readmit the client.
    """
    with Database.open(ledger) as database, database.write():
        statement = "DELETE FROM expelled WHERE client = ?" if undo else "INSERT OR IGNORE INTO expelled VALUES (?)"
        database.execute(statement, client)


def end_epoch(ledger: Path) -> int:
    """Ask for the end of the current epoch and return its number.

    A running server starts a new epoch after its current round, otherwise the next server starts one before its first.
    """
    with Database.open(ledger) as database, database.write():
        if not database.has_current_schema():
            raise LedgerError(f"{ledger}: an earlier fedlatest has written it; start a server of this version first")
        database.execute("UPDATE state SET ending_epoch = epoch")
        [(epoch,)] = database.rows("SELECT epoch FROM state")
        return int(epoch)


def check_not_lost(ledger: Path) -> None:
    """Raise LedgerError if the ledger is missing or holds no job, but its folder shows that the job has a past."""
    if ledger.is_file() and ledger.stat().st_size > 0 and not _is_empty_database(ledger):
        return
    past = recorded_job(ledger.parent)
    if past is not None:
        raise LedgerError(
            f"{ledger}: is missing or empty, but {EVENTS} beside it records the job {past}. Restore a backup with "
            f"`fedlatest restore {ledger.parent} COPY`; to start afresh, choose another job folder or move this one "
            "away"
        )


def recorded_job(folder: Path) -> str | None:
    """Return the id of the job that the event log in a folder records; None if there is none.

    Every round records it: the events of the start may have been rotated out.
    """
    jobs = [str(event["job"]) for event in read_events(folder / EVENTS) if event.get("job")]
    return jobs[-1] if jobs else None


def _is_empty_database(file: Path) -> bool:
    """Whether a file is an intact SQLite database without a job."""
    try:
        with closing(sqlite3.connect(file)) as connection:
            return not connection.execute("SELECT name FROM sqlite_master WHERE name = 'job'").fetchall()
    except sqlite3.Error:
        return False
