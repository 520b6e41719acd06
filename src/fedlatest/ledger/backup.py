"""Backup and restore of a ledger.

A backup is one SQLite file that contains all arrays. Beside it is its SHA-256, in the format of `sha256sum`. A restore
checks the whole backup first, keeps the old ledger in a folder beside the new one, and replaces it with one rename:
after a crash at any time, the old ledger is in place, complete, or the new one.
"""

import hashlib
import math
import os
import shutil
import sqlite3
import time
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedlatest.errors import FedlatestError, LedgerError
from fedlatest.files import acquire_lock, release_lock, sync
from fedlatest.ledger.client_table import ClientTable
from fedlatest.ledger.database import Database, read_job
from fedlatest.ledger.event_log import read_events
from fedlatest.ledger.job_folder import EVENTS, LEDGER, recorded_job
from fedlatest.ledger.schema import migrate

LOGS = ("-wal", "-journal", "-shm")  # suffixes of SQLite's files beside a database


class Restored(NamedTuple):
    """The result of a restore."""

    kept: Path | None  # the folder with the old ledger; None if there was none
    has_hash: bool  # whether a file with the hash of the backup was beside it


def hash_file(copy: Path) -> Path:
    """Return the name of the file with the hash of a backup.

    >>> hash_file(Path("monday.sqlite")).name
    'monday.sqlite.sha256'
    """
    return copy.with_name(f"{copy.name}.sha256")


def back_up(ledger: Path, copy: Path) -> None:
    """Copy a ledger as of one moment to a new file, also while a server writes to it, and write the hash of the copy.

    The copy is complete and was checked, or does not exist.

    Raises:
        LedgerError: the copy exists, another backup is writing it, the ledger is damaged, or a file cannot be used.
    """
    if copy.exists():
        raise LedgerError(f"{copy}: already exists; choose another name")

    def write_draft() -> None:
        for suffix in ("", *LOGS):  # of an attempt before
            draft.with_name(draft.name + suffix).unlink(missing_ok=True)
        os.close(os.open(draft, os.O_CREAT | os.O_RDWR, 0o600))
        with closing(sqlite3.connect(draft, isolation_level=None)) as target:
            source.connection.backup(target)
            target.execute("PRAGMA journal_mode=DELETE")
            Database(target).inline_arrays(source)

    busy = f"{copy}: another `fedlatest backup` is writing it; wait until it is done, or choose another name"
    with (
        Database.open_for_reading(ledger) as source,
        _explaining_errors(f"{copy}: could not be written"),
        _draft_folder(copy.with_name(f".{copy.name}.backup"), busy=busy) as folder,
    ):
        if copy.exists():  # another backup was faster
            raise LedgerError(f"{copy}: already exists; choose another name")
        draft, hashed = folder / "copy", folder / "hash"
        source.snapshot(write_draft)
        with closing(sqlite3.connect(draft, isolation_level=None)) as target:
            _check_content(Database(target), f"{ledger}: is damaged ({{}}); restore a backup with `fedlatest restore`")
        hashed.write_text(f"{_hash_of(draft)}  {copy.name}\n", encoding="utf-8")
        hashed.chmod(0o600)
        for path, name in ((hashed, hash_file(copy)), (draft, copy)):  # a copy is never without its hash
            sync(path)
            path.replace(name)
            sync(copy.parent)


def restore(ledger: Path, copy: Path) -> Restored:
    """Replace a ledger by a backup of the same job, while no server runs; its folder is created if it does not exist.

    The backup is copied and the copy is checked first: its hash, the structure of the database, and the checksums of
    all arrays. The copy of an earlier version's ledger is converted. The old ledger is kept, with its log and its
    arrays, in a folder beside the new one.

    Models that were released after the backup stay released. In a private job the new ledger therefore gets the number
    of releases of the old one or, if that is damaged, of the event log; and noise that is correlated over rounds starts
    anew.

    Raises:
        LedgerError: the ledger is in use, the backup is damaged or of another job, or a file cannot be used. The ledger
            is as it was.
    """
    if not copy.is_file():
        raise LedgerError(f"{copy}: there is no such copy")
    with _explaining_errors(f"{ledger}: could not be replaced, and is as it was"), _locked(ledger) as folder:
        draft = folder / LEDGER
        shutil.copyfile(copy, draft)
        draft.chmod(0o600)
        has_hash = _check_hash(copy, draft)
        with closing(sqlite3.connect(draft, isolation_level=None)) as target:
            _check_copy(Database(target), copy)
            migrate(Database(target), str(copy))
            _check_same_job(ledger, copy, target.execute("SELECT id FROM job").fetchone()[0])
            target.execute("UPDATE state SET releases = max(releases, ?)", (_num_releases(ledger),))
            target.execute("UPDATE rounds SET noise_seed = NULL")
        sync(draft)
        kept = _keep(ledger, folder / "old")
        _write_log_into_file(ledger)
        draft.replace(ledger)
        with _explaining_errors(f"{ledger}: was replaced, but a power failure may undo this"):
            sync(ledger.parent)
    return Restored(kept, has_hash)


