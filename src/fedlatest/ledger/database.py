"""The ledger's file: SQLite with a write-ahead log, every commit forced to the disk."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedlatest.errors import LedgerError

SCHEMA = 1
CHUNK = 16 * 2**20  # bytes; SQLite holds no single content above 1 GB
TABLES = """
CREATE TABLE job (id TEXT, schema INTEGER, config TEXT, layout TEXT, created REAL);
CREATE TABLE state (round INTEGER, boot TEXT, epoch INTEGER, token TEXT);
CREATE TABLE clients (
    number INTEGER PRIMARY KEY, client TEXT UNIQUE, member INTEGER, weight REAL, joined REAL, seen REAL,
    last_round INTEGER, misses INTEGER, rest_until INTEGER,
    issued INTEGER, issued_nonce TEXT, applied INTEGER, applied_nonce TEXT, digest TEXT
);
CREATE TABLE arrays (owner TEXT, name TEXT, chunk INTEGER, dtype TEXT, shape TEXT, content BLOB,
    PRIMARY KEY (owner, name, chunk));
CREATE TABLE attendance (round INTEGER, number INTEGER, took_part INTEGER, PRIMARY KEY (round, number)) WITHOUT ROWID;
CREATE TABLE rounds (round INTEGER PRIMARY KEY, epoch INTEGER, time REAL);
"""


class Database:
    """A connection to a ledger's file; `write` is one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    @classmethod
    def open(cls, path: Path | str, *, kind: type[sqlite3.Connection] = sqlite3.Connection) -> "Database":
        """Open or make the file."""
        try:
            connection = sqlite3.connect(path, isolation_level=None, timeout=30.0, factory=kind)
            for pragma in ("page_size=65536", "journal_mode=WAL", "synchronous=FULL"):
                connection.execute(f"PRAGMA {pragma}")
        except sqlite3.Error as error:
            raise LedgerError(f"{path}: cannot be opened as a ledger ({error})") from error
        return cls(connection)

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever written."""
        return not self.rows("SELECT name FROM sqlite_master WHERE name = 'job'")

    @contextmanager
    def write(self) -> Iterator[None]:
        """All of what is executed inside, or nothing of it."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.connection.execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise

    @contextmanager
    def read(self) -> Iterator[None]:
        """What is read inside is of one moment, whatever another connection writes meanwhile."""
        self.connection.execute("BEGIN")
        try:
            yield
        finally:
            self.connection.execute("ROLLBACK")

    def execute(self, statement: str, *values: Any) -> int:
        """Execute a statement; how many rows it changed."""
        return self.connection.execute(statement, values).rowcount

    def rows(self, query: str, *values: Any) -> list[Any]:
        """The rows of a query."""
        return self.connection.execute(query, values).fetchall()

    def put_arrays(self, owner: str, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Replace the arrays of an owner."""
        self.drop_arrays(owner)
        for name, array in arrays.items():
            shape = ",".join(map(str, array.shape))
            content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            for start in range(0, max(len(content), 1), CHUNK):
                part = content[start : start + CHUNK]
                self.execute(
                    "INSERT INTO arrays VALUES (?, ?, ?, ?, ?, ?)", owner, name, start, array.dtype.str, shape, part
                )

    def get_arrays(self, owner: str) -> dict[str, npt.NDArray[Any]]:
        """The arrays of an owner; none if there are none."""
        found: dict[str, npt.NDArray[Any]] = {}
        query = "SELECT name, chunk, dtype, shape, content FROM arrays WHERE owner = ? ORDER BY rowid"
        for name, start, dtype, shape, content in self.connection.execute(query, (owner,)):
            if name not in found:
                found[name] = np.empty([int(length) for length in shape.split(",") if length], dtype)
            flat = found[name].reshape(-1).view(np.uint8)
            flat[start : start + len(content)] = np.frombuffer(content, np.uint8)
        return found

    def drop_arrays(self, owner: str) -> None:
        """Remove the arrays of an owner."""
        self.execute("DELETE FROM arrays WHERE owner = ?", owner)

    def close(self) -> None:
        """Close the file."""
        self.connection.close()
