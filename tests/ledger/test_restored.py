"""A ledger that was set back to a backup: what clients hold gives it away."""

from tests.ledger.job import Job


def _restore(job: Job, content: bytes) -> None:
    job.database.connection.deserialize(content)
    job.ledger = job.open()


def test_a_client_that_is_ahead_is_asked_again_after_one_greeting() -> None:
    """The backup never issued ticket 1. The greeting says so once, and then the job goes on from what is in the sum."""
    job = Job("a")
    content = job.database.connection.serialize()
    job.round({"a": [1, 2]})
    _restore(job, content)
    assert job.greet("a").outcome == "restored"
    assert job.greet("a").outcome == "hello"
    assert job.round({"a": [3, 4]}) == ["taken"]
    assert job.total == [3, 4]
