"""A client that can no longer withdraw its value says so, and everybody starts anew; nobody else makes it happen."""

from tests.ledger.faults import FlakyDisk
from tests.ledger.job import Job


def test_a_lost_disk_is_told_at_the_greeting() -> None:
    job = Job("a", "b")
    job.round({"a": [1, 2], "b": [10, 20]})
    job.disks["a"].files.clear()
    assert job.greet("a").outcome == "lost"
    job.close()
    assert (job.ledger.epoch.number, job.total) == (2, [0, 0])
    assert job.round({"a": [3, 4], "b": [30, 40]}) == ["taken", "taken"]
    assert job.total == [33, 44]


def test_a_lost_disk_is_told_when_asked() -> None:
    job = Job("a")
    job.round({"a": [1, 2]})
    job.disks["a"].files.clear()
    assert job.round({"a": [3, 4]}) == ["lost"]
    assert (job.ledger.epoch.number, job.total) == (2, [0, 0])


def test_a_late_greeting_raises_no_alarm() -> None:
    """What it held when it was sent is not what it holds now."""
    job = Job("a")
    late = job.hello("a")
    job.round({"a": [1, 2]})
    assert job.ledger.greet(late).outcome == "hello"
    assert not job.ledger.needs_resync


def test_a_disk_set_back_that_made_another_value_under_the_same_ticket_is_found_out() -> None:
    """Ticket 1 is answered with [1, 2], which counts; the disk is set back and answers a copy of the same instruction
    with [5, 6]. A difference from [5, 6] would leave [1, 2] - [5, 6] in the sum for ever.
    """
    job = Job("a", "b")
    job.round({"b": [10, 20]})
    instruction = job.ask("a")
    empty = dict(job.disks["a"].files)
    assert job.ledger.take(job.obey(instruction, 1, 2)).outcome == "taken"
    job.close()
    job.disks["a"].files = empty
    assert job.ledger.take(job.obey(instruction, 5, 6)).outcome == "refused"
    assert job.round({"a": [7, 8]}) == ["lost"]
    assert job.round({"a": [7, 8], "b": [10, 20]}) == ["taken", "taken"]
    assert job.total == [17, 28]


def test_a_greeting_from_before_a_new_epoch_raises_no_alarm() -> None:
    job = Job("a")
    late = job.ledger.instruction("a", "hello")
    job.ledger.resync()
    job.round({"a": [1, 2]})
    reply = job.obey(late)
    assert reply.say == "ahead"
    assert job.ledger.greet(reply).outcome == "hello"


def test_two_devices_under_one_name_are_found_out() -> None:
    """A clone of a's disk answers the same instruction with another value. Whichever of the two is asked next and does
    not hold the value that counted says so; at no time is the sum wrong.
    """
    job = Job("a")
    job.round({"a": [1, 2]})
    instruction = job.ask("a")
    first, clone = FlakyDisk(), FlakyDisk()
    first.files, clone.files = dict(job.disks["a"].files), dict(job.disks["a"].files)
    replies = []
    for disk, value in ((first, [3, 4]), (clone, [5, 6])):
        job.disks["a"] = disk
        replies.append(job.obey(instruction, *value))
    assert [job.ledger.take(reply).outcome for reply in replies] == ["taken", "refused"]
    job.close()
    assert job.total == [3, 4]
    assert job.round({"a": [9, 9]}) == ["lost"]  # the clone
    assert job.total == [0, 0]


def test_an_upload_from_before_a_new_epoch_does_not_count() -> None:
    job = Job("a", "b")
    job.round({"a": [1, 2], "b": [10, 20]})
    late = job.obey(job.ask("a"), 3, 4)
    job.ledger.resync()
    assert job.ledger.take(late) == ("refused", "it is of epoch 1, not 2")
    assert job.round({"a": [5, 6]}) == ["taken"]
    assert job.total == [5, 6]


def test_a_server_that_keeps_the_values_needs_no_disk_of_its_clients() -> None:
    job = Job("a", "b", memory="server")
    job.round({"a": [1, 2], "b": [10, 20]})
    job.disks["a"].files.clear()
    assert job.greet("a").outcome == "hello"
    assert job.round({"a": [3, 4]}) == ["taken"]
    assert (job.total, job.ledger.epoch.number) == ([13, 24], 1)
