"""Audits that succeed, that cannot decide, and that find an error."""

import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlatest.errors import LedgerError
from fedlatest.ledger.audit import audit
from fedlatest.ledger.database import Database
from fedlatest.ledger.hashing import digest_of
from tests.ledger.job import Job


def _job(path: Path, **settings: Any) -> Job:
    job = Job("a", "b", database=Database.open(path / "ledger.db"), **settings)
    job.round({"a": [1, 2], "b": [10, 20]})
    return job


def test_audit_with_all_stores_holds(tmp_path: Path) -> None:
    job = _job(tmp_path)
    found = audit(tmp_path / "ledger.db", [job.store("a"), job.store("b")])
    assert found.holds
    assert found[:9] == (1, 1, "client", 2, ["a", "b"], [], [], [], 0)


@pytest.mark.parametrize("memory", ["client", "server"])
def test_audit_holds_one_update_at_a_time(memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All updates of a job may not fit into memory."""
    names = [f"client{number}" for number in range(20)]
    job = Job(*names, database=Database.open(tmp_path / "ledger.db"), memory=memory)
    job.round({name: [number, 1] for number, name in enumerate(names)})
    kept: list[weakref.ref[Any]] = []
    alive: list[int] = []

    def digest(update: Any, salt: str = "") -> str:
        kept.append(weakref.ref(update))
        alive.append(sum(reference() is not None for reference in kept))
        return digest_of(update, salt)

    monkeypatch.setattr("fedlatest.ledger.audit.digest_of", digest)
    stores = [job.store(name) for name in names] if memory == "client" else []
    assert audit(tmp_path / "ledger.db", stores).holds
    assert len(alive) == 20
    assert max(alive) <= 2


def test_missing_store_leaves_the_audit_undecided(tmp_path: Path) -> None:
    job = _job(tmp_path)
    found = audit(tmp_path / "ledger.db", [job.store("a")])
    assert (found.unreached, found.damaged, found.max_difference, found.holds) == (["b"], [], None, False)


def test_damaged_update_counts_as_missing(tmp_path: Path) -> None:
    job = _job(tmp_path)
    for name in job.storages["b"].files:
        if name.endswith(".value"):
            job.storages["b"].put(name, b"damaged!")
    found = audit(tmp_path / "ledger.db", [job.store("a"), job.store("b")])
    assert (found.unreached, found.max_difference, found.holds) == (["b"], None, False)


def test_store_with_another_update_under_the_ticket_is_reported(tmp_path: Path) -> None:
    """The ledger has [10, 20] of b, its store has [11, 20]: the largest difference is 1."""
    job = _job(tmp_path)
    store = job.store("b")
    state = store.load(job.ledger.job)
    assert state is not None
    other = np.array([11, 20], np.int32)
    stored = replace(state.updates[0], digest=digest_of(other))
    job.storages["b"].files.clear()
    store.save_update(job.ledger.job, replace(state, updates=()), stored, other)
    found = audit(tmp_path / "ledger.db", [job.store("a"), store])
    assert (found.damaged, found.max_difference, found.holds) == (["b"], 1, False)


def test_pending_update_is_not_in_the_sum(tmp_path: Path) -> None:
    job = _job(tmp_path)
    job.reply(job.issue("a"), 7, 7)  # the reply is lost
    assert audit(tmp_path / "ledger.db", [job.store("a"), job.store("b")]).holds


def test_audit_of_the_updates_stored_at_the_server(tmp_path: Path) -> None:
    job = _job(tmp_path, memory="server")
    assert audit(tmp_path / "ledger.db")[:9] == (1, 1, "server", 2, ["a", "b"], [], [], [], 0)
    with job.database.write():
        job.database.put_arrays("client 0", {"value": np.array([1, 5], np.int32)})
    found = audit(tmp_path / "ledger.db")
    assert (found.damaged, found.max_difference, found.holds) == (["a"], 3, False)


def test_without_memory_the_sum_is_empty(tmp_path: Path) -> None:
    _job(tmp_path, memory="none")
    assert audit(tmp_path / "ledger.db")[:9] == (1, 1, "none", 2, [], [], [], [], 0)


def test_audit_reads_one_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round is closed while the audit reads; the audit must not compare the new tickets with the old sum."""
    job = _job(tmp_path, memory="server")
    real = Database.get_arrays

    def get_arrays(database: Database, owner: str) -> Any:
        if owner == "client 0" and database is not job.database and job.ledger.round == 1:
            job.round({"a": [5, 5], "b": [50, 50]})
        return real(database, owner)

    monkeypatch.setattr(Database, "get_arrays", get_arrays)
    assert audit(tmp_path / "ledger.db").holds
    assert job.total == [55, 55]


def test_file_that_is_not_a_ledger_raises(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="there is no ledger"):
        audit(tmp_path / "ledger.db")
    (tmp_path / "text.db").write_text("not a database at all, but long enough to be looked at" * 20)
    with pytest.raises(LedgerError, match="cannot be opened as a ledger"):
        audit(tmp_path / "text.db")
    Database.open(tmp_path / "empty.db").close()
    with pytest.raises(LedgerError, match="there is no ledger"):
        audit(tmp_path / "empty.db")
