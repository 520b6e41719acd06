"""Each update in the sum counts with the weight that it was computed with."""

from pathlib import Path

from fedlatest.ledger.audit import audit
from fedlatest.ledger.database import Database
from tests.ledger.job import Job


def test_older_update_is_sent_again_with_its_own_weight() -> None:
    """The client stores [1, 2] with weight 10 and [3, 4] with weight 1000. [3, 4] is damaged: in the new epoch, [1, 2]
    is sent again, and counts with weight 10.
    """
    job = Job("a")
    assert job.ledger.handle_reply(job.reply(job.issue("a"), 1, 2, weight=10.0)).outcome == "accepted"
    job.close_round()
    assert job.ledger.handle_reply(job.reply(job.issue("a"), 3, 4, weight=1000.0)).outcome == "accepted"
    job.close_round()
    assert [client.weight for client in job.ledger.clients()] == [1000.0]
    newest = sorted(name for name in job.storages["a"].files if name.endswith(".value"))[-1]
    job.storages["a"].put(newest, b"damaged!")
    assert job.exchange_hello("a").outcome == "lost"
    job.close_round()
    assert job.ledger.handle_reply(job.reply(job.issue("a", "rebase"))).outcome == "accepted"
    job.close_round()
    assert job.total == [1, 2]
    assert [client.weight for client in job.ledger.clients()] == [10.0]
    assert job.ledger.sums().total_weight == 10.0


def test_repeated_reply_has_the_weight_of_its_update() -> None:
    """[7, 7] with weight 3 is in the sum. The reply with [1, 2] and weight 10 is lost, and its instruction repeated."""
    job = Job("a")
    assert job.ledger.handle_reply(job.reply(job.issue("a"), 7, 7, weight=3.0)).outcome == "accepted"
    job.close_round()
    instruction = job.issue("a")
    job.reply(instruction, 1, 2, weight=10.0)  # the reply is lost
    assert job.ledger.handle_reply(job.reply(instruction, 9, 9, weight=1000.0)).outcome == "accepted"
    job.close_round()
    assert (job.total, job.ledger.sums().total_weight) == ([1, 2], 10.0)


def test_audit_reports_a_wrong_weight(tmp_path: Path) -> None:
    """The ledger says 1000, the client's store says 10; the sum itself is right."""
    job = Job("a", "b", database=Database.open(tmp_path / "ledger.sqlite"))
    assert job.ledger.handle_reply(job.reply(job.issue("a"), 1, 2, weight=10.0)).outcome == "accepted"
    assert job.ledger.handle_reply(job.reply(job.issue("b"), 3, 4, weight=5.0)).outcome == "accepted"
    job.close_round()
    stores = [job.store("a"), job.store("b")]
    assert audit(tmp_path / "ledger.sqlite", stores).holds
    with job.database.write():
        job.database.execute("UPDATE clients SET weight = 1000 WHERE client = 'a'")
    found = audit(tmp_path / "ledger.sqlite", stores)
    assert (found.wrong_weight, found.max_difference, found.damaged, found.holds) == (["a"], 0, [], False)
