"""The run folder of a job shows what is in the ledger; a server that was replaced cannot change it."""

import itertools
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlatest.errors import LedgerError
from fedlatest.flower import FedLaAvg, LocalGrid, Timeouts, client_app, to_record
from fedlatest.flower.job_record import JobRecord
from fedlatest.ledger import Ledger
from fedlatest.ledger.backup import back_up, restore
from fedlatest.ledger.database import Database
from fedlatest.ledger.evaluations import read_evaluations
from fedlatest.ledger.event_log import read_events
from fedlatest.runs import RunFolder
from tests.after_test import after_test
from tests.flower.small_job import INITIAL, towards
from tests.ledger.faults import CrashError, FaultyConnection

STRATEGY: dict[str, Any] = {"cohort_size": 1, "timeouts": Timeouts(poll=0.001)}
PAUSED_SERVER = """
import os, signal, sys
from pathlib import Path
from tests.flower.test_job_record import start

def pause(server_round, arrays):
    if server_round == 2:
        os.kill(os.getpid(), signal.SIGSTOP)

start(Path(sys.argv[1]), 2, evaluate_fn=pause)
"""
STALE_ROW = b"0,3,0.5,nan,nan,nan,0.99,1,1,1,1,,,,,\n"


def record_of(folder: Path, ledger: Ledger) -> JobRecord:
    return JobRecord(
        folder / "job/run", ledger, FedLaAvg(job=folder / "job", **STRATEGY).algorithm, rounds=9, config={}
    )


def open_ledger(folder: Path, *, connection: sqlite3.Connection | None = None) -> Ledger:
    strategy = FedLaAvg(job=folder / "job", **STRATEGY)
    if connection is None:
        return after_test.enter_context(strategy.open_ledger(to_record(INITIAL)))
    return Ledger(Database(connection, folder / "job/ledger.sqlite"))


def start(folder: Path, rounds: int, **more: Any) -> None:
    grid = LocalGrid()
    grid.add(client_app(towards(1)), {"state-dir": str(folder / "a"), "name": "a"})
    FedLaAvg(job=folder / "job", **STRATEGY).start(grid, to_record(INITIAL), num_rounds=rounds, **more)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "job/run").iterdir()}


def rounds_in_file(folder: Path) -> list[int]:
    return [row.round for row in RunFolder(folder / "job/run").metrics().rows]


def test_server_that_was_paused_changes_nothing_after_another_has_finished(tmp_path: Path) -> None:
    """It wakes up while it evaluates round 2; the other one has finished round 4."""
    found: list[dict[str, bytes]] = []

    def pause(server_round: int, arrays: Any) -> None:
        if server_round == 2:
            start(tmp_path, 4)
            found.append(files(tmp_path))

    with pytest.raises(LedgerError, match="another server run has taken over"):
        start(tmp_path, 2, evaluate_fn=pause)
    assert files(tmp_path) == found[0]
    assert rounds_in_file(tmp_path) == [0, 1, 2, 3, 4]
    assert read_events(tmp_path / "job/events.jsonl")[-1]["event"] == "finished"


def test_process_that_was_stopped_changes_nothing_when_it_continues(tmp_path: Path) -> None:
    """The same with two processes and SIGSTOP; until the first one ends, the ledger cannot be restored either."""
    command = [sys.executable, "-c", PAUSED_SERVER, str(tmp_path)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], stderr=subprocess.PIPE, text=True) as first:
        try:
            assert os.WIFSTOPPED(os.waitpid(first.pid, os.WUNTRACED)[1])
            start(tmp_path, 3)
            before = files(tmp_path)
            back_up(tmp_path / "job/ledger.sqlite", tmp_path / "copy")
            with pytest.raises(LedgerError, match="a server is using it"):
                restore(tmp_path / "job/ledger.sqlite", tmp_path / "copy")
            first.send_signal(signal.SIGCONT)
            _, errors = first.communicate(timeout=240)
        finally:
            first.kill()
    assert "LedgerError: another server run has taken over this job" in errors
    assert files(tmp_path) == before
    assert rounds_in_file(tmp_path) == [0, 1, 2, 3]


@pytest.mark.parametrize("write", [
    lambda record: record.add(None, {}, {}),
    lambda record: record.finish({"w": np.full(3, 7.0, np.float32)}),
    lambda record: JobRecord.__init__(
        record, record.folder.path, record.ledger, FedLaAvg(job="job", **STRATEGY).algorithm, rounds=1, config={}
    ),
])  # fmt: skip
def test_old_server_cannot_write_a_file(write: Callable[[JobRecord], Any], tmp_path: Path) -> None:
    start(tmp_path, 2)
    old = record_of(tmp_path, open_ledger(tmp_path))
    start(tmp_path, 3)
    before = files(tmp_path)
    with pytest.raises(LedgerError, match="another server run has taken over"):
        write(old)
    assert files(tmp_path) == before


