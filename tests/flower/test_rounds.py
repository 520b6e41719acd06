"""Rounds with clients that are away, late, silent or unwilling; the sum stays what the clients hold."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Message

from fedlatest.errors import DeclinedError
from fedlatest.flower import Assignment, Fitted, Pace, client_app
from tests.flower.small import Small, Weights, lose, towards


def declines(weights: Weights, task: Assignment) -> Fitted:
    raise DeclinedError("on battery")


class Slow:
    """A network that holds back the uploads of a client until told otherwise."""

    def __init__(self, job: Small, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.job, self.node, self.held, self.free = job, job.nodes[name], list[Message](), False
        self._pull = job.grid.pull_messages
        job.grid.mail = self._mail
        monkeypatch.setattr(job.grid, "pull_messages", self._pull_with_held)

    def release(self) -> None:
        self.free = True

    def _mail(self, node: int, message: Message) -> Message | None:
        if self.free or node != self.node or message.has_error() or "vector" not in message.content:
            return message
        self.held.append(message)
        return None

    def _pull_with_held(self, ids: Iterable[str]) -> list[Message]:
        due = [message for message in self.held if self.free and message.metadata.reply_to_message_id in ids]
        self.held = [message for message in self.held if message not in due]
        return [*self._pull(ids), *due]


def test_everybody_takes_part(tmp_path: Path) -> None:
    """The first step is the mean of 1/2, 2/2 and 3/2."""
    job = Small(tmp_path)
    job.loop.wait_for(3, seconds=30)
    tally = job.play()
    assert sorted(tally.taken) == ["a", "b", "c"]
    assert job.loop.model["w"].tolist() == [1.0, 1.0, 1.0]
    assert tally.metrics == {"train_loss": 1.0}
    assert job.audit().holds


def test_nobody_is_here(tmp_path: Path) -> None:
    """The round is closed at the deadline, and the model is held."""
    job = Small(tmp_path)
    job.play()
    before, began = job.loop.model["w"], job.now
    tally = job.play(online="")
    assert not tally.asked
    assert 10 <= job.now - began < 12
    assert job.ledger.round == 2
    np.testing.assert_array_equal(job.loop.model["w"], before)


def test_a_lost_reply_heals(tmp_path: Path) -> None:
    """The client is asked again once its message is given up; its next difference starts from what counted."""
    job = Small(tmp_path, pace=Pace(deadline=10, poll=1, patience=10))
    job.play()
    job.once(lose, of="b")
    assert job.play().missed == ["b"]
    assert job.events("merged")[-1]["unanswered"] == ["b"]
    assert job.audit().holds
    assert "b" in [client for _ in range(6) for client in job.play().taken]
    assert job.audit().holds


def test_a_lost_instruction_heals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Small(tmp_path, pace=Pace(deadline=10, poll=1, patience=10))
    job.play()
    push, node = job.grid.push_messages, job.nodes["b"]

    def swallow(messages: list[Message]) -> list[str]:
        identifiers = list(push(messages))
        if messages[0].metadata.dst_node_id == node:
            job.grid._out.pop(identifiers[0])
        return identifiers

    with monkeypatch.context() as patch:
        patch.setattr(job.grid, "push_messages", swallow)
        assert job.play().missed == ["b"]
    assert "b" in [client for _ in range(6) for client in job.play().taken]
    assert job.audit().holds


def test_a_late_reply_counts_in_a_later_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the client is not asked again in that round, though a place is free and nobody is absent for longer."""
    job = Small(tmp_path, pace=Pace(deadline=10, poll=1, patience=100))
    job.play()
    slow = Slow(job, "b", monkeypatch)
    job.play("abc")
    job.play("ac")
    slow.release()
    tally = job.play("ab")
    assert sorted(tally.taken) == ["a", "b"]
    assert (tally.asked, tally.late) == (["a"], ["b"])
    assert job.audit().holds
    assert "b" in [client for _ in range(4) for client in job.play("abc").taken]
    assert not job.events("lost", "refused", "resync")
    assert job.audit().holds


def test_a_round_of_late_replies_alone_is_closed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Small(tmp_path, pace=Pace(deadline=10, poll=1, patience=100))
    job.play()
    slow = Slow(job, "a", monkeypatch)
    job.play("a")
    slow.release()
    began = job.now
    assert job.play("a").late == ["a"]
    assert job.now - began < 5


def test_a_late_reply_between_two_rounds_counts_in_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It arrives while the model is evaluated on the nodes, with clients being expired."""
    job = Small(tmp_path, pace=Pace(deadline=10, poll=1, patience=100, expire=1e6))
    job.play()
    slow = Slow(job, "b", monkeypatch)
    job.play()
    slow.release()
    job.loop.evaluate()
    job.now += 2e6  # so that expiry is looked at
    for member in job.ledger.clients():
        job.ledger.table.set_last_contact(member.id, job.now)
    tally = job.play()
    assert "b" in tally.late
    assert tally.asked.count("b") == 0
    assert not job.events("refused", "lost")
    assert job.audit().holds


def test_a_message_given_up_is_not_taken_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client was handed another ticket since; what bears the old one would be refused anyway."""
    job = Small(tmp_path, pace=Pace(deadline=10, poll=1, patience=15))
    job.play()
    slow = Slow(job, "b", monkeypatch)
    job.play()
    job.play("ac")
    job.play("")
    slow.release()
    assert "b" in [client for _ in range(6) for client in job.play("abc").taken]
    assert job.audit().holds