# Checks of a copy


def _check_hash(copy: Path, draft: Path) -> bool:
    """Compare the content of a copy with its hash; return False if there is no file with a hash."""
    try:
        expected = hash_file(copy).read_bytes()
    except FileNotFoundError:
        return False
    if expected[:64] != _hash_of(draft).encode():
        raise LedgerError(
            f"{copy}: is damaged (its SHA-256 is not the one in {hash_file(copy).name}); choose another backup"
        )
    return True


def _check_copy(target: Database, copy: Path) -> None:
    """Raise LedgerError unless a copy is a complete and intact ledger."""
    wrong = f"{copy}: is not a copy of a ledger, or is damaged ({{}}); choose a file of `fedlatest backup`"
    if any(_size(copy.with_name(copy.name + suffix)) for suffix in LOGS[:2]):
        raise LedgerError(wrong.format("SQLite's log is beside it"))
    _check_content(target, wrong)
    [(whole,)] = target.rows("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
    if _size(copy) != whole:
        raise LedgerError(wrong.format(f"it has {_size(copy)} bytes instead of {whole}"))
    if target.rows("SELECT 1 FROM arrays WHERE file IS NOT NULL"):
        raise LedgerError(wrong.format("it lacks the files of its arrays"))


def _check_content(target: Database, wrong: str) -> None:
    """Check the structure, the job, the clients and the arrays of a copy; raise LedgerError with the text `wrong`."""
    try:
        target.execute("PRAGMA journal_mode=DELETE")
        [(problem,)] = target.rows("PRAGMA integrity_check(1)")
        if problem != "ok":
            raise LedgerError(problem.splitlines()[-1])
        is_current = target.has_current_schema()
        read_job(target)
        [_] = target.rows("SELECT round FROM state")
        if is_current:
            ClientTable(target)
        _check_arrays(target)
    except (FedlatestError, ValueError, TypeError, LookupError) as error:
        raise LedgerError(wrong.format(error.__cause__ or error)) from error


def _check_arrays(target: Database) -> None:
    """Raise LedgerError if a part of an array is missing or has another checksum; read one part at a time."""
    open_array, missing = ("", ""), 0  # bytes of this array that come after the parts so far
    query = "SELECT owner, name, chunk, dtype, shape, checksum, content FROM arrays WHERE file IS NULL"
    for owner, name, start, dtype, shape, checksum, content in target.connection.execute(
        f"{query} ORDER BY owner, name, chunk"
    ):
        size = np.dtype(dtype).itemsize * math.prod(int(length) for length in shape.split(",") if length)
        if (owner, name) != open_array:
            if missing:
                break
            open_array, missing = (owner, name), size
        if start != size - missing or zlib.crc32(content) != checksum:
            raise LedgerError(f"the array {name!r} of {owner!r} has another checksum")
        missing -= len(content)
    if missing:
        raise LedgerError("the array {1!r} of {0!r} is incomplete".format(*open_array))


def _check_same_job(ledger: Path, copy: Path, copied: str) -> None:
    """Raise LedgerError if the copy is of another job than the ledger it is to replace."""
    current = (_job_of(ledger) if ledger.is_file() else None) or recorded_job(ledger.parent)
    if current is not None and current != copied:
        raise LedgerError(f"{copy}: is of the job {copied}, {ledger.parent} holds the job {current}; choose its backup")


def _job_of(ledger: Path) -> str | None:
    """Return the id of a ledger's job, or None if the file is empty or damaged."""
    try:
        with Database.open_for_reading(ledger) as database:
            [(job,)] = database.rows("SELECT id FROM job")
            database.rows("SELECT round FROM state")
    except (LedgerError, ValueError):
        return None
    return str(job)


def _num_releases(ledger: Path) -> int:
    """Return how many rounds of a job were released, according to its ledger and its event log."""
    merged = [event for event in read_events(ledger.parent / EVENTS) if event["event"] == "merged"]
    recorded = max([len(merged), *(event.get("releases", 0) for event in merged)])
    if _job_of(ledger) is None:
        return recorded + 1 if merged else 0  # a round may have been committed but not written to the event log
    with Database.open_for_reading(ledger) as database:
        try:
            [(releases,)] = database.rows("SELECT releases FROM state")
        except LedgerError:
            return recorded
    return max(recorded, releases)


# The old ledger


def _keep(ledger: Path, draft: Path) -> Path | None:
    """Copy a ledger, its log and its arrays, damaged or not, to a new folder beside it; return the folder."""
    files = [path for path in (ledger, ledger.with_name(ledger.name + "-wal")) if path.exists()]
    if not files:
        return None
    arrays = ledger.with_name(f"{ledger.stem}.arrays")
    draft.mkdir(mode=0o700)
    for path in files:
        shutil.copyfile(path, draft / path.name)
        (draft / path.name).chmod(0o600)
        sync(draft / path.name)
    if arrays.is_dir():
        shutil.copytree(arrays, draft / arrays.name, copy_function=_link)  # their content never changes
        sync(draft / arrays.name)
    sync(draft)
    stamp = time.strftime("replaced-%Y%m%dT%H%M%SZ", time.gmtime())
    names = (ledger.with_name(stamp + (f"-{number}" if number else "")) for number in range(1000))
    kept = next(name for name in names if not name.exists())
    draft.rename(kept)
    sync(ledger.parent)
    return kept


def _link(source: str, target: str) -> None:
    """Give a file a second name or, where the file system has no hard links, copy it."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        sync(Path(target))


def _write_log_into_file(ledger: Path) -> None:
    """Write the log of the old ledger into its file, and remove the log: SQLite would apply it to the new ledger.

    The old ledger keeps its content. Of a damaged one only the copy in the other folder is complete.
    """
    try:
        if _size(ledger):
            with closing(sqlite3.connect(ledger, isolation_level=None, timeout=30.0)) as old:
                if old.execute("PRAGMA journal_mode=DELETE").fetchone() != ("delete",):
                    raise LedgerError(f"{ledger}: another program is reading it; try again when it is done")
    except sqlite3.DatabaseError as error:
        if not error.sqlite_errorname.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            raise
    for suffix in LOGS:
        ledger.with_name(ledger.name + suffix).unlink(missing_ok=True)
    sync(ledger.parent)


# Files and locks


@contextmanager
def _locked(ledger: Path) -> Iterator[Path]:
    """Lock the folder of a ledger against servers and other restores; yield an empty folder in it for drafts."""
    is_new = not ledger.parent.exists()
    ledger.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        lock = acquire_lock(ledger.parent)
    except BlockingIOError:
        raise LedgerError(f"{ledger}: {_user_of(ledger.parent)}") from None
    try:
        with _draft_folder(ledger.with_name(".restore"), busy=f"{ledger}: another `fedlatest restore` runs") as folder:
            yield folder
    finally:
        if is_new:
            with suppress(OSError):  # it is not empty if the restore was successful
                ledger.parent.rmdir()
        release_lock(lock)


def _user_of(folder: Path) -> str:
    """Return who has locked the folder of a ledger, and what to do: servers share their lock, a restore does not."""
    try:
        release_lock(acquire_lock(folder, shared=True))
    except BlockingIOError:
        return "another `fedlatest restore` is replacing it; wait until it is done"
    return "a server is using it; stop the server first"


@contextmanager
def _draft_folder(folder: Path, *, busy: str) -> Iterator[Path]:
    """Create a folder and lock it, or take over the one that a killed process has left; remove it at the end.

    Args:
        folder: the folder.
        busy: text of the LedgerError if another process has locked it.
    """
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        try:
            lock = acquire_lock(folder)
        except FileNotFoundError:  # the other process has just removed it
            continue
        except BlockingIOError:
            raise LedgerError(busy) from None
        if lock is None or (folder.exists() and os.path.samestat(os.fstat(lock), folder.stat())):
            break
        release_lock(lock)
    try:
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        release_lock(lock)


@contextmanager
def _explaining_errors(what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        cause = error.strerror or error if isinstance(error, OSError) else error
        raise LedgerError(f"{what} ({cause})") from error


def _hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
