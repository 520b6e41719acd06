"""A ledger that was set back to a backup: what clients hold gives it away."""

from dataclasses import replace

from fedlatest.ledger import Epoch
from tests.ledger.faults import FlakyDisk
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


def test_a_client_that_the_backup_does_not_know_joins_anew() -> None:
    """Asked with ticket 1 it has seen more, and says so; beyond that number it works. Its past is not in the sum."""
    job = Job()
    content = job.database.connection.serialize()
    job.disks["a"] = FlakyDisk()
    job.greet("a")
    job.round({"a": [1, 2]})
    job.round({"a": [3, 4]})
    _restore(job, content)
    assert job.greet("a").outcome == "joined"
    assert job.round({"a": [5, 6]}) == ["restored"]
    assert job.round({"a": [5, 6]}) == ["taken"]
    assert (job.total, job.ledger.epoch.number) == ([5, 6], 1)


def test_a_backup_whose_value_is_still_held_goes_on_without_a_new_epoch() -> None:
    """The backup has [1, 2]; the client has that and [3, 4] on its disk. [5, 6] - [1, 2] is the right difference."""
    job = Job("a")
    job.round({"a": [1, 2]})
    content = job.database.connection.serialize()
    job.round({"a": [3, 4]})
    _restore(job, content)
    assert job.greet("a").outcome == "restored"
    assert job.round({"a": [5, 6]}) == ["taken"]
    assert (job.total, job.ledger.epoch.number) == ([5, 6], 1)


def test_a_backup_whose_value_is_no_longer_held_begins_a_new_epoch() -> None:
    job = Job("a")
    job.round({"a": [1, 2]})
    content = job.database.connection.serialize()
    job.round({"a": [3, 4]})
    job.round({"a": [5, 6]})
    _restore(job, content)
    assert job.greet("a").outcome == "restored"
    job.close()
    assert (job.total, job.ledger.epoch.number) == ([0, 0], 2)
    assert job.round({"a": [7, 8]}) == ["taken"]
    assert job.total == [7, 8]


def test_a_backup_from_before_an_epoch_goes_beyond_all_epochs() -> None:
    """b, who has seen epoch 3, tells; a, who has not, goes on from what the backup has of it until then."""
    job = Job("a", "b")
    job.round({"a": [1, 2], "b": [10, 20]})
    content = job.database.connection.serialize()
    job.ledger.resync()
    job.ledger.resync()
    job.round({"b": [30, 40]})
    _restore(job, content)
    assert job.round({"a": [5, 6]}) == ["taken"]
    assert job.total == [15, 26]
    assert job.round({"b": [50, 60]}) == ["restored"]
    assert (job.total, job.ledger.epoch.number) == ([0, 0], 4)
    assert job.round({"a": [7, 8], "b": [70, 80]}) == ["taken", "taken"]
    assert job.total == [77, 88]


def test_two_epochs_of_one_number_are_told_apart() -> None:
    job = Job("a")
    content = job.database.connection.serialize()
    job.ledger.resync()
    job.round({"a": [1, 2]})
    _restore(job, content)
    job.ledger.resync()  # epoch 2 once more, under another token
    assert job.round({"a": [3, 4]}) == ["restored"]
    assert job.ledger.epoch.number == 3
    assert job.round({"a": [3, 4]}) == ["taken"]
    assert job.total == [3, 4]


def test_an_upload_for_the_other_branch_is_refused() -> None:
    """Ticket 1 of the first server and ticket 1 of the restored one differ in their nonce."""
    job = Job("a")
    content = job.database.connection.serialize()
    reply = job.obey(job.ask("a"), 1, 2)
    _restore(job, content)
    job.ask("a")
    assert job.ledger.take(reply) == ("refused", "it bears ticket 1; the last one was 1")


def test_an_alarm_outlives_a_crash() -> None:
    """The server dies after it was told of the loss, before the new epoch: it is told again."""
    job = Job("a")
    job.round({"a": [1, 2]})
    content = job.database.connection.serialize()
    job.round({"a": [3, 4]})
    job.round({"a": [5, 6]})
    _restore(job, content)
    assert job.greet("a").outcome == "restored"
    job.ledger = job.open()
    assert not job.ledger.needs_resync
    assert job.greet("a").outcome == "lost"
    job.close()
    assert job.ledger.epoch.number == 2


def test_a_claim_of_a_far_epoch_is_not_believed() -> None:
    """One client could otherwise use up all epochs that there are."""
    job = Job("a")
    liar = replace(job.hello("a"), epoch=Epoch(2**61, "1"))
    assert job.ledger.greet(liar).outcome == "refused"
    assert not job.ledger.needs_resync