def test_a_duplicate_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Small(tmp_path)
    pull = job.grid.pull_messages
    monkeypatch.setattr(job.grid, "pull_messages", lambda ids: [m for m in pull(ids) for _ in range(2)])
    assert sorted(job.play().taken) == ["a", "b", "c"]
    assert sorted(job.play().taken) == ["a", "b", "c"]
    assert job.audit().holds


def test_a_substitute_for_one_who_declines(tmp_path: Path) -> None:
    """Declining costs a rest and nothing else: the rank stays, and so does the value in the sum."""
    job = Small(tmp_path, clients="ab", cohort_size=1)
    job.add("c", client_app(declines))
    job.loop.wait_for(3, seconds=30)
    order = [job.play() for _ in range(3)]
    asked = next(tally for tally in order if "c" in tally.asked)
    assert asked.declined == ["c"]
    assert len(asked.taken) == 1
    assert job.member("c").last_round == -1
    assert job.events("merged")[order.index(asked)]["declined"] == ["c"]
    assert job.audit().holds


def test_everybody_declines(tmp_path: Path) -> None:
    """Nobody is asked twice in the round, which waits for somebody else until its deadline."""
    job = Small(tmp_path, clients="")
    for name in "abc":
        job.add(name, client_app(declines))
    tally = job.play()
    assert sorted(tally.declined) == sorted(tally.asked) == ["a", "b", "c"]
    assert job.now >= job.loop.pace.deadline
    assert job.loop.model["w"].tolist() == [0, 0, 0]


def test_one_that_leaves_in_the_middle_is_not_waited_for(tmp_path: Path) -> None:
    """Its place is given to another, and the round is closed once that one has answered."""
    job = Small(tmp_path, cohort_size=1)
    job.loop.wait_for(3, seconds=30)
    gone: list[int] = []

    def go() -> None:
        for call in [] if gone else job.board.at_work(job.ledger.round):
            gone.append(call.node)
            job.grid.nodes[call.node].online = False

    job.grid.before_pull = go
    tally = job.play()
    assert len(tally.asked) == 2
    assert len(tally.taken) == 1
    assert job.now < 5
    assert job.audit().holds


def test_a_dead_client_does_not_win_for_ever(tmp_path: Path) -> None:
    """It is the longest absent, and is left alone for longer each time that it does not answer."""
    job = Small(tmp_path, cohort_size=1, pace=Pace(deadline=10, poll=1, patience=10))
    job.loop.wait_for(3, seconds=30)
    dead = job.nodes["c"]
    job.grid.mail = lambda node, message: None if node == dead else message
    rounds = [job.play() for _ in range(20)]
    assert 3 <= sum("c" in tally.asked for tally in rounds) <= 6
    assert sum(len(tally.taken) for tally in rounds) >= 14
    assert job.audit().holds


def test_min_clients(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Those that it waits for are waited for, though not for ever."""
    job = Small(tmp_path)
    job.online("a")

    def come(seconds: float) -> None:
        job.now += seconds
        if job.now >= 5:
            job.online("abc")

    job.loop.sleep = come
    job.loop.wait_for(3, seconds=30)
    assert 5 <= job.now <= 8
    job.loop.wait_for(4, seconds=30)
    assert 35 <= job.now <= 40
    assert "3 of 4 clients are here after 30 s" in caplog.text


def test_a_late_joiner(tmp_path: Path) -> None:
    """N grows: the mean of 1/2 and 1/2 becomes that of three."""
    job = Small(tmp_path, clients="ab")
    job.play()
    job.add("c", client_app(towards(9)))
    assert "c" in job.play().taken + job.play().taken
    assert [event["client"] for event in job.events("joined")] == ["a", "b", "c"]
    assert job.ledger.sums().num_clients == 3
    assert job.audit().holds


def test_a_goodbye(tmp_path: Path) -> None:
    """Its value goes out of the sum; it is not counted as having worked, nor as having missed the round."""
    job = Small(tmp_path)
    job.play()
    job.store("b").leave(job.ledger.job)
    tally = job.play()
    assert (tally.left, tally.missed) == (["b"], [])
    assert sorted(tally.taken) == ["a", "c"]
    merged = job.events("merged")[-1]
    assert (merged["left"], merged["applied"], merged["here"]) == (["b"], ["a", "c"], ["a", "c"])
    assert [member.id for member in job.ledger.clients()] == ["a", "c"]
    assert job.audit().holds
    assert sorted(job.play().taken) == ["a", "c"]
    assert job.audit().holds


@pytest.mark.parametrize("memory", ["client", "server"])
def test_the_silent_expire_and_may_come_back(tmp_path: Path, memory: str) -> None:
    """Also with the node id that they had before."""
    job = Small(tmp_path, pace=Pace(deadline=10, poll=1, expire=25), memory=memory)
    job.play()
    for _ in range(6):
        job.play("ab")
        job.now += 10
    assert [event["client"] for event in job.events("expired")] == ["c"]
    assert [member.id for member in job.ledger.clients()] == ["a", "b"]
    assert "c" in [client for _ in range(4) for client in job.play("abc").taken]
    assert job.audit().holds


def test_silence_does_not_count_while_the_server_is_down(tmp_path: Path) -> None:
    """A server that comes back after a long time does not send everybody away who has not said hello yet."""
    job = Small(tmp_path, pace=Pace(deadline=10, poll=1, expire=25))
    job.play()
    job.now += 1000
    job.reopen()
    job.play("a")
    assert not job.events("expired", "resync")
    assert len(job.play("abc").taken) == 3
    assert job.audit().holds
