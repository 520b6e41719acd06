"""Large arrays in files beside the ledger: damaged, missing, and deleted only when no server needs them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlatest.errors import LedgerError
from fedlatest.ledger.audit import audit
from fedlatest.ledger.backup import back_up
from fedlatest.ledger.database import Database
from tests.ledger.job import ARRAYS, Job


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """Return a job whose arrays are all files: the model and the sum [1, 2]."""
    monkeypatch.setattr("fedlatest.ledger.database.FILE_BYTES", 1)
    job = Job("a", database=Database.open(tmp_path / "ledger.sqlite"))
    job.round({"a": [1, 2]})
    return job


def _file_of_the_sum(job: Job) -> Path:
    [(name,)] = job.database.rows("SELECT file FROM arrays WHERE owner = 'sum'")
    return job.database.files_folder / name


def test_flipped_bit_in_a_file_is_detected(job: Job, tmp_path: Path) -> None:
    """The sum would be [1, 3] without an error, and all later rounds would start from it."""
    path = _file_of_the_sum(job)
    content = bytearray(path.read_bytes())
    content[8] ^= 1
    path.write_bytes(bytes(content))
    for read in (job.open, lambda: back_up(tmp_path / "ledger.sqlite", tmp_path / "copy")):
        with pytest.raises(LedgerError, match=r"is damaged \(.*another checksum\); restore a backup"):
            read()


def test_flipped_bit_in_a_page_with_an_array_is_detected(tmp_path: Path) -> None:
    """SQLite does not notice a change of the content of a row. The sum is [777777, 2] as 64-bit integers."""
    path = tmp_path / "ledger.sqlite"
    job = Job("a", database=Database.open(path))
    job.round({"a": [777777, 2]})
    job.ledger.close()
    content = path.read_bytes()
    stored = np.array([777777, 2], "<i8").tobytes()
    assert content.count(stored) == 1
    path.write_bytes(content.replace(stored, np.array([777776, 2], "<i8").tobytes()))
    job.database = Database.open(path)
    with pytest.raises(LedgerError, match=r"ledger.sqlite: is damaged \(the array 'total' of 'sum' has another check"):
        job.open()


def test_truncated_and_missing_files_give_one_line(job: Job) -> None:
    path = _file_of_the_sum(job)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(LedgerError, match=r"is damaged \(it has 15 bytes instead of 16\); restore a backup"):
        job.open()
    path.unlink()
    with pytest.raises(LedgerError, match="is missing; restore a backup with `fedlatest restore`"):
        job.open()


def test_file_that_cannot_be_deleted_does_not_undo_a_closed_round(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """The round is committed when old files are deleted: the sum in memory must be the new one, too."""

    def raise_error(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", raise_error)
        assert job.round({"a": [3, 4]}) == ["accepted"]
    assert (job.ledger.round, job.total) == (2, [3, 4])
    job.open()
    assert len(list(job.database.files_folder.iterdir())) == 2, "the next server deletes the files that were left"


def test_transaction_without_arrays_does_not_list_the_files(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each ticket would take time in proportion to the number of stored updates."""
    monkeypatch.setattr(Path, "iterdir", lambda folder: pytest.fail("the files were listed"))
    job.issue("a")


def test_audit_of_a_fast_server_is_repeated(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round is closed before the sum is read, ten times in a row: each time its file is gone."""
    real, rounds = Database._read_file, list[Any]()

    def read_file(database: Database, name: str, flat: Any) -> None:
        if database is not job.database and len(rounds) < 10:
            rounds.append(job.round({"a": [len(rounds), 0]}))
        real(database, name, flat)

    monkeypatch.setattr(Database, "_read_file", read_file)
    assert audit(tmp_path / "ledger.sqlite", [job.store("a")]).holds
    assert len(rounds) == 10


def test_interrupted_transaction_leaves_the_clients_as_they_were() -> None:
    """Ctrl-C while a ticket is issued: the ticket was not stored, so it must not be known in memory."""
    job = Job("a")

    def interrupt() -> str:
        raise KeyboardInterrupt

    before = job.ledger.clients()
    job.ledger._token = interrupt

    def rename_and_issue() -> None:
        with job.ledger.batch():
            job.ledger.table.set_name("a", "kitchen")
            job.ledger.issue(["a"])

    with pytest.raises(KeyboardInterrupt):
        rename_and_issue()
    assert job.ledger.clients() == before
    job.ledger._token = job._token
    job.ledger.close_round(ARRAYS)
    assert job.open().clients() == before
