"""Rounds with clients that are offline, late, silent or decline; the sum always equals the clients' updates."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Message

from fedlatest.errors import DeclinedError
from fedlatest.flower import ClientResult, ClientTask, Timeouts, client_app
from tests.flower.small_job import SmallJob, Weights, lose, towards


def declines(weights: Weights, task: ClientTask) -> ClientResult:
    raise DeclinedError("on battery")


class DelayedUploads:
    """Delays the uploads of a client until `release` is called."""

    def __init__(self, job: SmallJob, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.job, self.node, self.held, self.released = job, job.nodes[name], list[Message](), False
        self._pull = job.grid.pull_messages
        job.grid.on_reply = self._on_reply
        monkeypatch.setattr(job.grid, "pull_messages", self._pull_with_held)

    def release(self) -> None:
        self.released = True

    def _on_reply(self, node: int, message: Message) -> Message | None:
        if self.released or node != self.node or message.has_error() or "vector" not in message.content:
            return message
        self.held.append(message)
        return None

    def _pull_with_held(self, ids: Iterable[str]) -> list[Message]:
        due = [message for message in self.held if self.released and message.metadata.reply_to_message_id in ids]
        self.held = [message for message in self.held if message not in due]
        return [*self._pull(ids), *due]


def test_all_clients_take_part(tmp_path: Path) -> None:
    """The first step is the mean of 1/2, 2/2 and 3/2, which is 1."""
    job = SmallJob(tmp_path)
    job.loop.wait_for_clients(3, timeout=30)
    outcome = job.run_round()
    assert sorted(outcome.accepted) == ["a", "b", "c"]
    assert job.loop.model["w"].tolist() == [1.0, 1.0, 1.0]
    assert outcome.metrics == {"train_loss": 1.0}
    assert job.audit().holds


def test_no_client_is_available(tmp_path: Path) -> None:
    """The round is closed at its deadline, and the model does not change."""
    job = SmallJob(tmp_path)
    job.run_round()
    before, began = job.loop.model["w"], job.now
    outcome = job.run_round(online="")
    assert not outcome.asked
    assert 10 <= job.now - began < 12
    assert job.ledger.round == 2
    np.testing.assert_array_equal(job.loop.model["w"], before)


def test_recovery_from_a_lost_reply(tmp_path: Path) -> None:
    """The client is asked again when its message has expired; its next difference starts from the update in the sum."""
    job = SmallJob(tmp_path, timeouts=Timeouts(deadline=10, poll=1, late_reply=10))
    job.run_round()
    job.change_next_upload(lose, of="b")
    assert job.run_round().missed == ["b"]
    assert job.events("merged")[-1]["unanswered"] == ["b"]
    assert job.audit().holds
    assert "b" in [client for _ in range(6) for client in job.run_round().accepted]
    assert job.audit().holds


def test_recovery_from_a_lost_instruction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = SmallJob(tmp_path, timeouts=Timeouts(deadline=10, poll=1, late_reply=10))
    job.run_round()
    push, node = job.grid.push_messages, job.nodes["b"]

    def lose_instruction(messages: list[Message]) -> list[str]:
        identifiers = list(push(messages))
        for message, identifier in zip(messages, identifiers, strict=True):
            if message.metadata.dst_node_id == node:
                job.grid._undelivered.pop(identifier)
        return identifiers

    with monkeypatch.context() as patch:
        patch.setattr(job.grid, "push_messages", lose_instruction)
        assert job.run_round().missed == ["b"]
    assert "b" in [client for _ in range(6) for client in job.run_round().accepted]
    assert job.audit().holds


def test_a_late_reply_counts_in_a_later_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client is not asked again in that round, although it has the highest staleness and the cohort has room."""
    job = SmallJob(tmp_path, timeouts=Timeouts(deadline=10, poll=1, late_reply=100))
    job.run_round()
    delayed = DelayedUploads(job, "b", monkeypatch)
    job.run_round("abc")
    job.run_round("ac")
    delayed.release()
    outcome = job.run_round("ab")
    assert sorted(outcome.accepted) == ["a", "b"]
    assert (outcome.asked, outcome.late) == (["a"], ["b"])
    assert job.audit().holds
    assert "b" in [client for _ in range(4) for client in job.run_round("abc").accepted]
    assert not job.events("lost", "refused", "resync")
    assert job.audit().holds


