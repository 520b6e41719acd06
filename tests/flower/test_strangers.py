"""Clients that come and go without contributing, that are refused, or that an operator expels, in whole rounds."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Message

from fedlatest.errors import DeclinedError
from fedlatest.flower import ClientResult, ClientTask, Timeouts, client_app, to_record
from fedlatest.flower.message_records import read_reply
from fedlatest.ledger import Limits, encode
from fedlatest.ledger.hashing import checksum_of
from fedlatest.ledger.job_folder import end_epoch, expel
from tests.flower.small_job import SmallJob, Weights, towards
from tests.flower.test_round_loop import DelayedUploads


def declines(weights: Weights, task: ClientTask) -> ClientResult:
    raise DeclinedError("never")


def test_weight_of_a_client_that_always_declines_does_not_slow_the_model(tmp_path: Path) -> None:
    """a and b train towards 1 and 2: the first step is (1/2 + 2/2) / 2 = 0.75, whatever the visitor claims."""
    job = SmallJob(tmp_path, clients="ab")
    job.add("visitor", client_app(declines, num_examples=lambda context: 2**30))
    job.loop.wait_for_clients(3, timeout=30)
    job.run_round()
    assert job.loop.model["w"].tolist() == [0.75, 0.75, 0.75]
    assert job.ledger.sums().num_clients == 2


def test_visitor_that_was_forgotten_is_greeted_when_it_returns(tmp_path: Path) -> None:
    """c declines in its first round, is offline for eight rounds, and returns with the same node id."""
    eligible = [False]

    def train(weights: Weights, task: ClientTask) -> ClientResult:
        return towards(3)(weights, task) if eligible[0] else declines(weights, task)

    job = SmallJob(tmp_path, clients="ab")
    job.add("c", client_app(train))
    job.loop.wait_for_clients(3, timeout=30)
    job.run_round()
    for _ in range(8):
        job.run_round("ab")
    assert [member.id for member in job.ledger.clients()] == ["a", "b"]
    eligible[0] = True
    assert "c" in [client for _ in range(3) for client in job.run_round("abc").accepted]
    assert job.audit().holds


def test_expelled_client_is_removed_after_the_round_and_readmitted_later(tmp_path: Path) -> None:
    """The server keeps running, and the node of c stays online all the time."""
    job = SmallJob(tmp_path)
    job.run_round()
    path = tmp_path / "job/ledger.sqlite"
    job.grid.before_pull = lambda: expel(path, "c")  # during the second round
    assert "c" in job.run_round().accepted
    job.grid.before_pull = lambda: None
    assert [member.id for member in job.ledger.clients()] == ["a", "b"]
    assert [event["client"] for event in job.events("expelled")] == ["c"]
    assert sorted(job.run_round().accepted) == ["a", "b"]
    assert [(event["client"], event["why"]) for event in job.events("refused")] == [
        ("c", "the client was expelled; `fedlatest expel --undo` readmits it")
    ]
    assert job.ledger.sums().num_clients == 2
    assert job.audit().holds
    expel(path, "c", undo=True)
    job.run_round()
    job.now += job.timeouts.deadline  # a refused node is sent a hello again after this time
    assert "c" in [client for _ in range(2) for client in job.run_round().accepted]
    assert job.audit().holds


def test_late_upload_does_not_protect_a_client_from_being_expelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """c's upload arrives between two rounds, during an evaluation; c is removed after the round in which it counts."""
    job = SmallJob(tmp_path, timeouts=Timeouts(deadline=10, poll=1, late_reply=100))
    job.run_round()
    delayed = DelayedUploads(job, "c", monkeypatch)
    job.run_round()
    expel(tmp_path / "job/ledger.sqlite", "c")
    delayed.release()
    job.loop.evaluate()
    assert job.run_round().late == ["c"]
    assert [member.id for member in job.ledger.clients()] == ["a", "b"]
    assert job.audit().holds


def test_refused_client_is_asked_again_when_the_reason_is_gone(tmp_path: Path) -> None:
    """c claims too large a weight at first."""
    weight = [1000]
    job = SmallJob(tmp_path, clients="ab", limits=Limits(max_weight=100.0))
    job.add("c", client_app(towards(3), num_examples=lambda context: weight[0]))
    job.loop.wait_for_clients(2, timeout=30)
    job.run_round()
    assert "must be in 0.000976562 .. 100" in job.events("refused")[0]["why"]
    assert [member.id for member in job.ledger.clients()] == ["a", "b"]
    weight[0] = 2
    job.now += job.timeouts.deadline
    assert "c" in [client for _ in range(2) for client in job.run_round().accepted]


