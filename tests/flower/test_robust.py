"""One client, or one file, must not harm a whole job."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message

from fedlatest.errors import DivergedError
from fedlatest.flower import DeclinedError, FedLaAvg, Fitted, LocalGrid, Pace, client_app, to_record
from fedlatest.flower.recorded_availability import attendance_table
from fedlatest.flower.server_algorithm import merge
from fedlatest.ledger import ClientStore, FolderStorage, handle_instruction
from fedlatest.ledger.job_folder import append_event, read_events
from tests.flower.small import FIRST, Small, towards


def test_metrics_may_have_any_name(tmp_path: Path) -> None:
    grid = LocalGrid()

    def score(weights: Any, task: Any) -> Fitted:
        return Fitted(2, {"round": 7.0, "event": 1.0, "path": 2.0, "bad": float("nan")})

    app = client_app(towards(1), evaluate=score)
    grid.add(app, {"state-dir": str(tmp_path / "a"), "name": "a"})
    strategy = FedLaAvg(job=tmp_path / "job", cohort_size=1, pace=Pace(poll=0.001), evaluate_nodes_every=1)
    strategy.start(grid, to_record(FIRST), num_rounds=2)
    [first, _] = [
        event for event in read_events(tmp_path / "job/events.jsonl") if event["event"] == "evaluated_on_nodes"
    ]
    assert (first["round"], first["metrics"]) == (1, {"round": 7.0, "event": 1.0, "path": 2.0})


def test_a_reply_that_flower_cannot_read_costs_that_reply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others of the same request are lost with it, once; their clients take part in the next round."""
    job = Small(tmp_path, pace=Pace(deadline=10, poll=1, patience=11))
    job.loop.wait_for(3, seconds=30)
    pull, forged = LocalGrid.pull_messages, job.nodes["a"]

    def forge(grid: LocalGrid, identifiers: list[str]) -> list[Message]:
        replies = list(pull(grid, identifiers))
        if any(reply.metadata.src_node_id == forged for reply in replies):
            raise ValueError("Expecting value: line 1 column 1 (char 0)")
        return replies

    monkeypatch.setattr(LocalGrid, "pull_messages", forge)
    assert job.play().taken == []
    job.now += 20
    taken = [job.play().taken for _ in range(4)]
    assert sorted({client for each in taken for client in each}) == ["b", "c"]
    assert job.audit().holds


def test_a_model_that_is_not_finite_is_not_kept(tmp_path: Path) -> None:
    job = Small(tmp_path)
    job.play()
    arrays = {**job.loop.arrays, "params": np.full(3, np.inf, np.float32)}
    with pytest.raises(DivergedError, match="not finite after round 1"):
        merge(job.strategy.algorithm, job.ledger, arrays)


@pytest.mark.parametrize(("change", "why"), [
    ({"weight": 1e300}, "the weight is 1e\\+300; it must be in"),
    ({"weight": 1e-50}, "the weight is 1e-50; it must be in"),
    ({"client": ""}, "the client's id has 0 characters"),
    ({"client": "x" * 201}, "the client's id has 201 characters"),
])  # fmt: skip
def test_a_greeting_must_make_sense(change: Any, why: str, tmp_path: Path) -> None:
    job = Small(tmp_path, clients="")
    hello = job.ledger.instruction("z", "hello")
    reply = handle_instruction(
        ClientStore(FolderStorage(tmp_path / "z")), hello, train=lambda: pytest.fail("not asked")
    )
    verdict = job.ledger.handle_hello(replace(reply, **change))
    assert verdict.outcome == "refused"
    assert re.match(why, verdict.why)
    assert job.ledger.clients() == []


def test_who_declines_is_not_here_and_loses_nothing(tmp_path: Path) -> None:
    """c declines in rounds 0, 2, 4 and rests in 1, 3; it is asked at once when it may work again."""
    may = [False]
    job = Small(tmp_path, clients="ab")

    def train(weights: Any, task: Any) -> Fitted:
        if not may[0]:
            raise DeclinedError("on battery")
        return towards(3)(weights, task)

    job.add("c", client_app(train))
    job.loop.wait_for(3, seconds=30)
    asked = ["c" in job.play().asked for _ in range(5)]
    assert asked == [True, False, True, False, True]
    number = job.member("c").number
    assert not attendance_table(job.ledger.database)[:, number].any()
    may[0] = True
    job.play()
    assert "c" in job.play().taken


def test_a_client_that_restarts_to_leave_is_let_go_at_once(tmp_path: Path) -> None:
    """With a cohort of one, its turn to train would come in the third round."""
    job = Small(tmp_path, cohort_size=1)
    job.loop.wait_for(3, seconds=30)
    for _ in range(3):
        job.play()
    job.store("a").leave(job.ledger.job)
    job.reopen()
    job.loop.wait_for(3, seconds=30)
    assert "a" in job.play().left
    assert {member.id for member in job.ledger.clients()} == {"b", "c"}


def test_damaged_metrics_cost_their_rows(tmp_path: Path) -> None:
    grid = LocalGrid()
    grid.add(client_app(towards(1)), {"state-dir": str(tmp_path / "a"), "name": "a"})
    strategy = FedLaAvg(job=tmp_path / "job", cohort_size=1, pace=Pace(poll=0.001))
    strategy.start(grid, to_record(FIRST), num_rounds=2)
    path = tmp_path / "job/run/metrics.csv"
    path.write_bytes(path.read_bytes() + b"\0" * 40 + b"\n")
    strategy.start(grid, to_record(FIRST), num_rounds=3)
    assert read_events(tmp_path / "job/events.jsonl")[-1]["event"] == "finished"


def test_an_event_after_a_torn_line_is_read(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    append_event(path, "a")
    path.write_bytes(path.read_bytes() + b'{"time": 1, "eve')
    append_event(path, "b")
    assert [event["event"] for event in read_events(path)] == ["a", "b"]
