"""Clients join, leave, come back and expire."""

from dataclasses import replace

import pytest

from tests.ledger.faults import FaultyStorage
from tests.ledger.job import Job


def test_client_leaves_and_joins_again() -> None:
    """After [1, 2] and [10, 20] the sum is [11, 22]; b's goodbye subtracts its [10, 20]."""
    job = Job("a", "b")
    assert job.round({"a": [1, 2], "b": [10, 20]}) == ["accepted", "accepted"]
    assert job.store("b").leave(job.ledger.job)
    assert job.exchange_hello("b").outcome == "hello"  # its update is still in the sum
    assert job.round({"b": [0, 0]}) == ["left"]
    assert job.total == [1, 2]
    assert [client.id for client in job.ledger.clients()] == ["a"]
    assert job.exchange_hello("b").outcome == "left"
    assert job.store("b").cancel_leave(job.ledger.job)
    assert job.exchange_hello("b").outcome == "joined"
    assert job.round({"b": [5, 5]}) == ["accepted"]
    assert job.total == [6, 7]


@pytest.mark.parametrize("memory", ["client", "server"])
def test_a_goodbye_is_not_a_difference_of_training(memory: str) -> None:
    """After [1, 2] and [10, 20], a trains [4, 4] and b leaves: the sum changes by [3, 2] - [10, 20]."""
    job = Job("a", "b", memory=memory)
    job.round({"a": [1, 2], "b": [10, 20]})
    job.store("b").leave(job.ledger.job)
    for client, update in (("a", [4, 4]), ("b", [0, 0])):
        job.ledger.handle_reply(job.reply(job.issue(client), *update))
    sums = job.ledger.sums()
    assert (sums.total.tolist(), sums.delta.tolist(), sums.trained_delta.tolist()) == ([4, 4], [-7, -18], [3, 2])
    assert (sums.num, sums.num_clients) == (1, 1)


def test_unknown_job_cannot_be_left() -> None:
    job = Job("a")
    assert not job.store("a").leave("f" * 32)
    assert not job.store("a").cancel_leave("f" * 32)


def test_request_to_leave_does_not_change_a_repeated_upload() -> None:
    """The upload [3, 4] is repeated after the request to leave: it is still an upload; the goodbye follows it."""
    job = Job("a")
    job.round({"a": [1, 2]})
    instruction = job.issue("a")
    job.reply(instruction, 3, 4)  # the reply is lost
    job.store("a").leave(job.ledger.job)
    assert job.ledger.handle_reply(job.reply(instruction, 5, 6)).outcome == "accepted"
    job.close_round()
    assert job.total == [3, 4]
    assert job.round({"a": [5, 6]}) == ["left"]
    assert job.total == [0, 0]


@pytest.mark.parametrize("memory", ["client", "server"])
def test_goodbye_with_a_nonzero_update_is_refused(memory: str) -> None:
    job = Job("a", memory=memory)
    reply = replace(job.reply(job.issue("a"), 1, 2), kind="goodbye")
    assert job.ledger.handle_reply(reply) == ("refused", "the goodbye does not remove the client's update from the sum")


def test_ticket_is_invalid_after_the_client_was_removed() -> None:
    """b's upload is applied, b expires and joins again: a copy of the upload must not count again."""
    job = Job("b", memory="server")
    reply = job.reply(job.issue("b"), 10, 20)
    assert job.ledger.handle_reply(reply).outcome == "accepted"
    job.close_round()
    job.time = 100.0
    assert job.ledger.expire(seconds=50.0) == ["b"]
    assert job.total == [0, 0]
    assert job.exchange_hello("b").outcome == "joined"
    assert job.ledger.handle_reply(reply) == ("refused", "the reply has ticket 1; the last one issued is 2")
    assert job.round({"b": [1, 2]}) == ["accepted"]
    assert job.total == [1, 2]


@pytest.mark.parametrize("memory", ["client", "server"])
def test_lost_goodbye_is_sent_again(memory: str) -> None:
    job = Job("a", "b", memory=memory)
    job.round({"a": [1, 2], "b": [10, 20]})
    job.store("b").leave(job.ledger.job)
    lost = job.reply(job.issue("b"), 9, 9)
    assert lost.kind == "goodbye"
    again = job.reply(job.issue("b"), 9, 9)
    assert [job.ledger.handle_reply(reply).outcome for reply in (lost, again)] == ["refused", "left"]
    job.close_round()
    assert job.total == [1, 2]
    job.store("b").cancel_leave(job.ledger.job)
    assert job.exchange_hello("b").outcome == "joined"
    assert job.ledger.handle_reply(again).outcome == "refused"  # a copy of the goodbye must not remove it again
    assert job.round({"b": [30, 40]}) == ["accepted"]
    assert job.total == [31, 42]


def test_client_without_an_update_leaves_at_hello() -> None:
    job = Job("a")
    assert job.store("a").leave(job.ledger.job)
    assert job.exchange_hello("a") == ("left", "the client had asked to leave")
    assert job.ledger.clients() == []


def test_request_to_leave_waits_for_the_open_round() -> None:
    job = Job("a")
    job.upload("a", 1, 2)
    job.store("a").leave(job.ledger.job)
    job.exchange_hello("a")
    job.close_round()
    assert job.total == [1, 2]
    assert job.round({"a": [3, 4]}) == ["left"]
    assert job.total == [0, 0]


def test_client_keeps_its_number() -> None:
    job = Job("a", "b")
    job.round({"a": [1, 2]})
    job.store("a").leave(job.ledger.job)
    job.round({"a": [1, 2]})
    job.storages["c"] = FaultyStorage()
    job.exchange_hello("c")
    job.store("a").cancel_leave(job.ledger.job)
    job.exchange_hello("a")
    assert [(client.id, client.number) for client in job.ledger.clients()] == [("a", 0), ("b", 1), ("c", 2)]
