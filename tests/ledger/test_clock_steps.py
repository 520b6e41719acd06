"""Steps of the wall clock and pauses of the server: only time in which a server runs counts."""

import csv
import time
from pathlib import Path
from typing import Any

import pytest

from fedlatest.flower.recorded_availability import write_trace
from fedlatest.ledger import Ledger
from fedlatest.ledger.database import Database
from tests.ledger.job import ARRAYS, LAYOUT, Job

HOURS = 3600.0


@pytest.mark.parametrize("step", [2 * HOURS, -2 * HOURS])
def test_step_of_the_wall_clock_expires_nobody(step: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients expire after an hour, and the wall clock is set by two. The ledger uses its default clock."""
    job = Job("a", "b")
    options: Any = {"config": job.config, "layout": LAYOUT, "arrays": lambda: ARRAYS}
    job.ledger = Ledger.open(job.database, **options)
    job.round({"a": [1, 2], "b": [10, 20]})
    wall_clock = time.time
    monkeypatch.setattr(time, "time", lambda: wall_clock() + step)
    assert job.ledger.expire(seconds=HOURS) == []
    job.close_round(reachable=["a"])
    assert job.ledger.expire(seconds=HOURS) == []
    assert 0 <= job.ledger.uptime < 0.5 * HOURS
    job.ledger = Ledger.open(job.database, **options)
    assert job.ledger.expire(seconds=HOURS) == []
    assert 0 <= job.ledger.uptime < 0.5 * HOURS
    assert (job.total, job.ledger.epoch.number) == ([11, 22], 1)


def test_uptime_accumulates_over_servers() -> None:
    """10 s with the first server, a pause, then 15 s with the second: 25 s of uptime."""
    job = Job("a")
    job.time += 10.0
    job.close_round(reachable=["a"])
    job.time += 1e6
    job.ledger = job.open()
    assert job.ledger.uptime == 10.0
    job.time += 15.0
    assert job.ledger.expire(seconds=15.0) == []
    assert job.ledger.uptime == 25.0
    job.time += 0.5
    assert job.ledger.expire(seconds=15.0) == ["a"]


def test_trace_in_seconds_ignores_steps_of_the_wall_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds of 10 s. The wall clock is set back by two hours in the second one, and forward in the fourth."""
    path = tmp_path / "ledger.sqlite"
    job = Job("a", "b", database=Database.open(path))
    offset = [0.0]
    monkeypatch.setattr(time, "time", lambda: 1e9 + job.time + offset[0])
    for available in ("ab", "a", "ab", "a", "ab"):
        offset[0] += {1: -2 * HOURS, 3: 4 * HOURS}.get(job.ledger.round, 0.0)
        job.time += 10.0
        job.close_round(available=available)
    job.database.close()
    assert write_trace(path, tmp_path / "trace.csv", seconds=True) == 2
    with (tmp_path / "trace.csv").open() as file:
        rows = [[float(value) for value in row] for row in list(csv.reader(file))[1:]]
    assert rows == [[0, 0, 50], [1, 0, 10], [1, 20, 30], [1, 40, 50]]
