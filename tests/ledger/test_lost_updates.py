"""A client that lost its update in the sum is detected and a new epoch starts; nothing else starts one."""

from tests.ledger.faults import FaultyStorage
from tests.ledger.job import Job


def test_lost_disk_is_detected_at_hello() -> None:
    job = Job("a", "b")
    job.round({"a": [1, 2], "b": [10, 20]})
    job.storages["a"].files.clear()
    assert job.exchange_hello("a").outcome == "lost"
    job.close_round()
    assert (job.ledger.epoch.number, job.total) == (2, [0, 0])
    assert job.round({"a": [3, 4], "b": [30, 40]}) == ["accepted", "accepted"]
    assert job.total == [33, 44]


def test_lost_disk_is_detected_at_an_instruction() -> None:
    job = Job("a")
    job.round({"a": [1, 2]})
    job.storages["a"].files.clear()
    assert job.round({"a": [3, 4]}) == ["lost"]
    assert (job.ledger.epoch.number, job.total) == (2, [0, 0])


def test_delayed_hello_is_not_a_loss() -> None:
    """The hello lists the updates that the client stored when it was sent, not those of now."""
    job = Job("a")
    late = job.hello("a")
    job.round({"a": [1, 2]})
    assert job.ledger.handle_hello(late).outcome == "hello"
    assert not job.ledger.needs_resync


def test_restored_disk_with_another_update_under_the_same_ticket_is_detected() -> None:
    """Under ticket 1 the client uploads [1, 2], which is applied. Its disk is restored to the state before, and a copy
    of the same instruction makes it store [5, 6] under ticket 1. A difference from [5, 6] would leave the error
    [1, 2] - [5, 6] in the sum permanently.
    """
    job = Job("a", "b")
    job.round({"b": [10, 20]})
    instruction = job.issue("a")
    before = dict(job.storages["a"].files)
    assert job.ledger.handle_reply(job.reply(instruction, 1, 2)).outcome == "accepted"
    job.close_round()
    job.storages["a"].files = before
    assert job.ledger.handle_reply(job.reply(instruction, 5, 6)).outcome == "refused"
    assert job.round({"a": [7, 8]}) == ["lost"]
    assert job.round({"a": [7, 8], "b": [10, 20]}) == ["accepted", "accepted"]
    assert job.total == [17, 28]


def test_hello_of_an_earlier_epoch_is_not_a_loss() -> None:
    job = Job("a")
    late = job.ledger.instruction("a", "hello")
    job.ledger.resync()
    job.round({"a": [1, 2]})
    reply = job.reply(late)
    assert reply.kind == "ahead"
    assert job.ledger.handle_hello(reply).outcome == "hello"


def test_two_devices_with_one_id_are_detected() -> None:
    """A device with a copy of a's disk replies to the same instruction with another update. As soon as the device
    without the applied update is asked, it reports the loss; the sum is correct at all times.
    """
    job = Job("a")
    job.round({"a": [1, 2]})
    instruction = job.issue("a")
    first, clone = FaultyStorage(), FaultyStorage()
    first.files, clone.files = dict(job.storages["a"].files), dict(job.storages["a"].files)
    replies = []
    for storage, update in ((first, [3, 4]), (clone, [5, 6])):
        job.storages["a"] = storage
        replies.append(job.reply(instruction, *update))
    assert [job.ledger.handle_reply(reply).outcome for reply in replies] == ["accepted", "refused"]
    job.close_round()
    assert job.total == [3, 4]
    assert job.round({"a": [9, 9]}) == ["lost"]  # the clone
    assert job.total == [0, 0]


def test_upload_of_an_earlier_epoch_is_refused() -> None:
    job = Job("a", "b")
    job.round({"a": [1, 2], "b": [10, 20]})
    late = job.reply(job.issue("a"), 3, 4)
    job.ledger.resync()
    assert job.ledger.handle_reply(late) == ("refused", "the upload is of epoch 1, the job is in epoch 2")
    assert job.round({"a": [5, 6]}) == ["accepted"]
    assert job.total == [5, 6]


def test_with_updates_at_the_server_a_lost_disk_does_not_matter() -> None:
    job = Job("a", "b", memory="server")
    job.round({"a": [1, 2], "b": [10, 20]})
    job.storages["a"].files.clear()
    assert job.exchange_hello("a").outcome == "hello"
    assert job.round({"a": [3, 4]}) == ["accepted"]
    assert (job.total, job.ledger.epoch.number) == ([13, 24], 1)
