"""Two servers on one ledger: the one that opened it last has it, and the other can write nothing."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlatest.errors import LedgerError
from fedlatest.ledger import JobConfig, Layout, Ledger
from fedlatest.ledger.database import Database
from tests.ledger.job import ARRAYS, LAYOUT, Job

OTHER = Layout.of({"y": np.zeros(2, np.float32)})


def test_a_server_that_was_shut_out_writes_nothing() -> None:
    job = Job("a", "b")
    first, reply = job.ledger, job.obey(job.ask("a"), 1, 2)
    job.ledger = job.open()
    first.take(reply)
    for act in (
        lambda: first.close(ARRAYS),
        lambda: first.issue(["b"]),
        lambda: first.expire(seconds=-1.0),
        first.resync,
        lambda: first.greet(job.hello("a")),
    ):
        with pytest.raises(LedgerError, match="another server run has taken over this job"):
            act()
        first._taken.clear()
    assert job.total == [0, 0]
    assert job.ledger.take(reply).outcome == "taken"  # its ticket still holds with the new server
    job.close()
    assert job.total == [1, 2]


def test_a_server_goes_on_from_what_another_wrote_while_it_was_starting(tmp_path: Path) -> None:
    job = Job("a", database=Database.open(tmp_path / "ledger.db"))
    first = job.ledger
    first.take(job.obey(job.ask("a"), 1, 2))

    def token() -> str:
        if first.round == 0:
            first.close(ARRAYS)
        return "abc"

    options: Any = {"config": job.config, "layout": LAYOUT, "arrays": lambda: ARRAYS, "token": token}
    second = Ledger.open(tmp_path / "ledger.db", **options)
    assert (second.round, second.total.tolist()) == (1, [1, 2])


@pytest.mark.parametrize("wrong", [{"config": JobConfig("other")}, {"layout": OTHER}])
def test_a_server_with_another_job_is_refused_and_shuts_nobody_out(wrong: dict[str, Any]) -> None:
    job = Job("a")
    there: dict[str, Any] = {"config": job.config, "layout": LAYOUT}
    [(name, seen)] = wrong.items()
    with pytest.raises(LedgerError, match=f"{there[name].hash}, this is {seen.hash}"):
        Ledger.open(job.database, arrays=lambda: ARRAYS, **{**there, **wrong})
    assert job.round({"a": [1, 2]}) == ["taken"]


def test_two_servers_may_begin_at_once(tmp_path: Path) -> None:
    """The second finds a new file, and a job in it when it comes to write."""
    options: Any = {"config": JobConfig("fedlaavg"), "layout": LAYOUT}

    def arrays() -> dict[str, Any]:
        if not first:
            first.append(Ledger.open(tmp_path / "ledger.db", arrays=lambda: ARRAYS, **options))
        return ARRAYS

    first: list[Ledger] = []
    second = Ledger.open(tmp_path / "ledger.db", arrays=arrays, **options)
    assert second.job == first[0].job
