"""Rounds: what counts in which, and who is asked."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedlatest.ledger.database import CHUNK, Database
from tests.ledger.faults import CrashError, FlakyConnection
from tests.ledger.job import ARRAYS, Job


def test_a_client_whose_reply_is_in_the_open_round_is_not_asked_again() -> None:
    """A second ticket would make it drop the value that is about to count."""
    job = Job("a", "b")
    late = job.ask("a")
    job.close()
    assert job.ledger.take(job.obey(late, 1, 2)).outcome == "taken"
    assert list(job.ledger.issue(["a", "b"])) == ["b"]
    job.close()
    assert job.total == [1, 2]
    assert job.round({"a": [3, 4]}) == ["taken"]
    assert job.total == [3, 4]


def test_whoever_misses_is_left_alone_ever_longer() -> None:
    """1, 2, 4, 8 and then always 8 rounds; an upload that counts starts anew."""
    job = Job("a")
    rests = []
    for _ in range(6):
        here = job.ledger.round
        job.ask("a")
        job.close(missed=["a"])
        [member] = job.ledger.members()
        rests.append(member.rest_until - here - 1)
    assert rests == [1, 2, 4, 8, 8, 8]
    job.round({"a": [1, 2]})
    [member] = job.ledger.members()
    assert (member.rest_until, member.last_round) == (0, 6)
    job.close(missed=["a"])
    [member] = job.ledger.members()
    assert member.rest_until == 7 + 1 + 1


def test_a_round_may_pass_without_anybody() -> None:
    job = Job()
    job.close()
    job.close()
    assert (job.ledger.round, job.total, job.open().round) == (2, [0, 0], 2)


def test_the_open_round_is_summed() -> None:
    """a goes from [1, 2] to [4, 6]: the change is [3, 4]; b is new with [10, 20]. Who is rebased did not train."""
    job = Job("a", "b")
    job.round({"a": [1, 2]})
    job.ledger.take(job.obey(job.ask("a"), 4, 6, weight=3.0))
    job.ledger.take(job.obey(job.ask("b"), 10, 20, weight=2.0))
    sums = job.ledger.sums()
    assert (sums.total.tolist(), sums.delta.tolist(), sums.num, sums.weight) == ([14, 26], [13, 24], 2, 5.0)
    assert job.total == [1, 2]  # until the round is closed
    job.close()
    assert job.total == [14, 26]
    assert [member.weight for member in job.ledger.members()] == [3.0, 2.0]


def test_attendance_is_written_down() -> None:
    job = Job("a", "b", "c")
    job.upload("a", 1, 2)
    job.close(here=["a", "b"])
    assert job.database.rows("SELECT round, number, took_part FROM attendance") == [(0, 0, 1), (0, 1, 0)]


@pytest.mark.parametrize("memory", ["client", "server"])
def test_time_runs_out_for_a_client_that_is_away(memory: str) -> None:
    """b's [10, 20] goes: the server subtracts its own copy, or nobody can, and everybody starts anew."""
    job = Job("a", "b", memory=memory)
    job.round({"a": [1, 2], "b": [10, 20]})
    job.time = 60.0
    job.greet("a")
    job.time = 100.0
    assert job.ledger.expire(seconds=50.0) == ["b"]
    assert job.ledger.expire(seconds=50.0) == []
    assert [member.client for member in job.ledger.members()] == ["a"]
    assert (job.total, job.ledger.epoch.number) == (([1, 2], 1) if memory == "server" else ([0, 0], 2))
    assert job.round({"a": [3, 4]}) == ["taken"]
    assert job.greet("b").outcome == "joined"
    assert job.round({"b": [30, 40]}) == ["taken"]
    assert job.total == [33, 44]
    assert [member.number for member in job.ledger.members()] == [0, 1]


def test_a_client_that_never_counted_is_given_up_without_a_new_epoch() -> None:
    job = Job("a", "b")
    job.round({"a": [1, 2]})
    job.time = 60.0
    job.greet("a")
    assert job.ledger.expire(seconds=50.0) == ["b"]
    assert (job.total, job.ledger.epoch.number) == ([1, 2], 1)


@pytest.mark.parametrize("memory", ["client", "server"])
@pytest.mark.parametrize("after", [False, True])
def test_a_crash_leaves_all_of_a_round_or_nothing(memory: str, after: bool, tmp_path: Path) -> None:
    """Die at the first statement of `close`, the second, and so on, until it comes through; on a real file."""
    for write in itertools.count():
        path = tmp_path / f"{write}.db"
        connection = Database.open(path, kind=FlakyConnection).connection
        assert isinstance(connection, FlakyConnection)
        job = Job("a", "b", memory=memory, database=Database(connection))
        job.round({"a": [1, 2], "b": [10, 20]})
        replies = [job.obey(job.ask("a"), 3, 4), job.obey(job.ask("b"), 30, 40)]
        assert [job.ledger.take(reply).outcome for reply in replies] == ["taken", "taken"]
        connection.fuse.set(write, after=after)
        try:
            job.close(missed=[], here=["a"])
        except CrashError:
            died = True
        else:
            died = False
        connection.close()
        job.database = Database.open(path)
        job.ledger = job.open()
        assert (job.ledger.round, job.total) in [(1, [11, 22]), (2, [33, 44])]
        outcomes = [job.ledger.take(reply).outcome for reply in replies]
        assert outcomes == ["taken" if job.ledger.round == 1 else "refused"] * 2
        job.close()
        assert job.total == [33, 44]
        job.database.close()
        if not died:
            break
    assert write > 10


def test_large_and_odd_arrays_come_back(tmp_path: Path) -> None:
    arrays: dict[str, npt.NDArray[Any]] = {
        "none": np.zeros((0, 3), np.float32),
        "one": np.array(7, np.int64),
        "large": np.arange(CHUNK // 4 + 5, dtype=np.int32),
        "strided": np.arange(12, dtype=np.float64).reshape(3, 4)[:, ::2],
    }
    database = Database.open(tmp_path / "arrays.db")
    job = Job(database=database)
    job.ledger.close(arrays)
    back = job.open().arrays()
    assert list(back) == list(arrays)
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype
        np.testing.assert_array_equal(back[name], array)
    job.ledger = job.open()
    job.ledger.close(ARRAYS)
    assert list(job.ledger.arrays()) == ["x"]
