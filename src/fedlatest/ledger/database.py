"""The ledger's SQLite file: schema, transactions, stored arrays and the table of clients.

Guarantee: what is executed inside `Database.write` is durable completely or not at all (one transaction; write-ahead
log with synchronous=FULL). `tests/ledger/test_rounds.py` stops the server at every statement of a round, on a real
file.
"""

import json
import secrets
import sqlite3
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.errors import LedgerError
from fedlatest.ledger.fixed_point import SUM_DTYPE
from fedlatest.ledger.job_config import Arrays, ArraySpec, JobConfig, Layout
from fedlatest.ledger.messages import Ticket

SCHEMA = 1
CHUNK = 16 * 2**20  # bytes per row; SQLite cannot store a blob above 1 GB
NEVER = -1  # last_round of a client that has not trained yet
MAX_BACKOFF = 8  # rounds
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
    """A connection to a ledger's file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    @classmethod
    def open(cls, path: Path | str, *, factory: type[sqlite3.Connection] = sqlite3.Connection) -> "Database":
        """Open the file, or create it; raise LedgerError if it is not a SQLite database."""
        try:
            connection = sqlite3.connect(path, isolation_level=None, timeout=30.0, factory=factory)
            for pragma in ("page_size=65536", "journal_mode=WAL", "synchronous=FULL"):
                connection.execute(f"PRAGMA {pragma}")
        except sqlite3.Error as error:
            raise LedgerError(f"{path}: cannot be opened as a ledger ({error})") from error
        return cls(connection)

    @property
    def is_new(self) -> bool:
        """Whether the file holds no job yet."""
        return not self.rows("SELECT name FROM sqlite_master WHERE name = 'job'")

    @contextmanager
    def write(self) -> Iterator[None]:
        """Run the body as one write transaction: committed at the end, rolled back on an exception."""
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
        """Run the body as one read transaction: it sees one snapshot, also while another connection writes."""
        self.connection.execute("BEGIN")
        try:
            yield
        finally:
            self.connection.execute("ROLLBACK")

    def execute(self, statement: str, *values: Any) -> int:
        """Execute a statement and return the number of rows that it changed."""
        return self.connection.execute(statement, values).rowcount

    def rows(self, query: str, *values: Any) -> list[Any]:
        """Return the rows of a query."""
        return self.connection.execute(query, values).fetchall()

    def put_arrays(self, owner: str, arrays: Arrays) -> None:
        """Replace the arrays stored under `owner`."""
        self.delete_arrays(owner)
        for name, array in arrays.items():
            shape = ",".join(map(str, array.shape))
            content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            for start in range(0, max(len(content), 1), CHUNK):
                part = content[start : start + CHUNK]
                self.execute(
                    "INSERT INTO arrays VALUES (?, ?, ?, ?, ?, ?)", owner, name, start, array.dtype.str, shape, part
                )

    def get_arrays(self, owner: str) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays stored under `owner`; an empty dictionary if there are none."""
        found: dict[str, npt.NDArray[Any]] = {}
        query = "SELECT name, chunk, dtype, shape, content FROM arrays WHERE owner = ? ORDER BY rowid"
        for name, start, dtype, shape, content in self.connection.execute(query, (owner,)):
            if name not in found:
                found[name] = np.empty([int(length) for length in shape.split(",") if length], dtype)
            flat = found[name].reshape(-1).view(np.uint8)
            flat[start : start + len(content)] = np.frombuffer(content, np.uint8)
        return found

    def delete_arrays(self, owner: str) -> None:
        """Delete the arrays stored under `owner`."""
        self.execute("DELETE FROM arrays WHERE owner = ?", owner)

    def close(self) -> None:
        """Close the file."""
        self.connection.close()


def read_job(database: Database) -> tuple[str, JobConfig, Layout]:
    """Return the id, the configuration and the model layout of the job; raise LedgerError on another schema."""
    [(job, schema, config, layout)] = database.rows("SELECT id, schema, config, layout FROM job")
    if schema != SCHEMA:
        raise LedgerError(f"the ledger has schema {schema}, this version of fedlatest reads schema {SCHEMA}")
    specs = (ArraySpec(name, tuple(shape), dtype) for name, shape, dtype in json.loads(layout))
    return job, JobConfig(**json.loads(config)), Layout(tuple(specs))


def create_job(database: Database, config: JobConfig, layout: Layout, arrays: Arrays) -> None:
    """Create the tables and a job in a new file; do nothing if another server was faster.

    Args:
        database: the new file.
        config: the job's configuration.
        layout: the model's layout.
        arrays: the server's initial arrays.
    """
    specs = json.dumps([list(spec) for spec in layout.specs])
    with database.write():
        if not database.is_new:
            return
        for statement in TABLES.split(";"):
            database.execute(statement)
        job = (uuid.uuid4().hex, SCHEMA, json.dumps(config.as_dict()), specs, time.time())
        database.execute("INSERT INTO job VALUES (?, ?, ?, ?, ?)", *job)
        database.execute("INSERT INTO state VALUES (0, '', 1, ?)", secrets.token_hex(8))
        database.put_arrays("server", arrays)
        database.put_arrays("sum", {"total": np.zeros(layout.size, SUM_DTYPE)})