def test_a_round_with_only_late_replies_is_closed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = SmallJob(tmp_path, timeouts=Timeouts(deadline=10, poll=1, late_reply=100))
    job.run_round()
    delayed = DelayedUploads(job, "a", monkeypatch)
    job.run_round("a")
    delayed.release()
    began = job.now
    assert job.run_round("a").late == ["a"]
    assert job.now - began < 5


def test_a_late_reply_between_two_rounds_counts_in_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It arrives while the model is evaluated on the nodes, in a job that expires clients."""
    job = SmallJob(tmp_path, timeouts=Timeouts(deadline=10, poll=1, late_reply=100, expire=1e6))
    job.run_round()
    delayed = DelayedUploads(job, "b", monkeypatch)
    job.run_round()
    delayed.release()
    job.loop.evaluate()
    job.now += 2e6  # the server checks for expired clients
    for member in job.ledger.clients():
        job.ledger.table.set_last_contact([member.id], job.now)
    outcome = job.run_round()
    assert "b" in outcome.late
    assert outcome.asked.count("b") == 0
    assert not job.events("refused", "lost")
    assert job.audit().holds


def test_a_reply_to_an_expired_message_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client has been issued another ticket since, so the ledger would refuse the old one."""
    job = SmallJob(tmp_path, timeouts=Timeouts(deadline=10, poll=1, late_reply=15))
    job.run_round()
    delayed = DelayedUploads(job, "b", monkeypatch)
    job.run_round()
    job.run_round("ac")
    job.run_round("")
    delayed.release()
    assert "b" in [client for _ in range(6) for client in job.run_round("abc").accepted]
    assert job.audit().holds


def test_a_duplicate_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = SmallJob(tmp_path)
    pull = job.grid.pull_messages
    monkeypatch.setattr(job.grid, "pull_messages", lambda ids: [m for m in pull(ids) for _ in range(2)])
    assert sorted(job.run_round().accepted) == ["a", "b", "c"]
    assert sorted(job.run_round().accepted) == ["a", "b", "c"]
    assert job.audit().holds


def test_a_client_that_declines_is_replaced(tmp_path: Path) -> None:
    """It rests for a round; its rank and its update in the sum do not change."""
    job = SmallJob(tmp_path, clients="ab", cohort_size=1)
    job.add("c", client_app(declines))
    job.loop.wait_for_clients(3, timeout=30)
    order = [job.run_round() for _ in range(3)]
    asked = next(outcome for outcome in order if "c" in outcome.asked)
    assert asked.declined == ["c"]
    assert len(asked.accepted) == 1
    assert job.member("c").last_round == -1
    assert job.events("merged")[order.index(asked)]["declined"] == ["c"]
    assert job.audit().holds


def test_all_clients_decline(tmp_path: Path) -> None:
    """No client is asked twice in the round, which waits for other clients until its deadline."""
    job = SmallJob(tmp_path, clients="")
    for name in "abc":
        job.add(name, client_app(declines))
    outcome = job.run_round()
    assert sorted(outcome.declined) == sorted(outcome.asked) == ["a", "b", "c"]
    assert job.now >= job.loop.timeouts.deadline
    assert job.loop.model["w"].tolist() == [0, 0, 0]


def test_a_client_that_goes_offline_during_a_round_is_replaced(tmp_path: Path) -> None:
    """Another client is asked, and the round is closed when that one has replied."""
    job = SmallJob(tmp_path, cohort_size=1)
    job.loop.wait_for_clients(3, timeout=30)
    offline: list[int] = []

    def go_offline() -> None:
        for message in [] if offline else job.messages.awaited(job.ledger.round):
            offline.append(message.node)
            job.grid.nodes[message.node].online = False

    job.grid.before_pull = go_offline
    outcome = job.run_round()
    assert len(outcome.asked) == 2
    assert len(outcome.accepted) == 1
    assert job.now < 5
    assert job.audit().holds


