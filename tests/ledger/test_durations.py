"""The record of tasks: who was asked when, when the reply was processed, and what came of it."""

import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlatest.errors import LedgerError
from fedlatest.ledger.bitmaps import difference, relative_candidates
from fedlatest.ledger.client_table import read_attendance
from fedlatest.ledger.database import Database
from fedlatest.ledger.durations import (
    OUTCOMES,
    UNKNOWN,
    RoundTasks,
    Selection,
    Task,
    Tasks,
    read_task_rounds,
    read_tasks,
)
from tests.ledger.faults import CrashError
from tests.ledger.job import Job

NAN = math.nan
LONGEST = (UNKNOWN - 1) / 1000  # seconds


def close(job: Job, *tasks: Task, selections: tuple[Selection, ...] = (), **more: Any) -> None:
    """Close a round that began at time 0, with these tasks."""
    job.close_round(**more, tasks=RoundTasks(0.0, 2, 60.0, selections, tasks))


def named(tasks: Tasks) -> list[tuple[float | str, ...]]:
    """Return the tasks as tuples with the names of their outcomes."""
    columns = (column.tolist() for column in tasks[:-1])
    return list(zip(*columns, [OUTCOMES[number] for number in tasks.outcome], strict=True))


def test_tasks_are_read_as_they_were_written() -> None:
    """The round is closed at 10 s. b claims 99 s of training, of which 4 s are possible."""
    job = Job("a", "b")
    job.time = 10.0
    close(
        job,
        Task(0, "a", 1.0, 4.5, 2.25, "accepted"),
        Task(0, "b", 2.0, 6.0, 99.0, "declined"),
        selections=(Selection(1.0, 2, {"a"}), Selection(2.0, 1, {"b"})),
    )
    tasks = read_tasks(job.database)
    assert named(tasks) == [(0, 0, 1.0, 4.5, 2.25, "accepted"), (0, 1, 2.0, 6.0, 4.0, "declined")]
    assert tasks.have("declined", "failed").tolist() == [False, True]
    [round] = read_task_rounds(job.database)
    assert round[:5] == (0, 0.0, 10.0, 2, 60.0)
    assert (round.times.tolist(), round.rooms.tolist()) == ([1.0, 2.0], [2, 1])
    assert round.candidates.tolist() == [[True, False], [False, True]]


def test_late_reply_replaces_the_missed_task() -> None:
    """a is asked in round 0, which ends at 10 s, and answers at 12 s; b never answers."""
    job = Job("a", "b")
    job.time = 10.0
    close(job, Task(0, "a", 1.0), Task(0, "b", 1.0))
    job.time = 20.0
    close(job, Task(0, "a", 1.0, 12.0, 3.0, "late"), Task(1, "b", 11.0, 13.0, NAN, "failed"))
    found = read_tasks(job.database)
    assert found.outcome.tolist() == [OUTCOMES.index(name) for name in ("late", "missed", "failed")]
    assert found.answered[[0, 2]].tolist() == [12.0, 13.0]
    assert np.isnan([found.answered[1], found.training_seconds[1], found.training_seconds[2]]).all()


def test_clients_that_join_later_are_not_candidates_of_earlier_rounds() -> None:
    """The record of round 0 has bits for one client; by round 1 there are ten."""
    job = Job("a")
    close(job, selections=(Selection(0.0, 1, {"a"}),))
    for name in "bcdefghij":
        job.storages[name] = type(job.storages["a"])()
        job.exchange_hello(name)
    close(job, selections=(Selection(0.0, 1, {"a", "j"}),))
    first, second = read_task_rounds(job.database)
    assert np.flatnonzero(first.candidates).tolist() == [0]
    assert np.flatnonzero(second.candidates).tolist() == [0, 9]


@pytest.fixture
def old_ledger(tmp_path: Path) -> Path:
    """Return a ledger of an earlier version: without the table of tasks, after one round."""
    path = tmp_path / "ledger.sqlite"
    job = Job("a", database=Database.open(path))
    job.round({"a": [1, 2]})
    job.database.execute("DROP TABLE tasks")
    job.database.execute("UPDATE job SET schema = 2")
    job.ledger.close()
    return path


def test_ledger_without_tasks_is_read_and_continued(old_ledger: Path) -> None:
    database = Database.open_for_reading(old_ledger)
    assert len(read_tasks(database).round) == 0
    assert read_task_rounds(database) == []
    database.close()
    job = Job("a", database=Database.open(old_ledger))
    assert job.ledger.round == 1
    job.time = 5.0
    close(job, Task(1, "a", 2.0, 3.0, 0.5, "accepted"))
    assert named(read_tasks(job.database)) == [(1, 0, 2.0, 3.0, 0.5, "accepted")]
    assert [round.round for round in read_task_rounds(job.database)] == [1]


