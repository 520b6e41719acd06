"""The audit: proved, not proved, or wrong."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlatest.errors import LedgerError
from fedlatest.ledger.audit import audit
from fedlatest.ledger.database import Database
from tests.ledger.job import Job


def _job(path: Path, **settings: Any) -> Job:
    job = Job("a", "b", database=Database.open(path / "ledger.db"), **settings)
    job.round({"a": [1, 2], "b": [10, 20]})
    return job


def test_all_stores_prove_the_sum(tmp_path: Path) -> None:
    job = _job(tmp_path)
    found = audit(tmp_path / "ledger.db", [job.store("a"), job.store("b")])
    assert found.holds
    assert found == (1, 1, "client", 2, ["a", "b"], [], [], 0)


def test_a_store_that_is_not_at_hand_leaves_the_sum_unproved(tmp_path: Path) -> None:
    job = _job(tmp_path)
    found = audit(tmp_path / "ledger.db", [job.store("a")])
    assert (found.unreached, found.damaged, found.off, found.holds) == (["b"], [], None, False)


def test_a_damaged_store_is_not_at_hand(tmp_path: Path) -> None:
    job = _job(tmp_path)
    for name in job.disks["b"].files:
        if name.endswith(".value"):
            job.disks["b"].put(name, b"damaged!")
    found = audit(tmp_path / "ledger.db", [job.store("a"), job.store("b")])
    assert (found.unreached, found.off, found.holds) == (["b"], None, False)


def test_a_store_with_another_value_under_the_ticket_is_named(tmp_path: Path) -> None:
    """b's store says [11, 20]; the sum is off by 1."""
    job = _job(tmp_path)
    store = job.store("b")
    held = store.load(job.ledger.job)
    assert held is not None
    [ticket] = held.tickets
    job.disks["b"].files.clear()
    store.keep(
        job.ledger.job, held.__class__("b", held.config, held.epoch, held.seen), ticket, np.array([11, 20], np.int32)
    )
    found = audit(tmp_path / "ledger.db", [job.store("a"), store])
    assert (found.damaged, found.off, found.holds) == (["b"], 1, False)


def test_pending_values_do_not_count(tmp_path: Path) -> None:
    job = _job(tmp_path)
    job.obey(job.ask("a"), 7, 7)  # its reply is lost
    assert audit(tmp_path / "ledger.db", [job.store("a"), job.store("b")]).holds


def test_the_server_proves_its_own_copies(tmp_path: Path) -> None:
    job = _job(tmp_path, memory="server")
    assert audit(tmp_path / "ledger.db") == (1, 1, "server", 2, ["a", "b"], [], [], 0)
    with job.database.write():
        job.database.put_arrays("client 0", {"value": np.array([1, 5], np.int32)})
    found = audit(tmp_path / "ledger.db")
    assert (found.damaged, found.off, found.holds) == (["a"], 3, False)


def test_without_memory_there_is_nothing_in_the_sum(tmp_path: Path) -> None:
    _job(tmp_path, memory="none")
    assert audit(tmp_path / "ledger.db") == (1, 1, "none", 2, [], [], [], 0)


def test_an_audit_sees_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round that closes while the audit reads must not make it see the new tickets with the old sum."""
    job = _job(tmp_path, memory="server")
    real = Database.get_arrays

    def get_arrays(database: Database, owner: str) -> Any:
        if owner == "client 0" and database is not job.database and job.ledger.round == 1:
            job.round({"a": [5, 5], "b": [50, 50]})
        return real(database, owner)

    monkeypatch.setattr(Database, "get_arrays", get_arrays)
    assert audit(tmp_path / "ledger.db").holds
    assert job.total == [55, 55]


def test_what_is_no_ledger_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="there is no ledger"):
        audit(tmp_path / "ledger.db")
    (tmp_path / "text.db").write_text("not a database at all, but long enough to be looked at" * 20)
    with pytest.raises(LedgerError, match="cannot be opened as a ledger"):
        audit(tmp_path / "text.db")
    Database.open(tmp_path / "empty.db").close()
    with pytest.raises(LedgerError, match="there is no ledger"):
        audit(tmp_path / "empty.db")
