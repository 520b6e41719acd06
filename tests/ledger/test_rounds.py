"""Rounds: which uploads count, which clients are asked, and that a crash leaves all of a round or nothing."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedlatest.ledger.client_table import read_attendance
from fedlatest.ledger.database import CHUNK, FILE_BYTES, Database
from fedlatest.ledger.durations import RoundTasks, Task, read_tasks
from tests.ledger.faults import CrashError, FaultyConnection
from tests.ledger.job import ARRAYS, Job


def test_client_with_an_accepted_upload_gets_no_new_ticket() -> None:
    """With a second ticket it would delete the update that is about to count."""
    job = Job("a", "b")
    late = job.issue("a")
    job.close_round()
    assert job.ledger.handle_reply(job.reply(late, 1, 2)).outcome == "accepted"
    assert list(job.ledger.issue(["a", "b"])) == ["b"]
    job.close_round()
    assert job.total == [1, 2]
    assert job.round({"a": [3, 4]}) == ["accepted"]
    assert job.total == [3, 4]


def test_backoff_doubles_with_every_missed_round() -> None:
    """The backoff is 1, 2, 4, 8 and then always 8 rounds; an applied upload resets it."""
    job = Job("a")
    backoffs = []
    for _ in range(6):
        round = job.ledger.round
        job.issue("a")
        job.close_round(missed=["a"])
        [client] = job.ledger.clients()
        backoffs.append(client.backoff_until - round - 1)
    assert backoffs == [1, 2, 4, 8, 8, 8]
    job.round({"a": [1, 2]})
    [client] = job.ledger.clients()
    assert (client.backoff_until, client.last_round) == (0, 6)
    job.close_round(missed=["a"])
    [client] = job.ledger.clients()
    assert client.backoff_until == 7 + 1 + 1


def test_round_without_clients() -> None:
    job = Job()
    job.close_round()
    job.close_round()
    assert (job.ledger.round, job.total, job.open().round) == (2, [0, 0], 2)


def test_sums_of_the_open_round() -> None:
    """a changes from [1, 2] to [4, 6], a difference of [3, 4]; b is new with [10, 20]: delta = [13, 24]."""
    job = Job("a", "b")
    job.round({"a": [1, 2]})
    job.ledger.handle_reply(job.reply(job.issue("a"), 4, 6, weight=3.0))
    job.ledger.handle_reply(job.reply(job.issue("b"), 10, 20, weight=2.0))
    sums = job.ledger.sums()
    assert (sums.total.tolist(), sums.delta.tolist(), sums.num, sums.weight) == ([14, 26], [13, 24], 2, 5.0)
    assert job.total == [1, 2]  # unchanged until the round is closed
    job.close_round()
    assert job.total == [14, 26]
    assert [client.weight for client in job.ledger.clients()] == [3.0, 2.0]


def test_availability_and_participation_are_recorded() -> None:
    job = Job("a", "b", "c")
    job.upload("a", 1, 2)
    job.close_round(available=["a", "b"])
    available, took_part, _ = read_attendance(job.database)
    assert (available.tolist(), took_part.tolist()) == ([[True, True, False]], [[True, False, False]])


@pytest.mark.parametrize("memory", ["client", "server"])
def test_client_without_contact_expires(memory: str) -> None:
    """b's [10, 20] is removed: the server subtracts its copy or, if it has none, starts a new epoch."""
    job = Job("a", "b", memory=memory)
    job.round({"a": [1, 2], "b": [10, 20]})
    job.time = 60.0
    job.exchange_hello("a")
    job.time = 100.0
    assert job.ledger.expire(seconds=50.0) == ["b"]
    assert job.ledger.expire(seconds=50.0) == []
    assert [client.id for client in job.ledger.clients()] == ["a"]
    assert (job.total, job.ledger.epoch.number) == (([1, 2], 1) if memory == "server" else ([0, 0], 2))
    assert job.round({"a": [3, 4]}) == ["accepted"]
    assert job.exchange_hello("b").outcome == "joined"
    assert job.round({"b": [30, 40]}) == ["accepted"]
    assert job.total == [33, 44]
    assert [client.number for client in job.ledger.clients()] == [0, 1]