def test_no_server_starts_while_a_file_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the old one could be paused after its check, and write when the new one has finished."""
    start(tmp_path, 1)
    ledger = open_ledger(tmp_path)
    record, refused = record_of(tmp_path, ledger), []
    ledger.close_round(ledger.arrays())
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *arguments, **more: connect(*arguments, **{**more, "timeout": 0.0}))

    def start_another(write: Any) -> Callable[..., None]:
        def wrapped(folder: RunFolder, *arguments: Any, **more: Any) -> None:
            with pytest.raises(LedgerError, match="another process has been writing"):
                open_ledger(tmp_path)
            refused.append(write.__name__)
            write(folder, *arguments, **more)

        return wrapped

    for name in ("record", "describe", "save_results", "rewrite"):
        monkeypatch.setattr(RunFolder, name, start_another(getattr(RunFolder, name)))
    record.add(None, {}, {})
    record.finish({"w": np.zeros(3, np.float32)})
    record_of(tmp_path, ledger)
    assert refused == ["record", "describe", "save_results", "rewrite"]


@pytest.mark.parametrize("damage", [
    lambda path: path.write_bytes(path.read_bytes() + STALE_ROW),
    lambda path: path.write_text("damaged\n"),
    Path.unlink,
])  # fmt: skip
@pytest.mark.parametrize("next_write", ["add", "finish", "start"])
def test_changed_metrics_are_repaired_with_the_next_write(
    damage: Callable[[Path], Any], next_write: str, tmp_path: Path
) -> None:
    """Such as a row of an old server of a version that did not check."""
    start(tmp_path, 2)
    ledger = open_ledger(tmp_path)
    record, whole = record_of(tmp_path, ledger), files(tmp_path)["metrics.csv"]
    damage(tmp_path / "job/run/metrics.csv")
    if next_write == "add":
        ledger.close_round(ledger.arrays())
        record.add(None, {}, {})
    elif next_write == "finish":
        record.finish({"w": np.zeros(3, np.float32)})
    else:
        record_of(tmp_path, ledger)
    assert files(tmp_path)["metrics.csv"].startswith(whole)
    assert rounds_in_file(tmp_path) == ([0, 1, 2, 3] if next_write == "add" else [0, 1, 2])


def test_evaluation_adds_one_line_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise an evaluation would take time in proportion to the number of rounds."""
    start(tmp_path, 2)
    ledger = open_ledger(tmp_path)
    record = record_of(tmp_path, ledger)
    monkeypatch.setattr(RunFolder, "rewrite_metrics", lambda folder, rows: pytest.fail("the file was written anew"))
    for _ in range(3):
        ledger.close_round(ledger.arrays())
        record.add(None, {}, {})
    assert rounds_in_file(tmp_path) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("after", [False, True])
def test_crash_leaves_a_file_that_the_next_server_makes_equal_to_the_ledger(after: bool, tmp_path: Path) -> None:
    """Crash at the first statement of an evaluation, the second, and so on, until none is left."""
    start(tmp_path, 1)
    for write in itertools.count():
        connection = Database.open(tmp_path / "job/ledger.sqlite", factory=FaultyConnection).connection
        assert isinstance(connection, FaultyConnection)
        ledger = open_ledger(tmp_path, connection=connection)
        record = record_of(tmp_path, ledger)
        ledger.close_round(ledger.arrays())
        before = [row["round"] for row in read_evaluations(ledger.database)]
        connection.trigger.arm(write, after=after)
        try:
            record.add(None, {"loss": 0.25}, {})
        except CrashError:
            crashed = True
        else:
            crashed = False
        connection.close()
        ledger = open_ledger(tmp_path)
        record_of(tmp_path, ledger)
        found = [row["round"] for row in read_evaluations(ledger.database)]
        assert rounds_in_file(tmp_path) == found
        assert found in (before, [*before, ledger.round])
        assert crashed or found[-1] == ledger.round
        ledger.close()
        if not crashed:
            break
    assert write >= 3


def test_job_of_an_earlier_version_keeps_its_metrics(tmp_path: Path) -> None:
    """Its ledger has no table for them: the rows of metrics.csv are adopted, except those that were rolled back."""
    start(tmp_path, 2)
    with Database.open(tmp_path / "job/ledger.sqlite") as database, database.write():
        database.execute("DROP TABLE evaluations")
    before = files(tmp_path)["metrics.csv"].splitlines()
    (tmp_path / "job/run/metrics.csv").write_bytes(b"\n".join(before) + b"\n" + STALE_ROW)
    start(tmp_path, 3)
    assert rounds_in_file(tmp_path) == [0, 1, 2, 3]
    assert files(tmp_path)["metrics.csv"].splitlines()[: len(before)] == before
    with Database.open_for_reading(tmp_path / "job/ledger.sqlite") as database:
        assert [row["round"] for row in read_evaluations(database)] == [0, 1, 2, 3]


def test_metrics_of_another_job_are_not_adopted(tmp_path: Path) -> None:
    start(tmp_path, 3)
    for path in (tmp_path / "job").glob("*.*"):
        path.unlink()  # the ledger and the event log
    start(tmp_path / "other", 1)
    for path in (tmp_path / "other/job").glob("*.*"):
        path.rename(tmp_path / "job" / path.name)
    with Database.open(tmp_path / "job/ledger.sqlite") as database, database.write():
        database.execute("DROP TABLE evaluations")
    start(tmp_path, 1)
    assert rounds_in_file(tmp_path) == [1]


def test_restored_ledger_brings_its_metrics(tmp_path: Path) -> None:
    """The copy is of round 2; the run folder, which had 4 rounds, has the rows of the copy and those after it."""
    start(tmp_path, 2, evaluate_fn=lambda round, arrays: None)
    first = files(tmp_path)["metrics.csv"]
    back_up(tmp_path / "job/ledger.sqlite", tmp_path / "copy")
    start(tmp_path, 4)
    restore(tmp_path / "job/ledger.sqlite", tmp_path / "copy")
    for path in (tmp_path / "job/run").iterdir():
        path.unlink()
    start(tmp_path, 3)
    assert files(tmp_path)["metrics.csv"].startswith(first)
    assert rounds_in_file(tmp_path) == [0, 1, 2, 3]