def test_a_silent_client_is_asked_less_and_less_often(tmp_path: Path) -> None:
    """It has the highest staleness, but rests for 1, 2, 4, then 8 rounds after each message without a reply."""
    job = SmallJob(tmp_path, cohort_size=1, timeouts=Timeouts(deadline=10, poll=1, late_reply=10))
    job.loop.wait_for_clients(3, timeout=30)
    dead = job.nodes["c"]
    job.grid.on_reply = lambda node, message: None if node == dead else message
    rounds = [job.run_round() for _ in range(20)]
    assert 3 <= sum("c" in outcome.asked for outcome in rounds) <= 6
    assert sum(len(outcome.accepted) for outcome in rounds) >= 14
    assert job.audit().holds


def test_waiting_for_clients(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The wait ends when the clients are available, or at its timeout."""
    job = SmallJob(tmp_path)
    job.online("a")

    def come_online(seconds: float) -> None:
        job.now += seconds
        if job.now >= 5:
            job.online("abc")

    job.loop.sleep = come_online
    job.loop.wait_for_clients(3, timeout=30)
    assert 5 <= job.now <= 8
    job.loop.wait_for_clients(4, timeout=30)
    assert 35 <= job.now <= 40
    assert "only 3 of 4 clients are available after 30 s" in caplog.text


def test_a_client_joins_later(tmp_path: Path) -> None:
    """The number of clients N grows from 2 to 3."""
    job = SmallJob(tmp_path, clients="ab")
    job.run_round()
    job.add("c", client_app(towards(9)))
    assert "c" in job.run_round().accepted + job.run_round().accepted
    assert [event["client"] for event in job.events("joined")] == ["a", "b", "c"]
    assert job.ledger.sums().num_clients == 3
    assert job.audit().holds


def test_a_client_leaves(tmp_path: Path) -> None:
    """Its update is removed from the sum; it counts neither as accepted nor as missed."""
    job = SmallJob(tmp_path)
    job.run_round()
    job.store("b").leave(job.ledger.job)
    outcome = job.run_round()
    assert (outcome.left, outcome.missed) == (["b"], [])
    assert sorted(outcome.accepted) == ["a", "c"]
    merged = job.events("merged")[-1]
    assert (merged["left"], merged["applied"], merged["num_available"]) == (["b"], ["a", "c"], 2)
    assert [member.id for member in job.ledger.clients()] == ["a", "c"]
    assert job.audit().holds
    assert sorted(job.run_round().accepted) == ["a", "c"]
    assert job.audit().holds


@pytest.mark.parametrize("memory", ["client", "server"])
def test_expired_clients_may_return(tmp_path: Path, memory: str) -> None:
    """The client returns with the node id that it had before."""
    job = SmallJob(tmp_path, timeouts=Timeouts(deadline=10, poll=1, expire=25), memory=memory)
    job.run_round()
    for _ in range(6):
        job.run_round("ab")
        job.now += 10
    assert [event["client"] for event in job.events("expired")] == ["c"]
    assert [member.id for member in job.ledger.clients()] == ["a", "b"]
    assert "c" in [client for _ in range(4) for client in job.run_round("abc").accepted]
    assert job.audit().holds


def test_time_without_a_server_does_not_expire_clients(tmp_path: Path) -> None:
    """A server that starts after a long pause does not expire the clients that it has not seen yet."""
    job = SmallJob(tmp_path, timeouts=Timeouts(deadline=10, poll=1, expire=25))
    job.run_round()
    job.now += 1000
    job.reopen()
    job.run_round("a")
    assert not job.events("expired", "resync")
    assert len(job.run_round("abc").accepted) == 3
    assert job.audit().holds
