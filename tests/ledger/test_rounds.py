"""Rounds: what counts in which, and who is asked."""

from tests.ledger.job import Job


def test_a_client_whose_reply_is_in_the_open_round_is_not_asked_again() -> None:
    """A second ticket would make it drop the value that is about to count."""
    job = Job("a", "b")
    late = job.ask("a")
    job.close()
    assert job.ledger.take(job.obey(late, 1, 2)).outcome == "taken"
    assert list(job.ledger.issue(["a", "b"])) == ["b"]
    job.close()
    assert job.total == [1, 2]
    assert job.round({"a": [3, 4]}) == ["taken"]
    assert job.total == [3, 4]
