"""The ledger's SQLite file: transactions and stored arrays.

Guarantee: what is executed inside `Database.write` is durable completely or not at all (one transaction; write-ahead
log with synchronous=FULL). `tests/ledger/test_rounds.py` stops the server at every statement of a round, on a real
file.

Arrays from `FILE_BYTES` on are files in the folder `ledger.arrays`, so that they are written once instead of twice (to
the log and to the database). A file is complete and on disk before the transaction that names it is committed; it is
never changed. The process that commits a transaction deletes the files that this transaction has replaced. Files of
transactions that were not committed are deleted when a server opens the ledger, inside a transaction: no other process
can be about to name them.

All arrays have checksums. SQLite itself detects damage of its structure, but not of the content of a page.
"""

import json
import os
import secrets
import shutil
import sqlite3
import tempfile
import time
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from fedlatest.errors import LedgerError
from fedlatest.files import acquire_lock, release_lock, sync
from fedlatest.ledger.fixed_point import SUM_DTYPE
from fedlatest.ledger.job_config import Arrays, ArraySpec, JobConfig, Layout
from fedlatest.ledger.schema import SCHEMA, TABLES, migrate

CHUNK = 16 * 2**20  # bytes per row; SQLite cannot store a blob above 1 GB
FILE_BYTES = 2**20
_READ_ATTEMPTS = 100  # a file of a snapshot may be deleted while it is read
_Result = TypeVar("_Result")


class MissingFileError(LedgerError):
    """The file of an array is missing: it was deleted by accident, or by a server after the snapshot was taken."""


