"""A client that leaves takes exactly what it has added out of the sum, whatever it claims."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from fedlatest.ledger import Limits, Reply
from fedlatest.ledger.audit import audit
from fedlatest.ledger.database import Database
from fedlatest.ledger.hashing import checksum_of, digest_of
from fedlatest.ledger.job_folder import end_epoch
from fedlatest.ledger.linear_checksum import LinearChecksum
from tests.ledger.history_actions import Action, History, run_history
from tests.ledger.job import Job

WRONG = ("lost", "the goodbye does not remove from the sum what the client has added")


def _goodbye(job: Job, client: str, *difference: int) -> Reply:
    """Return the goodbye of a client with this difference, whatever the client has added."""
    job.store(client).leave(job.ledger.job)
    honest = job.reply(job.issue(client))
    assert honest.kind == "goodbye"
    upload = np.array(difference, np.int32)
    return replace(honest, upload=upload, checksum=checksum_of(upload))


@pytest.mark.parametrize("difference", [(-10, -21), (0, 0), (10, 20), (2**31 - 1, -(2**31))])
def test_wrong_goodbye_starts_a_new_epoch(difference: tuple[int, int]) -> None:
    """b has added [10, 20]. Before, it was removed, and the rest stayed in the sum and belonged to nobody.

    In the new epoch the sum is that of a and c, who send their updates again, and b leaves without a part in the sum.
    """
    job = Job("a", "b", "c")
    job.round({"a": [1, 2], "b": [10, 20], "c": [100, 200]})
    assert job.ledger.handle_reply(_goodbye(job, "b", *difference)) == WRONG
    assert job.upload("a", 3, 4).outcome == "accepted"  # the open round is not disturbed
    job.close_round()
    assert (job.total, job.ledger.epoch.number) == ([0, 0], 2)
    for client in "ac":
        assert job.ledger.handle_reply(job.reply(job.issue(client, "rebase"))).outcome == "accepted"
    assert job.ledger.handle_reply(job.reply(job.issue("b", "rebase"))).outcome == "left"
    job.close_round()
    assert job.total == [103, 204]
    assert [client.id for client in job.ledger.clients()] == ["a", "c"]


def test_goodbye_of_a_client_that_has_uploaded_something_else_than_it_stores() -> None:
    """b uploads the difference [5, 5] for an update that it stores as [11, 22]; its goodbye is honest and too small."""
    job = Job("a", "b")
    job.round({"a": [1, 2], "b": [10, 20]})
    false = np.array([5, 5], np.int32)
    upload = replace(job.reply(job.issue("b"), 11, 22), upload=false, checksum=checksum_of(false))
    assert job.ledger.handle_reply(upload).outcome == "accepted"
    job.close_round()
    assert job.total == [16, 27]
    job.store("b").leave(job.ledger.job)
    assert job.ledger.handle_reply(job.reply(job.issue("b"))) == WRONG
    job.close_round()
    assert (job.total, job.ledger.epoch.number) == ([0, 0], 2)


def test_audit_names_the_client_whose_difference_was_not_that_of_its_update(tmp_path: Path) -> None:
    """The digests agree, because they are claims; the checksum of what was added does not."""
    job = Job("a", "b", database=Database.open(tmp_path / "ledger.sqlite"))
    job.round({"a": [1, 2], "b": [10, 20]})
    false = np.array([5, 5], np.int32)
    job.ledger.handle_reply(replace(job.reply(job.issue("b"), 11, 22), upload=false, checksum=checksum_of(false)))
    job.close_round()
    found = audit(tmp_path / "ledger.sqlite", [job.store(client) for client in "ab"])
    assert (found.damaged, found.max_difference) == (["b"], 4)


def test_repeated_wrong_goodbyes_start_epochs_more_and_more_rarely() -> None:
    """A goodbye in every second round: as for losses, they are ignored for 2, 8 and 32 rounds after the second one.

    The client stays meanwhile, so its part of the sum belongs to it.
    """
    job = Job("a", "b")
    epochs = []
    for _ in range(50):
        before = job.ledger.epoch
        assert set(job.round({"a": [1, 2], "b": [10, 20]})) == {"accepted"}
        before_round = job.ledger.round
        outcome = job.ledger.handle_reply(_goodbye(job, "b", 1, 1)).outcome
        job.store("b").cancel_leave(job.ledger.job)
        job.close_round()
        if outcome == "lost":
            epochs.append(before_round)
        assert (outcome == "lost") == (job.ledger.epoch != before)
        assert job.total == ([0, 0] if outcome == "lost" else [11, 22])
    assert epochs == [1, 3, 7, 17, 51]


def test_a_client_that_rejoins_is_ignored_as_long_as_before() -> None:
    """Otherwise leaving and joining again would end the wait after several losses."""
    job = Job("a", limits=Limits(max_loss_backoff=8))
    for _ in range(2):
        job.round({"a": [1, 2]})
        job.ledger.handle_reply(_goodbye(job, "a", 7, 7))
        job.close_round()
        job.store("a").cancel_leave(job.ledger.job)
    [row] = job.ledger.clients()
    assert row.backoff_until > job.ledger.round
    job.store("a").leave(job.ledger.job)
    assert job.exchange_hello("a").outcome == "left"
    job.store("a").cancel_leave(job.ledger.job)
    assert job.exchange_hello("a").outcome == "joined"
    assert job.ledger.clients()[0].backoff_until == row.backoff_until


@pytest.mark.parametrize("restart", [False, True])
def test_honest_goodbye_after_many_kinds_of_uploads(restart: bool) -> None:
    """Differences, a new epoch, the stored update sent again, a round that was not committed, and a restart."""
    job = Job("a", "b")

    def server_restarts() -> None:
        if restart:
            job.ledger = job.open()

    for update in ([10, 20], [-(2**30) + 1, 2**30 - 1], [2**30 - 1, -(2**30) + 1]):
        assert job.round({"a": [1, 2], "b": update}) == ["accepted", "accepted"]
        server_restarts()
    job.ledger.resync()
    assert job.ledger.handle_reply(job.reply(job.issue("b", "rebase"))).outcome == "accepted"
    job.close_round()
    server_restarts()
    job.upload("b", 5, 6)
    job.ledger = job.open()  # the open round is lost
    assert job.round({"a": [3, 4], "b": [7, 8]}) == ["accepted", "accepted"]
    server_restarts()
    job.store("b").leave(job.ledger.job)
    assert job.round({"b": [0, 0]}) == ["left"]
    assert (job.total, job.ledger.epoch.number) == ([3, 4], 2)


def test_honest_goodbye_after_a_restore() -> None:
    """The checksum is in the transaction of the round, so it is that of the restored sum."""
    job = Job("a", "b")
    job.round({"a": [1, 2], "b": [10, 20]})
    content = job.database.connection.serialize()
    job.round({"a": [4, 5]})
    job.database.connection.deserialize(content)
    job.ledger = job.open()
    job.store("b").leave(job.ledger.job)
    assert job.exchange_hello("b").outcome == "hello"
    assert job.round({"b": [0, 0]}) == ["left"]
    assert job.total == [1, 2]


def test_histories_find_a_checksum_that_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LinearChecksum, "of", lambda self, numbers: 0)
    actions: list[Action] = [("exchange_hello", 0, 0), ("whole_round", 1, 1), ("hostile_goodbye", 0, 5)]
    with pytest.raises(AssertionError, match="a goodbye left a part of the client in the sum"):
        run_history(History(memory="client", num_clients=2), actions)


def test_the_seed_is_not_sent_to_clients() -> None:
    job = Job("a")
    [(seed,)] = job.database.rows("SELECT checksum_seed FROM job")
    assert len(seed) == 64
    assert seed not in repr(job.issue("a"))
    other = Job("a")
    assert other.database.rows("SELECT checksum_seed FROM job") != [(seed,)]


# fedlatest epoch


@pytest.mark.parametrize("running", [True, False])
def test_operator_ends_the_epoch(running: bool, tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    job = Job("a", "b", database=Database.open(path))
    job.round({"a": [1, 2], "b": [10, 20]})
    if not running:
        job.database.close()
    assert end_epoch(path) == 1
    if not running:
        job.database = Database.open(path)
        job.ledger = job.open()
    assert job.upload("a", 3, 4).outcome == "accepted"  # the open round is closed first
    job.close_round()
    assert job.total == [13, 24]
    assert [job.ledger.end_epoch_if_requested() for _ in range(2)] == [True, False]
    assert (job.total, job.ledger.epoch.number) == ([0, 0], 2)
    for client in "ab":
        assert job.ledger.handle_reply(job.reply(job.issue(client, "rebase"))).outcome == "accepted"
    job.close_round()
    assert job.total == [13, 24]


def test_request_is_met_by_an_epoch_that_starts_for_another_reason(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    job = Job("a", database=Database.open(path))
    end_epoch(path)
    job.ledger.resync()
    assert not job.ledger.end_epoch_if_requested()
    assert job.ledger.epoch.number == 2


def test_epoch_removes_what_a_client_without_an_honest_state_has_added(tmp_path: Path) -> None:
    """The remedy of last resort: after it, the sum consists of updates that clients have sent in this epoch."""
    path = tmp_path / "ledger.sqlite"
    job = Job("a", "b", database=Database.open(path))
    with mock.patch.object(LinearChecksum, "of", return_value=0):  # a part that belongs to nobody, as before
        job.round({"a": [1, 2], "b": [10, 20]})
        job.ledger.handle_reply(_goodbye(job, "b", 3, 3))
        job.close_round()
    assert job.total == [14, 25]
    end_epoch(path)
    job.ledger.end_epoch_if_requested()
    rebase: Any = job.reply(job.issue("a", "rebase"))
    assert rebase.update_digest == digest_of(np.array([1, 2], np.int32))
    assert job.ledger.handle_reply(rebase).outcome == "accepted"
    job.close_round()
    assert job.total == [1, 2]