def test_sets_of_clients_of_an_earlier_schema_are_compressed() -> None:
    """The ledger is changed back to schema 2, in which sets are plain bits, and converted again."""
    job = Job("a", "b", "c")
    for selections in ((), (Selection(0.5, 2, {"a", "c"}), Selection(1.0, 1, {"b"}))):
        job.time += 2.0
        job.upload("a", 1, 2)
        close(job, Task(job.ledger.round, "a", 0.5, 1.0), selections=selections, available=["a", "b"], reachable=["c"])
    rounds = [each._asdict() for each in read_task_rounds(job.database)]
    attendance = read_attendance(job.database)
    assert [flags.tolist() for flags in attendance] == [
        [[True, True, False]] * 2,
        [[True, False, False]] * 2,
        [[True, True, True]] * 2,
    ]
    assert rounds[1]["candidates"].tolist() == [[True, False, True], [False, True, False]]
    with job.database.write():
        query = "SELECT round, available, took_part, reachable, selections FROM rounds JOIN tasks USING (round)"
        for round, *packed in job.database.rows(query):
            available, took_part, reachable, selected = map(zlib.decompress, packed)
            plain = (available, took_part, difference(reachable, available))
            statement = "UPDATE rounds SET available = ?, took_part = ?, reachable = ? WHERE round = ?"
            job.database.execute(statement, *plain, round)
            content = zlib.compress(relative_candidates(selected, available))
            job.database.execute("UPDATE tasks SET selections = ? WHERE round = ?", content, round)
        job.database.execute("UPDATE job SET schema = 2")
    job.ledger = job.open()
    for found, expected in zip(read_attendance(job.database), attendance, strict=True):
        np.testing.assert_array_equal(found, expected)
    for recorded, before in zip(read_task_rounds(job.database), rounds, strict=True):
        for name, part in recorded._asdict().items():
            np.testing.assert_array_equal(part, before[name])


def test_tasks_belong_to_the_transaction_of_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server stops after the tasks are written and before the round is: none of it is in the file."""
    job = Job("a")
    execute = Database.execute

    def stop_before_commit(database: Database, statement: str, *values: object) -> int:
        if statement.startswith("UPDATE state SET round"):
            assert database.rows("SELECT COUNT(*) FROM tasks") == [(1,)]
            raise CrashError
        return execute(database, statement, *values)

    monkeypatch.setattr(Database, "execute", stop_before_commit)
    with pytest.raises(CrashError):
        close(job, Task(0, "a", 0.0))
    monkeypatch.undo()
    assert job.database.rows("SELECT round FROM state") == [(0,)]
    assert len(read_tasks(job.database).round) == 0


@pytest.mark.parametrize(
    ("claim", "found"), [(1e300, (UNKNOWN - 1) / 1000), (math.inf, (UNKNOWN - 1) / 1000), (-3.0, 0)]
)
def test_absurd_claims_of_training_seconds_do_not_stop_the_server(claim: float, found: float) -> None:
    """A reply after 58 days: its milliseconds do not fit into 32 bits."""
    job = Job("a")
    job.time = 5e6
    close(job, Task(0, "a", 0.0, 5e6, claim, "late"))
    assert read_tasks(job.database).training_seconds.tolist() == [found]


def test_unknown_outcome_is_refused() -> None:
    job = Job("a")
    with pytest.raises(ValueError, match="not in tuple"):
        close(job, Task(0, "a", 0.0, outcome="unknown"))
    assert job.database.rows("SELECT COUNT(*) FROM rounds") == [(0,)]


def test_tasks_take_few_bytes() -> None:
    """100 of 1000 clients per round, with random times: at most 14 bytes per task and 150 per round for the bits."""
    job = Job(*map(str, range(1000)))
    random = np.random.default_rng(0)
    for round in range(20):
        job.time += 60.0
        clients = random.choice(1000, 100, replace=False)
        tasks = [
            Task(round, str(client), job.time - 50, job.time - seconds, 40 - seconds, "accepted")
            for client, seconds in zip(clients, random.uniform(0, 40, 100), strict=True)
        ]
        close(job, *tasks, selections=(Selection(job.time - 50, 100, set(map(str, range(1000)))),))
    [(num_bytes,)] = job.database.rows("SELECT SUM(LENGTH(tasks) + LENGTH(selections)) FROM tasks")
    assert num_bytes < 20 * (100 * 14 + 150)


def test_damaged_ledger_is_reported(old_ledger: Path) -> None:
    """A table of another form is an error of the ledger, not of SQLite."""
    job = Job("a", database=Database.open(old_ledger))
    job.database.execute("DROP TABLE tasks")
    job.database.execute("CREATE TABLE tasks (round INTEGER)")
    with pytest.raises(LedgerError, match="no such column"):
        read_tasks(job.database)