class ClientRow(NamedTuple):
    """A client of the job, as the ledger records it."""

    number: int  # never changes and is never reused; random choices depend on it
    id: str
    weight: float  # number of samples; 0 if not known yet
    last_round: int  # the last round in which it took part, or NEVER
    backoff_until: int  # the first round in which it may be selected again
    digest: str  # of its update that is in the sum
    last_contact: float  # time of its last reply or confirmed presence
    issued: Ticket | None  # the last ticket issued to it
    applied: Ticket | None  # the ticket of its update that is in the sum


_COLUMNS = "number, client, weight, last_round, rest_until, digest, seen, issued, issued_nonce, applied, applied_nonce"


class ClientTable:
    """The table of clients. Callers open the transactions.

    Rows are never deleted: a client that leaves keeps its number and its ticket numbers.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> list[ClientRow]:
        """Return the clients of the job, ordered by number."""
        return [_client_row(row) for row in self._select("member = 1 ORDER BY number")]

    def get(self, client: str) -> ClientRow | None:
        """Return a client of the job, or None if it has not joined or has left."""
        found = self._select("client = ? AND member = 1", client)
        return _client_row(found[0]) if found else None

    def add(self, client: str, weight: float, now: float) -> None:
        """Add a client to the job; one that had left keeps its number, and its ticket numbers continue."""
        self._database.execute(
            "INSERT INTO clients "
            "SELECT COALESCE(MAX(number), -1) + 1, ?, 1, ?, ?, ?, ?, 0, 0, NULL, NULL, NULL, NULL, '' FROM clients "
            "WHERE true "  # without it, SQLite parses ON as part of a join
            "ON CONFLICT (client) DO UPDATE SET member = 1, weight = excluded.weight, joined = excluded.joined, "
            "seen = excluded.seen, last_round = excluded.last_round, misses = 0, rest_until = 0",
            client, weight, now, now, NEVER,
        )  # fmt: skip

    def remove(self, client: str) -> None:
        """Remove a client whose update is no longer in the sum, and invalidate its last ticket."""
        self._update(
            "member = 0, applied = NULL, applied_nonce = NULL, digest = '', issued = issued + 1, issued_nonce = ''",
            client=client,
        )

    def set_issued(self, client: str, ticket: Ticket) -> None:
        """Record the ticket that is issued to a client."""
        self._update("issued = ?, issued_nonce = ?", *ticket, client=client)

    def set_applied(self, client: str, ticket: Ticket, *, digest: str, weight: float, round: int | None) -> None:
        """Record which update of a client is in the sum.

        Args:
            client: id of the client.
            ticket: the ticket of the update.
            digest: the digest of the update.
            weight: the client's number of samples.
            round: the round in which it trained; None if the update was uploaded again without training.
        """
        self._update(
            "applied = ?, applied_nonce = ?, digest = ?, weight = ?, misses = 0, rest_until = 0, "
            "last_round = COALESCE(?, last_round)",
            *ticket, digest, weight, round, client=client,
        )  # fmt: skip

    def back_off(self, client: str, round: int) -> None:
        """Do not select a client that did not deliver in `round` for the next 1, 2, 4, ... MAX_BACKOFF rounds."""
        self._update(
            "misses = misses + 1, rest_until = ? + MIN(1 << MIN(misses, 10), ?)", round + 1, MAX_BACKOFF, client=client
        )

    def skip_next_round(self, client: str, round: int) -> None:
        """Do not select a client that declined in `round` for one round; it does not count as a miss."""
        self._update("rest_until = ?", round + 2, client=client)

    def set_last_contact(self, client: str, now: float) -> None:
        """Record that a client was reachable at the time `now`."""
        self._update("seen = ?", now, client=client)

    def clear_applied(self) -> None:
        """Record that no client's update is in the sum."""
        self._database.execute("UPDATE clients SET applied = NULL, applied_nonce = NULL, digest = ''")

    def _select(self, where: str, *values: Any) -> list[Any]:
        return self._database.rows(f"SELECT {_COLUMNS} FROM clients WHERE {where}", *values)

    def _update(self, assignments: str, *values: Any, client: str) -> None:
        changed = self._database.execute(f"UPDATE clients SET {assignments} WHERE client = ?", *values, client)
        assert changed == 1, f"client {client} has no row"


def _client_row(row: Any) -> ClientRow:
    number, client, weight, last_round, rest_until, digest, seen, issued, issued_nonce, applied, applied_nonce = row
    tickets = (_ticket(issued, issued_nonce), _ticket(applied, applied_nonce))
    return ClientRow(number, client, weight, last_round, rest_until, digest, seen, *tickets)


def _ticket(number: int | None, nonce: str | None) -> Ticket | None:
    return None if number is None or nonce is None else Ticket(number, nonce)
