"""A ledger restored from a backup is detected from the state of the clients, and the job recovers."""

from dataclasses import replace

from fedlatest.ledger import Epoch
from tests.ledger.faults import FaultyStorage
from tests.ledger.job import Job


def _restore(job: Job, content: bytes) -> None:
    job.database.connection.deserialize(content)
    job.ledger = job.open()


def test_client_that_is_ahead_continues_after_one_hello() -> None:
    """The backup has not issued ticket 1. The first hello reports it; then the job continues from the sum."""
    job = Job("a")
    content = job.database.connection.serialize()
    job.round({"a": [1, 2]})
    _restore(job, content)
    assert job.exchange_hello("a").outcome == "restored"
    assert job.exchange_hello("a").outcome == "hello"
    assert job.round({"a": [3, 4]}) == ["accepted"]
    assert job.total == [3, 4]


def test_client_unknown_to_the_backup_joins_again() -> None:
    """Given ticket 1, it replies that it has seen higher ones; given a higher ticket, it works. The sum has none of its
    earlier updates.
    """
    job = Job()
    content = job.database.connection.serialize()
    job.storages["a"] = FaultyStorage()
    job.exchange_hello("a")
    job.round({"a": [1, 2]})
    job.round({"a": [3, 4]})
    _restore(job, content)
    assert job.exchange_hello("a").outcome == "joined"
    assert job.round({"a": [5, 6]}) == ["restored"]
    assert job.round({"a": [5, 6]}) == ["accepted"]
    assert (job.total, job.ledger.epoch.number) == ([5, 6], 1)


def test_no_new_epoch_if_the_client_stores_the_update_of_the_backup() -> None:
    """The backup has [1, 2]; the client stores [1, 2] and [3, 4]. [5, 6] - [1, 2] is the correct difference."""
    job = Job("a")
    job.round({"a": [1, 2]})
    content = job.database.connection.serialize()
    job.round({"a": [3, 4]})
    _restore(job, content)
    assert job.exchange_hello("a").outcome == "restored"
    assert job.round({"a": [5, 6]}) == ["accepted"]
    assert (job.total, job.ledger.epoch.number) == ([5, 6], 1)


def test_new_epoch_if_the_client_no_longer_stores_the_update_of_the_backup() -> None:
    job = Job("a")
    job.round({"a": [1, 2]})
    content = job.database.connection.serialize()
    job.round({"a": [3, 4]})
    job.round({"a": [5, 6]})
    _restore(job, content)
    assert job.exchange_hello("a").outcome == "restored"
    job.close_round()
    assert (job.total, job.ledger.epoch.number) == ([0, 0], 2)
    assert job.round({"a": [7, 8]}) == ["accepted"]
    assert job.total == [7, 8]


def test_new_epoch_has_a_higher_number_than_any_reported_one() -> None:
    """b has seen epoch 3 and reports it; a has not, and continues from its update in the backup until then."""
    job = Job("a", "b")
    job.round({"a": [1, 2], "b": [10, 20]})
    content = job.database.connection.serialize()
    job.ledger.resync()
    job.ledger.resync()
    job.round({"b": [30, 40]})
    _restore(job, content)
    assert job.round({"a": [5, 6]}) == ["accepted"]
    assert job.total == [15, 26]
    assert job.round({"b": [50, 60]}) == ["restored"]
    assert (job.total, job.ledger.epoch.number) == ([0, 0], 4)
    assert job.round({"a": [7, 8], "b": [70, 80]}) == ["accepted", "accepted"]
    assert job.total == [77, 88]


def test_two_epochs_with_one_number_are_distinguished() -> None:
    job = Job("a")
    content = job.database.connection.serialize()
    job.ledger.resync()
    job.round({"a": [1, 2]})
    _restore(job, content)
    job.ledger.resync()  # epoch 2 again, with another token
    assert job.round({"a": [3, 4]}) == ["restored"]
    assert job.ledger.epoch.number == 3
    assert job.round({"a": [3, 4]}) == ["accepted"]
    assert job.total == [3, 4]


def test_upload_for_the_ticket_before_the_restore_is_refused() -> None:
    """Ticket 1 of the first server and ticket 1 of the restored one differ in their nonce."""
    job = Job("a")
    content = job.database.connection.serialize()
    reply = job.reply(job.issue("a"), 1, 2)
    _restore(job, content)
    job.issue("a")
    assert job.ledger.handle_reply(reply) == ("refused", "the reply has ticket 1; the last one issued is 1")


def test_loss_is_reported_again_after_a_crash() -> None:
    """The server crashes after the report and before the new epoch: the client reports the loss again."""
    job = Job("a")
    job.round({"a": [1, 2]})
    content = job.database.connection.serialize()
    job.round({"a": [3, 4]})
    job.round({"a": [5, 6]})
    _restore(job, content)
    assert job.exchange_hello("a").outcome == "restored"
    job.ledger = job.open()
    assert not job.ledger.needs_resync
    assert job.exchange_hello("a").outcome == "lost"
    job.close_round()
    assert job.ledger.epoch.number == 2


def test_report_of_an_implausible_epoch_is_refused() -> None:
    """Otherwise one faulty client could exhaust the epoch numbers."""
    job = Job("a")
    reply = replace(job.hello("a"), epoch=Epoch(2**61, "1"))
    assert job.ledger.handle_hello(reply).outcome == "refused"
    assert not job.ledger.needs_resync
