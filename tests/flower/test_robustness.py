"""Invalid input from one client, or one damaged file, does not stop a job."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message

from fedlatest.errors import DivergedError
from fedlatest.flower import ClientResult, DeclinedError, FedLaAvg, LocalGrid, Timeouts, client_app, to_record
from fedlatest.flower.server_algorithm import merge
from fedlatest.ledger import ClientStore, FolderStorage, handle_instruction
from fedlatest.ledger.client_table import read_attendance
from fedlatest.ledger.event_log import append_event, read_events
from tests.flower.small_job import INITIAL, SmallJob, towards


def test_metrics_may_have_any_name(tmp_path: Path) -> None:
    grid = LocalGrid()

    def score(weights: Any, task: Any) -> ClientResult:
        return ClientResult(2, {"round": 7.0, "event": 1.0, "path": 2.0, "bad": float("nan")})

    app = client_app(towards(1), evaluate=score)
    grid.add(app, {"state-dir": str(tmp_path / "a"), "name": "a"})
    strategy = FedLaAvg(job=tmp_path / "job", cohort_size=1, timeouts=Timeouts(poll=0.001), evaluate_nodes_every=1)
    strategy.start(grid, to_record(INITIAL), num_rounds=2)
    [first, _] = [
        event for event in read_events(tmp_path / "job/events.jsonl") if event["event"] == "evaluated_on_nodes"
    ]
    assert (first["round"], first["metrics"]) == (1, {"round": 7.0, "event": 1.0, "path": 2.0})


def test_a_reply_that_flower_cannot_read_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other replies of its batch are lost once; their clients take part in later rounds."""
    job = SmallJob(tmp_path, timeouts=Timeouts(deadline=10, poll=1, late_reply=11))
    job.loop.wait_for_clients(3, timeout=30)
    pull, forged = LocalGrid.pull_messages, job.nodes["a"]

    def forge(grid: LocalGrid, identifiers: list[str]) -> list[Message]:
        replies = list(pull(grid, identifiers))
        if any(reply.metadata.src_node_id == forged for reply in replies):
            raise ValueError("Expecting value: line 1 column 1 (char 0)")
        return replies

    monkeypatch.setattr(LocalGrid, "pull_messages", forge)
    assert job.run_round().accepted == []
    job.now += 20
    taken = [job.run_round().accepted for _ in range(4)]
    assert sorted({client for each in taken for client in each}) == ["b", "c"]
    assert job.audit().holds


def test_a_model_that_is_not_finite_is_not_committed(tmp_path: Path) -> None:
    job = SmallJob(tmp_path)
    job.run_round()
    arrays = {**job.loop.arrays, "params": np.full(3, np.inf, np.float32)}
    with pytest.raises(DivergedError, match="not finite after round 1"):
        merge(job.strategy.algorithm, job.ledger, arrays)


@pytest.mark.parametrize(("change", "why"), [
    ({"weight": 1e300}, "the weight is 1e\\+300; it must be in"),
    ({"weight": 1e-50}, "the weight is 1e-50; it must be in"),
    ({"client": ""}, "the client's id has 0 characters"),
    ({"client": "x" * 201}, "the client's id has 201 characters"),
])  # fmt: skip
def test_an_invalid_greeting_is_refused(change: Any, why: str, tmp_path: Path) -> None:
    job = SmallJob(tmp_path, clients="")
    hello = job.ledger.instruction("z", "hello")
    reply = handle_instruction(
        ClientStore(FolderStorage(tmp_path / "z")), hello, train=lambda: pytest.fail("not asked")
    )
    verdict = job.ledger.handle_hello(replace(reply, **change))
    assert verdict.outcome == "refused"
    assert re.match(why, verdict.why)
    assert job.ledger.clients() == []


def test_a_client_that_declines_is_recorded_as_unavailable(tmp_path: Path) -> None:
    """c declines in rounds 0, 2, 4 and rests in 1, 3; it is asked again as soon as it is eligible."""
    eligible = [False]
    job = SmallJob(tmp_path, clients="ab")

    def train(weights: Any, task: Any) -> ClientResult:
        if not eligible[0]:
            raise DeclinedError("on battery")
        return towards(3)(weights, task)

    job.add("c", client_app(train))
    job.loop.wait_for_clients(3, timeout=30)
    asked = ["c" in job.run_round().asked for _ in range(5)]
    assert asked == [True, False, True, False, True]
    number = job.member("c").number
    assert not read_attendance(job.ledger.database)[0][:, number].any()
    eligible[0] = True
    job.run_round()
    assert "c" in job.run_round().accepted


def test_a_client_that_restarts_to_leave_is_removed_at_once(tmp_path: Path) -> None:
    """With a cohort size of 1, it would be asked to train only in the third round."""
    job = SmallJob(tmp_path, cohort_size=1)
    job.loop.wait_for_clients(3, timeout=30)
    for _ in range(3):
        job.run_round()
    job.store("a").leave(job.ledger.job)
    job.reopen()
    job.loop.wait_for_clients(3, timeout=30)
    assert "a" in job.run_round().left
    assert {member.id for member in job.ledger.clients()} == {"b", "c"}


def test_damaged_metrics_do_not_stop_a_job(tmp_path: Path) -> None:
    grid = LocalGrid()
    grid.add(client_app(towards(1)), {"state-dir": str(tmp_path / "a"), "name": "a"})
    strategy = FedLaAvg(job=tmp_path / "job", cohort_size=1, timeouts=Timeouts(poll=0.001))
    strategy.start(grid, to_record(INITIAL), num_rounds=2)
    path = tmp_path / "job/run/metrics.csv"
    path.write_bytes(path.read_bytes() + b"\0" * 40 + b"\n")
    strategy.start(grid, to_record(INITIAL), num_rounds=3)
    assert read_events(tmp_path / "job/events.jsonl")[-1]["event"] == "finished"


def test_an_event_after_an_incomplete_line_is_read(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    append_event(path, "a")
    path.write_bytes(path.read_bytes() + b'{"time": 1, "eve')
    append_event(path, "b")
    assert [event["event"] for event in read_events(path)] == ["a", "b"]
