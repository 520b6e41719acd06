"""Joining, leaving, coming back and being given up."""

from dataclasses import replace

import pytest

from tests.ledger.faults import FlakyDisk
from tests.ledger.job import Job


def test_a_client_leaves_and_comes_back() -> None:
    """After [1, 2] and [10, 20] the sum is [11, 22]; b's goodbye takes its [10, 20] out."""
    job = Job("a", "b")
    assert job.round({"a": [1, 2], "b": [10, 20]}) == ["taken", "taken"]
    assert job.store("b").leave(job.ledger.job)
    assert job.greet("b").outcome == "hello"  # its value is still in the sum
    assert job.round({"b": [0, 0]}) == ["left"]
    assert job.total == [1, 2]
    assert [member.client for member in job.ledger.members()] == ["a"]
    assert job.greet("b").outcome == "left"
    assert job.store("b").stay(job.ledger.job)
    assert job.greet("b").outcome == "joined"
    assert job.round({"b": [5, 5]}) == ["taken"]
    assert job.total == [6, 7]


def test_a_job_that_is_not_known_can_be_neither_left_nor_returned_to() -> None:
    job = Job("a")
    assert not job.store("a").leave("f" * 32)
    assert not job.store("a").stay("f" * 32)


def test_a_wish_to_leave_does_not_turn_an_upload_into_a_goodbye() -> None:
    """The answer [3, 4] to an instruction is repeated after the wish: it is still an upload; the goodbye follows."""
    job = Job("a")
    job.round({"a": [1, 2]})
    instruction = job.ask("a")
    job.obey(instruction, 3, 4)  # lost
    job.store("a").leave(job.ledger.job)
    assert job.ledger.take(job.obey(instruction, 5, 6)).outcome == "taken"
    job.close()
    assert job.total == [3, 4]
    assert job.round({"a": [5, 6]}) == ["left"]
    assert job.total == [0, 0]


@pytest.mark.parametrize("memory", ["client", "server"])
def test_a_goodbye_that_leaves_something_behind_is_refused(memory: str) -> None:
    job = Job("a", memory=memory)
    reply = replace(job.obey(job.ask("a"), 1, 2), say="goodbye")
    assert job.ledger.take(reply) == ("refused", "it says goodbye and leaves a value behind")


def test_a_ticket_dies_with_the_membership() -> None:
    """b's upload counts, b is given up, comes back: the same upload once more must not count again."""
    job = Job("b", memory="server")
    reply = job.obey(job.ask("b"), 10, 20)
    assert job.ledger.take(reply).outcome == "taken"
    job.close()
    job.time = 100.0
    assert job.ledger.expire(seconds=50.0) == ["b"]
    assert job.total == [0, 0]
    assert job.greet("b").outcome == "joined"
    assert job.ledger.take(reply) == ("refused", "it bears ticket 1; the last one was 2")
    assert job.round({"b": [1, 2]}) == ["taken"]
    assert job.total == [1, 2]


@pytest.mark.parametrize("memory", ["client", "server"])
def test_a_goodbye_that_is_lost_is_said_again(memory: str) -> None:
    job = Job("a", "b", memory=memory)
    job.round({"a": [1, 2], "b": [10, 20]})
    job.store("b").leave(job.ledger.job)
    lost = job.obey(job.ask("b"), 9, 9)
    assert lost.say == "goodbye"
    again = job.obey(job.ask("b"), 9, 9)
    assert [job.ledger.take(reply).outcome for reply in (lost, again)] == ["refused", "left"]
    job.close()
    assert job.total == [1, 2]
    job.store("b").stay(job.ledger.job)
    assert job.greet("b").outcome == "joined"
    assert job.ledger.take(again).outcome == "refused"  # a copy must not send it away again
    assert job.round({"b": [30, 40]}) == ["taken"]
    assert job.total == [31, 42]


def test_a_client_that_never_counted_leaves_at_the_greeting() -> None:
    job = Job("a")
    assert job.store("a").leave(job.ledger.job)
    assert job.greet("a") == ("left", "it had asked to leave")
    assert job.ledger.members() == []


def test_a_wish_to_leave_while_an_upload_is_in_the_open_round_waits() -> None:
    job = Job("a")
    job.upload("a", 1, 2)
    job.store("a").leave(job.ledger.job)
    job.greet("a")
    job.close()
    assert job.total == [1, 2]
    assert job.round({"a": [3, 4]}) == ["left"]
    assert job.total == [0, 0]


def test_numbers_are_for_life() -> None:
    job = Job("a", "b")
    job.round({"a": [1, 2]})
    job.store("a").leave(job.ledger.job)
    job.round({"a": [1, 2]})
    job.disks["c"] = FlakyDisk()
    job.greet("c")
    job.store("a").stay(job.ledger.job)
    job.greet("a")
    assert [(member.client, member.number) for member in job.ledger.members()] == [("a", 0), ("b", 1), ("c", 2)]
