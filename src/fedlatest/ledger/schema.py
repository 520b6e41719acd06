"""The tables of a ledger, and the conversion of ledgers of earlier versions to them, in one transaction.

The ledger stores the number of its schema. Ledgers of schema 2 have several shapes, because the number was not
increased with each change: what they lack is found by comparing their columns with the current ones.
"""

import logging
import sqlite3
import zlib
from contextlib import closing
from typing import TYPE_CHECKING

from fedlatest.errors import LedgerError
from fedlatest.ledger.bitmaps import difference, pack, relative_candidates

if TYPE_CHECKING:
    from fedlatest.ledger.database import Database

SCHEMA, OLDEST_SCHEMA = 3, 2  # increase SCHEMA with every change of TABLES, and add to VALUES
TABLES = """
CREATE TABLE job (
    id TEXT, schema INTEGER, config TEXT, layout TEXT, created REAL, noise_plan TEXT, checksum_seed TEXT
);
CREATE TABLE state (
    round INTEGER, boot TEXT, epoch INTEGER, token TEXT, uptime REAL, session INTEGER, weight INTEGER, releases INTEGER,
    ending_epoch INTEGER
);
CREATE TABLE clients (
    number INTEGER PRIMARY KEY, client TEXT UNIQUE, name TEXT, member INTEGER, contributed INTEGER, weight REAL,
    seen REAL, last_round INTEGER, misses INTEGER, losses INTEGER, rest_until INTEGER,
    issued INTEGER, issued_nonce TEXT, applied INTEGER, applied_nonce TEXT, digest TEXT, public_key TEXT,
    participations INTEGER, last_participation INTEGER, checksum INTEGER
);
CREATE TABLE expelled (client TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE arrays (owner TEXT, name TEXT, chunk INTEGER, dtype TEXT, shape TEXT, checksum INTEGER, file TEXT,
    content BLOB, PRIMARY KEY (owner, name, chunk));
CREATE TABLE rounds (
    round INTEGER PRIMARY KEY, epoch INTEGER, time REAL, uptime REAL, available BLOB, took_part BLOB, reachable BLOB,
    noise_seed TEXT
);
CREATE TABLE tasks (
    round INTEGER PRIMARY KEY, began REAL, cohort_size INTEGER, deadline REAL, selections BLOB, tasks BLOB
);
"""
# What a column contains that a ledger of an earlier schema does not have, as an expression in SQL over its row.
VALUES = {
    "job.noise_plan": "NULL",
    "job.checksum_seed": "lower(hex(randomblob(32)))",
    "state.session": "0",
    "state.weight": "0",
    "state.releases": "round",
    "state.ending_epoch": "0",
    "clients.contributed": "member AND last_round >= 0",
    "clients.public_key": "''",
    "clients.participations": "0",
    "clients.last_participation": "NULL",
    "clients.checksum": "CASE WHEN applied IS NULL THEN 0 END",  # the server has not seen what is in the sum
    "rounds.noise_seed": "NULL",
}
log = logging.getLogger("fedlatest")


def migrate(database: "Database") -> None:
    """Convert a ledger to the current schema; do nothing if it has that.

    Raises:
        LedgerError: the ledger cannot be converted; the message says what to do.
    """
    if _schema_of(database) == SCHEMA:
        return
    where = database.path or "ledger"
    with database.write():
        schema = _schema_of(database)
        if schema == SCHEMA:  # another server was faster
            return
        if schema > SCHEMA:
            raise LedgerError(
                f"{where}: has schema {schema}, written by a newer fedlatest; this version reads up to {SCHEMA}: "
                "upgrade fedlatest at the server"
            )
        if schema < OLDEST_SCHEMA:
            raise _cannot_convert(database, schema, "")
        for table, columns in _current_columns().items():
            _convert(database, table, columns, schema)
        _pack_bitmaps(database)
        database.execute("UPDATE job SET schema = ?", SCHEMA)
    log.warning("fedlatest: %s: converted from schema %s to %s", where, schema, SCHEMA)


def _schema_of(database: "Database") -> int:
    [(schema,)] = database.rows("SELECT schema FROM job")
    return int(schema)


def _convert(database: "Database", table: str, columns: list[str], schema: int) -> None:
    """Create a table, or copy its rows to one with the current columns."""
    found = _columns(database.rows(f"PRAGMA table_info({table})"))
    if found == columns:
        return
    if found:
        missing = [name for name in columns if name not in found and f"{table}.{name}" not in VALUES]
        unknown = [name for name in found if name not in columns]
        if missing or unknown:
            raise _cannot_convert(
                database, schema, f" {'without' if missing else 'with'} {table}.{(missing + unknown)[0]}"
            )
        database.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    database.execute(_STATEMENTS[table])
    if found:
        values = [name if name in found else VALUES[f"{table}.{name}"] for name in columns]
        database.execute(f"INSERT INTO {table} SELECT {', '.join(values)} FROM old_{table} ORDER BY rowid")
        database.execute(f"DROP TABLE old_{table}")


def _pack_bitmaps(database: "Database") -> None:
    """Compress the sets of clients of each round, of which schema 2 has the bits (`bitmaps.py`)."""
    rows = "SELECT rounds.round, available, took_part, reachable, selections FROM rounds LEFT JOIN tasks USING (round)"
    for round, available, took_part, reachable, selections in database.rows(rows):
        if selections is not None:
            content = zlib.compress(relative_candidates(zlib.decompress(selections), available))
            database.execute("UPDATE tasks SET selections = ? WHERE round = ?", content, round)
        packed = map(pack, (available, took_part, difference(reachable, available)))
        statement = "UPDATE rounds SET available = ?, took_part = ?, reachable = ? WHERE round = ?"
        database.execute(statement, *packed, round)


def _cannot_convert(database: "Database", schema: int, lacks: str) -> LedgerError:
    return LedgerError(
        f"{database.path or 'ledger'}: has schema {schema}{lacks}, of an early fedlatest, and cannot be converted to "
        f"schema {SCHEMA}; finish the job with the version that has started it, or start a new job in another folder "
        "with its model as the initial one"
    )


_STATEMENTS = {
    statement.split()[2]: statement for statement in map(str.strip, TABLES.split(";")) if statement
}  # by table


def _current_columns() -> dict[str, list[str]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(TABLES)
        return {table: _columns(connection.execute(f"PRAGMA table_info({table})").fetchall()) for table in _STATEMENTS}


def _columns(rows: list[tuple[object, ...]]) -> list[str]:
    return [str(name) for _, name, *_ in rows]
