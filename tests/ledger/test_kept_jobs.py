"""Jobs that this and earlier versions have started are continued with exact sums (`make_kept_jobs.py` writes them)."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlatest.errors import LedgerError, ProtocolError
from fedlatest.ledger import ClientStore, FolderStorage
from fedlatest.ledger.audit import audit
from fedlatest.ledger.client_store import FORMAT, _checksum_of
from fedlatest.ledger.database import Database
from fedlatest.ledger.job_folder import back_up, end_epoch, restore
from fedlatest.ledger.messages import PROTOCOL_VERSION, decode_instruction, decode_reply, encode
from fedlatest.ledger.schema import SCHEMA, TABLES, migrate
from tests.after_test import after_test
from tests.ledger.faults import CrashError, FaultyConnection
from tests.ledger.make_kept_jobs import KEPT, Server

DATA = KEPT.parent
FILES = sorted(f"{path.parent.name}/{path.stem}" for path in DATA.glob("*/*.json"))
OLD_FILES = [name for name in FILES if not name.startswith(f"{KEPT.name}/")]
EARLY = "schema2-early/plain"


def _read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text())
    return content


def _write_ledger(name: str, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("\n".join(_read(name)["ledger"]))


def _unpack(name: str, folder: Path) -> None:
    """Write the ledger and the files of the clients to a folder."""
    _write_ledger(name, folder / "ledger.sqlite")
    for client, files in _read(name)["clients"].items():
        for file, content in files.items():
            path = folder / "nodes" / client / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes.fromhex(content))


def _continue(name: str, folder: Path) -> Server:
    server = Server(folder / "ledger.sqlite", folder / "nodes", _read(name)["settings"])
    server.tokens = 1000  # of this server; those of the first one are in the ledger
    after_test.callback(server.ledger.close)
    return server


def _total(updates: dict[str, list[int]]) -> list[int]:
    return np.sum(list(updates.values()), axis=0).tolist()


def _stores(folder: Path) -> list[ClientStore]:
    return [ClientStore(FolderStorage(path)) for path in sorted((folder / "nodes").iterdir())]


def test_all_kinds_of_jobs_are_kept() -> None:
    assert {name.partition("/")[2] for name in FILES if name.startswith(KEPT.name)} == {
        *("plain", "server", "private", "secure")
    }
    assert KEPT.name == f"schema{SCHEMA}", "the schema has changed: run `python -m tests.ledger.make_kept_jobs`"


@pytest.mark.parametrize("name", FILES)
def test_job_is_continued_with_exact_sums(name: str, tmp_path: Path) -> None:
    """Two more rounds of differences to what the clients have stored, a restart, and then d leaves.

    The ledgers of schema 2 do not know what the clients have added, so a new epoch starts when d leaves. A client of a
    secure job leaves with a new epoch in any case.
    """
    _unpack(name, tmp_path)
    server, updates = _continue(name, tmp_path), _read(name)["in_sum"]
    secure = "secure" in _read(name)["settings"]
    success = "collected " if secure else "accepted"
    assert server.ledger.total.tolist() == _total(updates)
    assert [server.greet(client) for client in "abcd"] == ["hello"] * 4
    for changed in ({"a": [2, 2], "b": [-4, 4], "c": [1, 1]}, {"b": [9, 9], "c": [-1, 8], "d": [6, 6]}):
        assert server.round(changed) == [success] * 3
        updates |= changed
        assert server.ledger.total.tolist() == _total(updates)
        server.ledger.close()
        server = _continue(name, tmp_path)
    if "server" not in name:
        found = audit(tmp_path / "ledger.sqlite", _stores(tmp_path))
        assert (found.holds, found.in_sum, found.epoch) == (True, ["a", "b", "c", "d"], 1)
    server.store("d").leave(server.ledger.job)
    assert server.greet("d") == ("left" if secure else "hello")
    if not secure:
        goodbye = server.ledger.handle_reply(server.reply(server.ledger.issue(["d"])["d"]))
        is_known = name in (f"{KEPT.name}/plain", f"{KEPT.name}/private") or "server" in name
        assert goodbye.outcome == ("left" if is_known else "lost")
    server.ledger.close_round({"x": np.zeros(2, np.float32)})
    if server.ledger.epoch.number > 1:
        assert server.ledger.total.tolist() == [0, 0]
        server.greet("d")
        del updates["d"]
        assert server.round({"a": [5, 1], "b": [5, 2], "c": [5, 3]}) == [success] * 3
        assert server.ledger.total.tolist() == [15, 6]
    else:
        del updates["d"]
        assert server.ledger.total.tolist() == _total(updates)
    assert [client.id for client in server.ledger.clients()] == ["a", "b", "c"]


@pytest.mark.parametrize("name", OLD_FILES)
def test_converted_ledger_has_the_current_tables(name: str, tmp_path: Path) -> None:
    _write_ledger(name, tmp_path / "ledger.sqlite")
    with Database.open(tmp_path / "ledger.sqlite") as database, closing(sqlite3.connect(":memory:")) as current:
        migrate(database)
        current.executescript(TABLES)
        tables = [table for (table,) in current.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            query = f"SELECT name, type, pk FROM pragma_table_info('{table}')"
            assert database.rows(query) == current.execute(query).fetchall()
        assert len(database.rows("SELECT name FROM sqlite_master WHERE type = 'table'")) == len(tables)
        assert database.rows("SELECT schema FROM job") == [(SCHEMA,)]
        assert database.rows("SELECT round = releases FROM state") == [(1,)]
        assert database.rows("SELECT contributed FROM clients") == [(1,)] * 4
        migrate(database)  # does nothing


@pytest.mark.parametrize("after", [False, True])
def test_crash_while_a_ledger_is_converted_leaves_the_old_one_or_the_new_one(after: bool, tmp_path: Path) -> None:
    expected = _read(EARLY)["ledger"]
    for write in range(100):
        path = tmp_path / f"{write}.sqlite"
        _write_ledger(EARLY, path)
        database = Database.open(path, factory=FaultyConnection)
        connection: Any = database.connection
        connection.trigger.arm(write, after=after)
        try:
            migrate(database)
            done = True
        except CrashError:
            done = False
        database.close()
        with closing(sqlite3.connect(path)) as reopened:
            [(schema,)] = reopened.execute("SELECT schema FROM job")
            assert schema == SCHEMA or list(reopened.iterdump()) == expected
        if done:
            break
    assert write > 10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "ALTER TABLE arrays DROP COLUMN checksum",
            r"schema 2 without arrays\.checksum, of an early fedlatest, and cann",
        ),
        ("ALTER TABLE clients ADD COLUMN colour TEXT", r"schema 2 with clients\.colour"),
        ("UPDATE job SET schema = 1", "has schema 1, of an early fedlatest, and cannot be converted"),
        (f"UPDATE job SET schema = {SCHEMA + 1}", "written by a newer fedlatest.*upgrade fedlatest at the server"),
    ],
)
def test_ledger_that_cannot_be_converted_is_left_as_it_is(change: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    _unpack(EARLY, tmp_path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(change)
        connection.commit()
        before = list(connection.iterdump())
    for act in (lambda: _continue(EARLY, tmp_path), lambda: audit(path)):
        with pytest.raises(LedgerError, match=message):
            act()
    with closing(sqlite3.connect(path)) as connection:
        assert list(connection.iterdump()) == before


@pytest.mark.parametrize("name", OLD_FILES)
def test_old_ledger_is_read_without_a_change_and_backed_up(name: str, tmp_path: Path) -> None:
    """Commands that read use a converted copy. A backup is one of the current schema, and can be restored."""
    path = tmp_path / "ledger.sqlite"
    _unpack(name, tmp_path)
    content = path.read_bytes()
    assert audit(path, _stores(tmp_path)).holds
    back_up(path, tmp_path / "copy")
    assert path.read_bytes() == content
    with pytest.raises(LedgerError, match="start a server of this version first"):
        end_epoch(path)
    restore(path, tmp_path / "copy")
    path.with_name("old").write_bytes(content)
    restore(path, path.with_name("old"))  # a backup that the earlier version has made
    assert _continue(name, tmp_path).ledger.total.tolist() == _total(_read(name)["in_sum"])


def test_settings_that_a_later_version_adds_lock_nobody_out(tmp_path: Path) -> None:
    """Clients have stored the hash of the settings at the start, so the server sends these."""
    _unpack(f"{KEPT.name}/plain", tmp_path)
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as connection:
        connection.execute("UPDATE job SET config = json_remove(config, '$.seed')")  # as if `seed` were a new setting
        connection.commit()
    server = _continue(f"{KEPT.name}/plain", tmp_path)
    instruction = server.ledger.instruction("e", "hello")
    assert "seed" not in instruction.settings
    assert server.greet("e") == "joined"
    server.ledger.close()
    server = _continue(f"{KEPT.name}/plain", tmp_path)
    assert server.greet("e") == "hello"
    assert server.round({"e": [1, 2]}) == ["accepted"]


def test_early_hash_is_accepted_only_for_the_same_settings(tmp_path: Path) -> None:
    _unpack(EARLY, tmp_path)
    server = _continue(EARLY, tmp_path)
    instruction = server.ledger.instruction("a", "hello")
    other = replace(instruction, config="0" * 32)
    assert server.reply(other).kind == "failed"
    assert len(server.store("a").load(server.ledger.job).config) == 16  # type: ignore[union-attr]
    assert server.reply(instruction).config == instruction.config
    assert server.store("a").load(server.ledger.job).config == instruction.config  # type: ignore[union-attr]


def test_state_of_a_newer_client_is_not_lost(tmp_path: Path) -> None:
    """Taken for damaged, it would start a new epoch."""
    _unpack(f"{KEPT.name}/plain", tmp_path)
    server = _continue(f"{KEPT.name}/plain", tmp_path)
    [path] = (tmp_path / "nodes/a").glob("*/state.json")
    fields = json.loads(path.read_text())
    del fields["checksum"]
    fields |= {"format": FORMAT + 1, "colour": "red"}
    path.write_text(json.dumps({**fields, "checksum": _checksum_of(fields)}))
    reply = server.reply(server.ledger.instruction("a", "hello"))
    assert reply.kind == "failed"
    assert reply.why.endswith("upgrade fedlatest at the client")
    assert server.ledger.handle_hello(reply).outcome == "failed"
    assert not server.ledger.needs_resync


# Protocols


def test_each_side_says_which_one_to_upgrade() -> None:
    newest = PROTOCOL_VERSION
    newer = rf"has protocol {newest + 1}, the (client|server) understands 1 to {newest}: upgrade fedlatest at the "
    with pytest.raises(ProtocolError, match=f"the server {newer}client"):
        decode_instruction("a header of the future", b"", PROTOCOL_VERSION + 1)
    with pytest.raises(ProtocolError, match=f"the client {newer}server"):
        decode_reply("a header of the future", None, b"", PROTOCOL_VERSION + 1)
    for odd in (0, -1, "2", None, 2.0, True, 2**70):
        with pytest.raises(ProtocolError, match="has protocol"):
            decode_reply("{}", None, b"", odd)


@pytest.mark.parametrize(("name", "fits"), [("plain", True), ("private", True), ("secure", False)])
def test_earlier_clients_and_servers_fit_only_to_jobs_without_masks(name: str, fits: bool, tmp_path: Path) -> None:
    """The headers of protocol 1 are those of protocol 2."""
    _unpack(f"{KEPT.name}/{name}", tmp_path)
    server = _continue(f"{KEPT.name}/{name}", tmp_path)
    hello = server.ledger.instruction("a", "hello")
    reply = server.reply(decode_instruction(encode(hello), b"", 1))
    assert reply.kind == ("hello" if fits else "failed")
    why = f"understands 2 to {PROTOCOL_VERSION} in a secure job: upgrade fedlatest at the"
    assert fits or reply.why == f"the server has protocol 1, the client {why} server"
    verdict = server.ledger.handle_hello(replace(server.reply(hello), protocol=1))
    expected = ("refused", f"the client has protocol 1, the server {why} client")
    assert verdict == (("hello", "") if fits else expected)
