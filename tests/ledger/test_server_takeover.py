"""Two servers with one ledger: the one that opened it last owns it, and the other cannot write."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlatest.errors import LedgerError
from fedlatest.ledger import JobConfig, Layout, Ledger
from fedlatest.ledger.database import Database
from tests.after_test import after_test
from tests.ledger.job import ARRAYS, LAYOUT, Job

OTHER = Layout.of({"y": np.zeros(2, np.float32)})


def test_server_that_lost_the_ledger_cannot_write() -> None:
    job = Job("a", "b")
    first, reply = job.ledger, job.reply(job.issue("a"), 1, 2)
    job.ledger = job.open()
    first.handle_reply(reply)
    for write in (
        lambda: first.close_round(ARRAYS),
        lambda: first.issue(["b"]),
        lambda: first.expire(seconds=-1.0),
        first.resync,
        lambda: first.handle_hello(job.hello("a")),
    ):
        with pytest.raises(LedgerError, match="another server run has taken over this job"):
            write()
        first._accepted.clear()
    assert job.total == [0, 0]
    assert job.ledger.handle_reply(reply).outcome == "accepted"  # the new server accepts its ticket
    job.close_round()
    assert job.total == [1, 2]


def test_server_continues_from_a_round_closed_while_it_starts(tmp_path: Path) -> None:
    job = Job("a", database=Database.open(tmp_path / "ledger.db"))
    first = job.ledger
    first.handle_reply(job.reply(job.issue("a"), 1, 2))

    def token() -> str:
        if first.round == 0:
            first.close_round(ARRAYS)
        return "abc"

    options: Any = {"config": job.config, "layout": LAYOUT, "arrays": lambda: ARRAYS, "token": token}
    with Ledger.open(tmp_path / "ledger.db", **options) as second:
        assert (second.round, second.total.tolist()) == (1, [1, 2])


@pytest.mark.parametrize("wrong", [{"config": JobConfig("other")}, {"layout": OTHER}])
def test_server_with_another_job_raises_and_takes_no_ownership(wrong: dict[str, Any]) -> None:
    job = Job("a")
    stored: dict[str, Any] = {"config": job.config, "layout": LAYOUT}
    [(name, given)] = wrong.items()
    with pytest.raises(LedgerError, match=f"{stored[name].hash}, the given one is {given.hash}"):
        Ledger.open(job.database, arrays=lambda: ARRAYS, **{**stored, **wrong})
    assert job.round({"a": [1, 2]}) == ["accepted"]


def test_two_servers_create_the_job_at_once(tmp_path: Path) -> None:
    """The second server finds an empty file; when it starts to write, the first one has created the job."""
    options: Any = {"config": JobConfig("fedlaavg"), "layout": LAYOUT}

    def arrays() -> dict[str, Any]:
        if not first:
            ledger = Ledger.open(tmp_path / "ledger.db", arrays=lambda: ARRAYS, **options)
            first.append(after_test.enter_context(ledger))
        return ARRAYS

    first: list[Ledger] = []
    with Ledger.open(tmp_path / "ledger.db", arrays=arrays, **options) as second:
        assert second.job == first[0].job