def test_only_registered_nodes_are_accepted(tmp_path: Path) -> None:
    """With `registered_only`, a node without a registered key is not even sent a hello."""
    job = SmallJob(tmp_path, clients="", registered_only=True)
    job.messages.registered_only = job.strategy.registered_only
    job.add("stranger", client_app(towards(1)))
    job.add("kitchen", client_app(towards(2)), key=b"key")
    job.loop.wait_for_clients(1, timeout=30)
    assert len(job.run_round().accepted) == 1
    [member] = job.ledger.clients()
    assert (member.id.startswith("key-"), member.name) == (True, "kitchen")
    assert not (tmp_path / "nodes/stranger/state").exists()


def test_names_of_absent_clients_survive_a_restart_of_the_server(tmp_path: Path) -> None:
    """The next server has never seen the node of b, but expires b by its name."""
    job = SmallJob(tmp_path, clients="", timeouts=Timeouts(deadline=10, poll=1, expire=25))
    for name in ("kitchen", "attic"):
        job.add(name, client_app(towards(1)), key=name.encode())
    job.loop.wait_for_clients(2, timeout=30)
    job.run_round()
    job.reopen()
    job.grid.nodes[job.nodes["attic"]].online = False
    for _ in range(4):
        job.run_round()
        job.now += 10
    assert [event["client"] for event in job.events("expired")] == ["attic"]


def test_wrong_goodbye_starts_a_new_epoch_and_the_client_leaves_in_it(tmp_path: Path) -> None:
    """The second upload of c is its goodbye, with a difference that leaves 1 unit in the sum."""
    job = SmallJob(tmp_path)
    job.run_round()
    job.store("c").leave(job.ledger.job)

    def leave_something_behind(node: int, message: Message) -> Message:
        reply = read_reply(message, size=3)
        assert reply.kind == "goodbye"
        assert reply.upload is not None
        upload = reply.upload + np.int32(1)
        message.content.config_records["fedlatest"]["header"] = encode(replace(reply, checksum=checksum_of(upload)))
        message.content["vector"] = to_record({"vector": upload})
        return message

    job.change_next_upload(leave_something_behind, of="c")
    outcomes = [job.run_round() for _ in range(4)]
    assert [(event["client"], event["why"]) for event in job.events("lost")] == [
        ("c", "the goodbye does not remove from the sum what the client has added")
    ]
    assert len(job.events("resync")) == 1
    assert [client for outcome in outcomes for client in outcome.left] == ["c"]
    assert [client.id for client in job.ledger.clients()] == ["a", "b"]
    audit = job.audit()
    assert (audit.holds, sorted(audit.in_sum)) == (True, ["a", "b"])


def test_operator_starts_a_new_epoch(tmp_path: Path) -> None:
    """During a round of a running server, and before the start of the next one."""
    job = SmallJob(tmp_path)
    job.run_round()
    path = tmp_path / "job/ledger.sqlite"

    def ask() -> None:
        end_epoch(path)

    for _ in range(2):
        job.grid.before_pull = ask
        assert len(job.run_round().accepted) == 3  # the round counts, then its epoch ends
        job.grid.before_pull = lambda: None
    why = "the operator has ended the epoch (`fedlatest epoch`)"
    assert [(event["epoch"], event["why"]) for event in job.events("resync")] == [(2, why), (3, why)]
    end_epoch(path)
    job.reopen()
    job.loop.wait_for_clients(3, timeout=30)
    job.run_round()
    assert [event["epoch"] for event in job.events("resync")] == [2, 3, 4]
    job.run_round()
    assert sorted(job.audit().in_sum) == ["a", "b", "c"]
    assert job.audit().holds


def test_client_that_left_and_returned_is_trained_as_usual(tmp_path: Path) -> None:
    """It is not asked for a goodbye again and again."""
    job = SmallJob(tmp_path, cohort_size=1)
    job.loop.wait_for_clients(3, timeout=30)
    for _ in range(3):
        job.run_round()
    job.store("a").leave(job.ledger.job)
    job.reopen()
    job.loop.wait_for_clients(3, timeout=30)
    assert job.run_round().left == ["a"]
    job.store("a").cancel_leave(job.ledger.job)
    job.messages.forget("a")  # its node restarts
    outcomes = [job.run_round() for _ in range(4)]
    assert "a" in [client for outcome in outcomes for client in outcome.accepted]
    assert [outcome.rebase_asked for outcome in outcomes] == [[], [], [], []]
