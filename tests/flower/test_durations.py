"""What the round loop records about tasks, on a simulated clock: a node replies when the server next polls."""

import math
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message

from fedlatest.errors import DeclinedError, LedgerError
from fedlatest.flower import ClientResult, ClientTask, SecureAggregation, client_app
from fedlatest.ledger.durations import OUTCOMES, read_task_rounds, read_tasks
from tests.flower.small_job import SmallJob, Weights, lose, towards


def tasks_of(job: SmallJob) -> list[tuple[int, str, float, float, str]]:
    """Return round, client, asked, answered and outcome of every task."""
    names = {row.number: row.id for row in job.ledger.clients()}
    found = read_tasks(job.ledger.database)
    columns = (found.round, found.client, found.asked, found.answered, found.outcome)
    return [
        (int(round), names[int(client)], float(asked), float(answered), OUTCOMES[outcome])
        for round, client, asked, answered, outcome in zip(*columns, strict=True)
    ]


def test_asked_and_answered(tmp_path: Path) -> None:
    """The clients are asked at time 0, and their replies arrive at the next poll, at time 1."""
    job = SmallJob(tmp_path, clients="ab", cohort_size=2)
    job.run_round()
    assert tasks_of(job) == [(0, "a", 0.0, 1.0, "accepted"), (0, "b", 0.0, 1.0, "accepted")]
    training = read_tasks(job.ledger.database).training_seconds
    assert ((training >= 0) & (training <= 1.0)).all()
    [round] = read_task_rounds(job.ledger.database)
    assert (round.began, round.closed, round.cohort_size, round.deadline) == (0.0, 1.0, 2, 10)
    assert (round.times.tolist(), round.rooms.tolist()) == ([0.0], [2])
    assert round.candidates.tolist() == [[True, True]]


def test_training_seconds_are_those_of_the_training_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's clock says that training took 0.25 s."""
    clock = [100.0]
    monkeypatch.setattr("fedlatest.ledger.client.time.monotonic", lambda: clock[0])

    def train(weights: Weights, task: ClientTask) -> ClientResult:
        clock[0] += 0.25
        return towards(1.0)(weights, task)

    job = SmallJob(tmp_path, clients="", cohort_size=1)
    job.add("a", client_app(train))
    job.run_round()
    assert read_tasks(job.ledger.database).training_seconds.tolist() == [0.25]


def test_declined_failed_and_missed(tmp_path: Path) -> None:
    def decline(weights: Weights, task: ClientTask) -> ClientResult:
        raise DeclinedError("on battery")

    def fail(weights: Weights, task: ClientTask) -> ClientResult:
        raise RuntimeError("no data")

    job = SmallJob(tmp_path, clients="ab", cohort_size=4)
    job.add("d", client_app(decline))
    job.add("f", client_app(fail))
    job.change_next_upload(lose, of="b")
    job.run_round()
    assert [(client, outcome) for _, client, _, _, outcome in tasks_of(job)] == [
        *[("a", "accepted"), ("b", "missed"), ("d", "declined"), ("f", "failed")],
    ]
    assert math.isnan(tasks_of(job)[1][3])


def test_late_upload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """b is asked at time 0 of round 0, which ends at time 10; its upload arrives at once in round 1."""
    job = SmallJob(tmp_path, clients="ab", cohort_size=2)
    held: list[Message] = []
    job.change_next_upload(lambda _, message: held.append(message), of="b")
    job.run_round()
    assert [(client, outcome) for _, client, _, _, outcome in tasks_of(job)] == [("a", "accepted"), ("b", "missed")]
    pull = job.grid.pull_messages
    monkeypatch.setattr(job.grid, "pull_messages", lambda ids: [*pull(ids), *(held.pop() for _ in held[:1])])
    job.run_round()
    assert job.member("b").last_round == 1
    assert [task for task in tasks_of(job) if task[1] == "b"] == [(0, "b", 0.0, 10.0, "late")]


def test_replacement_is_a_second_selection(tmp_path: Path) -> None:
    """One client is asked and declines; the other one replaces it in the same round."""

    def decline(weights: Weights, task: ClientTask) -> ClientResult:
        raise DeclinedError("busy")

    job = SmallJob(tmp_path, clients="", cohort_size=1)
    for name in "ab":
        job.add(name, client_app(decline))
    job.run_round()
    [round] = read_task_rounds(job.ledger.database)
    assert (round.times.tolist(), round.rooms.tolist()) == ([0.0, 1.0], [1, 1])
    assert round.candidates.sum(axis=1).tolist() == [2, 1]


def test_uptime_continues_after_a_restart(tmp_path: Path) -> None:
    """The machine sleeps for a day between two servers: that does not count."""
    job = SmallJob(tmp_path, clients="a", cohort_size=1)
    job.run_round()
    job.ledger.close()
    job.now += 86400
    job.reopen()
    job.run_round()
    assert tasks_of(job) == [(0, "a", 0.0, 1.0, "accepted"), (1, "a", 1.0, 2.0, "accepted")]


@pytest.mark.parametrize(("share", "known"), [(False, False), (True, True)])
def test_secure_job_sends_training_seconds_only_with_metrics(tmp_path: Path, share: bool, known: bool) -> None:
    secure = SecureAggregation(min_cohort=3, share_metrics=share)
    job = SmallJob(tmp_path, clients="abc", cohort_size=3, secure=secure)
    job.run_round()
    found = read_tasks(job.ledger.database)
    assert found.have("accepted").tolist() == [True] * 3
    assert (found.answered > found.asked).all()
    assert (~(found.training_seconds >= 0)).tolist() == [not known] * 3


def test_session_that_is_not_unmasked_leaves_collected_tasks(tmp_path: Path) -> None:
    """Two of three uploads arrive, and a cohort needs three."""
    job = SmallJob(tmp_path, clients="abc", cohort_size=3, secure=SecureAggregation(min_cohort=3))
    job.change_next_upload(lose, of="c")
    job.run_round()
    assert sorted(outcome for *_, outcome in tasks_of(job)) == ["collected", "collected", "missed"]


def test_round_whose_transaction_fails_is_recorded_when_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full when round 0 is closed for the first time; the server then runs it again."""
    job = SmallJob(tmp_path, clients="ab", cohort_size=2)
    close_round = job.ledger.close_round

    def fail(*arguments: Any, **options: Any) -> None:
        monkeypatch.setattr(job.ledger, "close_round", close_round)
        raise LedgerError("disk is full")

    monkeypatch.setattr(job.ledger, "close_round", fail)
    with pytest.raises(LedgerError, match="disk is full"):
        job.run_round()
    job.run_round()
    assert tasks_of(job) == [(0, "a", 0.0, 1.0, "accepted"), (0, "b", 0.0, 1.0, "accepted")]
    [round] = read_task_rounds(job.ledger.database)
    assert (round.times >= round.began).all()