class Database:
    """A connection to a ledger's file; the context of the object closes it.

    Args:
        connection: the connection.
        path: the file; None for a database in memory, which stores all arrays in itself.
        on_close: called after the connection is closed.
    """

    def __init__(
        self, connection: sqlite3.Connection, path: Path | None = None, *, on_close: Callable[[], object] = lambda: None
    ) -> None:
        self.connection, self.path, self._on_close = connection, path, on_close
        self._replaced_files: list[str] = []  # in the current transaction
        self._folder = path.with_name(f"{path.stem}.arrays") if path is not None else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @classmethod
    def open(cls, path: Path | str, *, factory: type[sqlite3.Connection] = sqlite3.Connection) -> "Database":
        """Open the file for writing, or create it for the current user alone.

        A shared lock on its folder is held until `close`: `fedlatest restore` does not replace a file that is open.

        Raises:
            LedgerError: the file is not a SQLite database, or it is being replaced.
        """
        if str(path) == ":memory:":
            return cls(_connect(path, factory))
        file = Path(path)
        try:
            lock = acquire_lock(file.parent, shared=True)
            if not file.exists():
                os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))  # SQLite gives its log the same permissions
        except BlockingIOError:
            raise LedgerError(f"{file}: is being replaced by `fedlatest restore`; try again when it is done") from None
        except OSError as error:
            raise LedgerError(f"{file}: cannot be opened as a ledger ({error.strerror})") from error
        try:
            return cls(_connect(file, factory), file, on_close=lambda: release_lock(lock))
        except BaseException:
            release_lock(lock)
            raise

    @classmethod
    def open_for_reading(cls, path: Path | str) -> "Database":
        """Open an existing file for reading, also if its folder is not writable or another server writes to it.

        Raises:
            LedgerError: there is no such file, or it is not a ledger.
        """
        file = Path(path)
        if not file.is_file():
            raise LedgerError(f"{file}: there is no ledger")
        try:
            connection = sqlite3.connect(
                f"{file.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=30.0
            )
        except sqlite3.Error as error:
            raise LedgerError(f"{file}: cannot be read ({error})") from error
        database = cls(connection, file)
        try:
            connection.execute("SELECT name FROM sqlite_master").fetchall()
        except sqlite3.Error as error:
            database.close()
            if not error.sqlite_errorname.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")):
                raise LedgerError(f"{file}: cannot be opened as a ledger ({error})") from error
            database = cls._open_copy(file)
        try:
            if not database.has_current_schema():  # read a converted copy; a server converts the file itself
                copy = sqlite3.connect(":memory:", isolation_level=None)
                database.connection.backup(copy)
                database.close()
                database = cls(copy, file)
                migrate(database)
        except BaseException:
            database.close()
            raise
        return database

    @classmethod
    def _open_copy(cls, file: Path) -> "Database":
        """Open a copy of a file that SQLite cannot read in its folder, because it must write to a file beside it.

        A running server has created that file, so no server runs: database and log do not change while they are copied.
        """
        folder = tempfile.TemporaryDirectory(prefix="fedlatest-")
        try:
            for suffix in ("-wal", ""):
                source = file.with_name(file.name + suffix)
                if source.exists():
                    shutil.copyfile(source, Path(folder.name) / f"{file.name}{suffix}")
            connection = _connect(Path(folder.name) / file.name, sqlite3.Connection)
        except OSError as error:
            folder.cleanup()
            raise LedgerError(f"{file}: cannot be read ({error.strerror})") from error
        except BaseException:
            folder.cleanup()
            raise
        return cls(connection, file, on_close=folder.cleanup)

    @property
    def is_new(self) -> bool:
        """Whether the file holds no job yet."""
        return not self.rows("SELECT name FROM sqlite_master WHERE name = 'job'")

    def has_current_schema(self) -> bool:
        """Return whether the job in the file has the schema of this version; raise LedgerError if there is no job."""
        if self.is_new:
            raise LedgerError(f"{self.path or 'ledger'}: there is no ledger")
        return bool(self.rows("SELECT schema FROM job") == [(SCHEMA,)])

    def check_structure(self) -> None:
        """Raise LedgerError if pages of the file are damaged; arrays are checked when they are read."""
        problems = [problem for (problem,) in self.rows("PRAGMA quick_check(1)") if problem != "ok"]
        if problems:
            first = problems[0].splitlines()[-1]
            raise LedgerError(f"{self.path or 'ledger'}: {_DAMAGED.format(first)}")

    @contextmanager
    def write(self) -> Iterator[None]:
        """Run the body as one write transaction: committed at the end, rolled back on an exception.

        Raises:
            LedgerError: SQLite failed; the message has one line and says what to do.
        """
        self.execute("BEGIN IMMEDIATE")
        self._replaced_files = []
        try:
            yield
            self._sync_folder()
            self.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        for name in self._replaced_files:
            with suppress(OSError):  # the transaction is committed; the next server deletes it
                (self.files_folder / name).unlink(missing_ok=True)

    @contextmanager
    def read(self) -> Iterator[None]:
        """Run the body as one read transaction: it sees one snapshot, also while another connection writes."""
        self.execute("BEGIN")
        try:
            yield
        finally:
            self._roll_back()

    def snapshot(self, function: Callable[[], _Result]) -> _Result:
        """Return the result of a function that reads one snapshot; called again if a server deletes its files.

        Raises:
            LedgerError: a file is also missing in the next snapshot, so it was deleted by accident.
        """
        missing = ""
        for _ in range(_READ_ATTEMPTS):
            try:
                with self.read():
                    return function()
            except MissingFileError as error:
                if str(error) == missing:
                    raise
                missing = str(error)
        raise LedgerError(f"{self.path}: the server replaces its files faster than they can be read; try again later")

    def execute(self, statement: str, *values: Any) -> int:
        """Execute a statement and return the number of rows that it changed."""
        with self._explaining_errors():
            return self.connection.execute(statement, values).rowcount

    def execute_many(self, statement: str, values: Iterable[Any]) -> None:
        """Execute a statement for each of several tuples of values."""
        with self._explaining_errors():
            self.connection.executemany(statement, values)

    def rows(self, query: str, *values: Any) -> list[Any]:
        """Return the rows of a query."""
        with self._explaining_errors():
            return self.connection.execute(query, values).fetchall()

    def put_arrays(self, owner: str, arrays: Arrays) -> None:
        """Replace the arrays stored under `owner`."""
        self.delete_arrays(owner)
        for name, array in arrays.items():
            shape = ",".join(map(str, array.shape))
            content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            kind = (array.dtype.str, shape)
            if self._folder is not None and len(content) >= FILE_BYTES:
                with ThreadPoolExecutor(1) as thread:  # while the file is being written
                    checksum = thread.submit(_checksum, content)
                    file = self._write_file(content)
                self._insert_array(owner, name, 0, *kind, checksum.result(), file, None)
                continue
            for start in range(0, max(len(content), 1), CHUNK):
                part = content[start : start + CHUNK]
                self._insert_array(owner, name, start, *kind, _checksum(part), None, part)

    def get_arrays(self, owner: str) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays stored under `owner`; an empty dictionary if there are none.

        Raises:
            LedgerError: an array is damaged; a MissingFileError if its file is missing.
        """
        found: dict[str, npt.NDArray[Any]] = {}
        missing: dict[str, int] = {}  # bytes
        query = "SELECT name, chunk, dtype, shape, checksum, file, content FROM arrays WHERE owner = ? ORDER BY rowid"
        with self._explaining_errors():
            for name, start, dtype, shape, checksum, file, content in self.connection.execute(query, (owner,)):
                if name not in found:
                    found[name] = np.empty([int(length) for length in shape.split(",") if length], dtype)
                    missing[name] = found[name].nbytes
                flat = found[name].reshape(-1).view(np.uint8)
                if file is not None:
                    self._read_file(file, flat)
                    content = flat.data
                else:
                    flat[start : start + len(content)] = np.frombuffer(content, np.uint8)
                if _checksum(content) != checksum:
                    problem = f"the array {name!r} of {owner!r} has another checksum"
                    raise LedgerError(f"{self.path or 'ledger'}: {_DAMAGED.format(problem)}")
                missing[name] -= len(content)
        for name in (name for name, num_bytes in missing.items() if num_bytes):
            problem = f"the array {name!r} of {owner!r} is incomplete"
            raise LedgerError(f"{self.path or 'ledger'}: {_DAMAGED.format(problem)}")
        return found

    def delete_arrays(self, owner: str) -> None:
        """Delete the arrays stored under `owner`."""
        files = self.rows("SELECT file FROM arrays WHERE owner = ? AND file IS NOT NULL", owner)
        self._replaced_files += [file for (file,) in files]
        self.execute("DELETE FROM arrays WHERE owner = ?", owner)

    def inline_arrays(self, source: "Database") -> None:
        """Replace names of files by their content, so that this copy of `source` needs no other file."""
        query = "SELECT owner, name, dtype, shape, checksum, file FROM arrays WHERE file IS NOT NULL"
        for owner, name, dtype, shape, checksum, file in self.rows(query):
            self.execute("DELETE FROM arrays WHERE owner = ? AND name = ?", owner, name)
            path = source.files_folder / file
            start = found = 0
            with _explaining_missing(path), path.open("rb") as content:
                while part := content.read(CHUNK):
                    found = zlib.crc32(part, found)
                    self._insert_array(owner, name, start, dtype, shape, _checksum(part), None, part)
                    start += len(part)
            if found != checksum:
                raise LedgerError(f"{path}: {_DAMAGED.format('it has another checksum')}")

    def delete_unused_files(self) -> None:
        """Delete the files that no array names; called inside `write`, so that no other process can write one."""
        if self._folder is None or not self._folder.is_dir():
            return
        used = {file for (file,) in self.rows("SELECT file FROM arrays WHERE file IS NOT NULL")}
        for path in self._folder.iterdir():
            if path.name not in used:
                path.unlink(missing_ok=True)

    @property
    def files_folder(self) -> Path:
        """The folder of the array files."""
        assert self._folder is not None
        return self._folder

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self.connection.close()
        on_close, self._on_close = self._on_close, lambda: None  # a descriptor must not be closed twice
        on_close()

    def _insert_array(self, *values: Any) -> None:
        """Insert a row: owner, name, position of the chunk, dtype, shape, checksum, file, content."""
        self.execute("INSERT INTO arrays VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *values)

    def _write_file(self, content: memoryview) -> str:
        assert self._folder is not None
        name = secrets.token_hex(8)
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            with os.fdopen(os.open(self._folder / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise LedgerError(
                f"{self._folder}: cannot be written ({error.strerror}); the open round is lost, all closed ones are "
                "saved"
            ) from error
        return name

    def _read_file(self, name: str, flat: npt.NDArray[np.uint8]) -> None:
        path = self.files_folder / name
        with _explaining_missing(path), path.open("rb") as file:
            length = file.readinto(flat.data)
            size = os.fstat(file.fileno()).st_size
        if length != flat.size or size != flat.size:
            raise LedgerError(f"{path}: {_DAMAGED.format(f'it has {size} bytes instead of {flat.size}')}")

    def _roll_back(self) -> None:
        """End a transaction, unless SQLite has already done so because of an error."""
        if self.connection.in_transaction:
            with suppress(sqlite3.Error):
                self.connection.execute("ROLLBACK")

    def _sync_folder(self) -> None:
        """Make the names of new files durable."""
        if self._folder is not None and self._folder.is_dir():
            sync(self._folder)

    @contextmanager
    def _explaining_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise LedgerError(f"{self.path or 'ledger'}: {_explanation(error)}") from error


def _connect(path: Path | str, factory: type[sqlite3.Connection]) -> sqlite3.Connection:
    connection = None
    try:
        connection = sqlite3.connect(path, isolation_level=None, timeout=30.0, factory=factory)
        for pragma in ("page_size=4096", "journal_mode=WAL", "synchronous=FULL"):
            connection.execute(f"PRAGMA {pragma}")
    except sqlite3.Error as error:
        if connection is not None:
            connection.close()
        raise LedgerError(f"{path}: cannot be opened as a ledger ({error})") from error
    return connection


@contextmanager
def _explaining_missing(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise MissingFileError(f"{path}: is missing; restore a backup with `fedlatest restore`") from error
    except OSError as error:
        raise LedgerError(f"{path}: cannot be read ({error.strerror})") from error


def _checksum(content: bytes | memoryview) -> int:
    return zlib.crc32(content)


_DAMAGED = "is damaged ({}); restore a backup with `fedlatest restore`"


def _explanation(error: sqlite3.Error) -> str:
    """Return what a person can do about an error of SQLite."""
    hints = {
        "SQLITE_FULL": "the disk is full; free some space and start again: all closed rounds are saved",
        "SQLITE_CORRUPT": _DAMAGED.format(error),
        "SQLITE_NOTADB": _DAMAGED.format(error),
        "SQLITE_BUSY": "another process has been writing to it for 30 s; stop that process and start again",
        "SQLITE_READONLY": "cannot be written; check the permissions of the file and of its folder",
    }
    name = getattr(error, "sqlite_errorname", None) or ""
    known = next((hint for code, hint in hints.items() if name.startswith(code)), None)
    return known or f"cannot be read or written ({error}); all closed rounds are saved"


def read_job(database: Database) -> tuple[str, JobConfig, Layout]:
    """Return the id, the configuration and the model layout of the job."""
    [(job, config, layout)] = database.rows("SELECT id, config, layout FROM job")
    specs = (ArraySpec(name, tuple(shape), dtype) for name, shape, dtype in json.loads(layout))
    return job, JobConfig(**json.loads(config)), Layout(tuple(specs))


def read_settings(database: Database) -> dict[str, Any]:
    """Return the configuration of the job as the version of fedlatest has written it that created the job.

    Clients have stored its hash, so the settings that later versions add to `JobConfig` must not change it.
    """
    [(config,)] = database.rows("SELECT config FROM job")
    return dict(json.loads(config))


def read_noise_plan(database: Database) -> dict[str, Any] | None:
    """Return the noise plan of a private job; None for other jobs."""
    [(plan,)] = database.rows("SELECT noise_plan FROM job")
    return None if plan is None else dict(json.loads(plan))


def create_job(
    database: Database,
    config: JobConfig,
    layout: Layout,
    arrays: Arrays,
    *,
    noise_plan: Mapping[str, Any] | None = None,
) -> None:
    """Create the tables and a job in a new file; do nothing if another server was faster.

    Args:
        database: the new file.
        config: the job's configuration.
        layout: the model's layout.
        arrays: the server's initial arrays.
        noise_plan: the noise plan of a private job.
    """
    specs = json.dumps([list(spec) for spec in layout.specs])
    with database.write():
        if not database.is_new:
            return
        for statement in TABLES.split(";"):
            database.execute(statement)
        plan = None if noise_plan is None else json.dumps(noise_plan)
        created = (time.time(), plan, secrets.token_hex(32))
        job = (uuid.uuid4().hex, SCHEMA, json.dumps(config.as_dict()), specs, *created)
        database.execute("INSERT INTO job VALUES (?, ?, ?, ?, ?, ?, ?)", *job)
        database.execute("INSERT INTO state VALUES (0, '', 1, ?, 0, 0, 0, 0)", secrets.token_hex(8))
        database.put_arrays("server", arrays)
        database.put_arrays("sum", {"total": np.zeros(layout.size, SUM_DTYPE)})