def test_client_without_an_update_expires_without_a_new_epoch() -> None:
    job = Job("a", "b")
    job.round({"a": [1, 2]})
    job.time = 60.0
    job.exchange_hello("a")
    assert job.ledger.expire(seconds=50.0) == ["b"]
    assert (job.total, job.ledger.epoch.number) == ([1, 2], 1)


@pytest.mark.parametrize("memory", ["client", "server"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("file_bytes", [1, FILE_BYTES])
def test_crash_leaves_all_of_a_round_or_nothing(
    memory: str, after: bool, file_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Crash at the first statement of `close_round`, the second, and so on, until none is left; on a real file.

    With `file_bytes=1`, all arrays are files beside the database.
    """
    monkeypatch.setattr("fedlatest.ledger.database.FILE_BYTES", file_bytes)
    for write in itertools.count():
        path = tmp_path / f"{write}.db"
        connection = Database.open(path, factory=FaultyConnection).connection
        assert isinstance(connection, FaultyConnection)
        job = Job("a", "b", memory=memory, database=Database(connection, path))
        job.round({"a": [1, 2], "b": [10, 20]})
        replies = [job.reply(job.issue("a"), 3, 4), job.reply(job.issue("b"), 30, 40)]
        assert [job.ledger.handle_reply(reply).outcome for reply in replies] == ["accepted", "accepted"]
        connection.trigger.arm(write, after=after)
        try:
            job.close_round(missed=[], available=["a"], tasks=RoundTasks(0.0, 2, 60.0, (), [Task(1, "a", 0.0)]))
        except CrashError:
            crashed = True
        else:
            crashed = False
        connection.close()
        job.database = Database.open(path)
        job.ledger = job.open()
        assert (job.ledger.round, job.total) in [(1, [11, 22]), (2, [33, 44])]
        assert len(read_tasks(job.database).round) == job.ledger.round - 1
        outcomes = [job.ledger.handle_reply(reply).outcome for reply in replies]
        assert outcomes == ["accepted" if job.ledger.round == 1 else "refused"] * 2
        job.close_round()
        assert job.total == [33, 44]
        num_files = len(list(job.database.files_folder.glob("*")))
        assert num_files == (0 if file_bytes > 1 else 2 if memory == "client" else 4), "files are left behind"
        job.database.close()
        if not crashed:
            break
    assert write >= 10


def test_stored_arrays_keep_shape_type_and_content(tmp_path: Path) -> None:
    arrays: dict[str, npt.NDArray[Any]] = {
        "empty": np.zeros((0, 3), np.float32),
        "scalar": np.array(7, np.int64),
        "large": np.arange(CHUNK // 4 + 5, dtype=np.int32),
        "strided": np.arange(12, dtype=np.float64).reshape(3, 4)[:, ::2],
    }
    database = Database.open(tmp_path / "arrays.db")
    job = Job(database=database)
    job.ledger.close_round(arrays)
    assert len(list(database.files_folder.iterdir())) == 1, "only the large array is a file"
    back = job.open().arrays()
    assert list(back) == list(arrays)
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype
        np.testing.assert_array_equal(back[name], array)
    job.ledger = job.open()
    job.ledger.close_round(ARRAYS)
    assert list(job.ledger.arrays()) == ["x"]
    assert list(database.files_folder.iterdir()) == []


def test_files_of_an_open_transaction_survive_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator expels a client while the server is between the last file of a round and its commit."""
    monkeypatch.setattr("fedlatest.ledger.database.FILE_BYTES", 1)
    path = tmp_path / "ledger.sqlite"
    job = Job("a", "b", database=Database.open(path))
    job.round({"a": [1, 2], "b": [10, 20]})
    other = Database.open(path)
    with other.write():
        other.execute("INSERT INTO expelled VALUES ('b')")
        uncommitted = job.database._write_file(np.zeros(4, np.uint8).data)  # of a transaction that follows
    assert (job.database.files_folder / uncommitted).exists()
    job.round({"a": [3, 4]})
    assert (job.database.files_folder / uncommitted).exists(), "only files that the round has replaced are deleted"
    job.ledger = job.open()
    assert not (job.database.files_folder / uncommitted).exists()
    assert job.total == [13, 24]
    other.close()
