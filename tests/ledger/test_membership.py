"""Joining, leaving, coming back and being given up."""

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
