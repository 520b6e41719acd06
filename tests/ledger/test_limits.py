"""What a client may claim: weights, tickets, epochs and losses; who may join; and clients that an operator expels."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedlatest.errors import ConfigError, LedgerError
from fedlatest.ledger import Epoch, Limits, decode_instruction, encode
from fedlatest.ledger.database import Database
from fedlatest.ledger.job_folder import expel, find_client
from fedlatest.ledger.ledger import MAX_TICKETS_AHEAD, ROUNDS_WITHOUT_CONTACT
from fedlatest.ledger.messages import Reply
from tests.ledger.faults import FaultyStorage
from tests.ledger.job import Job


def _hello(job: Job, client: str, **claims: Any) -> Reply:
    """Return the hello of a client without any state, with some claims."""
    job.storages[client] = FaultyStorage()
    return replace(job.hello(client), **claims)


def test_weight_in_a_hello_does_not_count() -> None:
    """a has weight 2 and contributes; the visitor claims 2^30 and contributes nothing: N = 1, total weight 2."""
    job = Job("a")
    assert job.ledger.handle_hello(_hello(job, "visitor", weight=2.0**30)).outcome == "joined"
    assert (job.ledger.sums().num_clients, job.ledger.sums().total_weight) == (0, 0.0)
    assert job.ledger.handle_reply(job.reply(job.issue("a"), 1, 2, weight=2.0)).outcome == "accepted"
    assert (job.ledger.sums().num_clients, job.ledger.sums().total_weight) == (1, 2.0)
    job.close_round()
    assert (job.ledger.sums().num_clients, job.ledger.sums().total_weight) == (1, 2.0)


def test_weight_counts_from_the_first_accepted_update_and_until_the_client_leaves() -> None:
    job = Job("a", "b")
    assert job.ledger.handle_reply(job.reply(job.issue("a"), 1, 2, weight=3.0)).outcome == "accepted"
    assert job.ledger.handle_reply(job.reply(job.issue("b"), 1, 2, weight=5.0)).outcome == "accepted"
    assert (job.ledger.sums().num_clients, job.ledger.sums().total_weight) == (2, 8.0)
    job.close_round()
    job.store("b").leave(job.ledger.job)
    assert job.round({"b": [0, 0]}) == ["left"]
    assert (job.ledger.sums().num_clients, job.ledger.sums().total_weight) == (1, 3.0)


def test_client_that_only_sent_its_stored_update_counts_in_the_next_epoch() -> None:
    """It has not trained since it joined again. In the next epoch it is absent from the sum, but still one of N."""
    job = Job("a", "b")
    job.round({"a": [1, 2]})
    job.time = 100.0
    job.exchange_hello("b")
    assert job.ledger.expire(seconds=50.0) == ["a"]
    assert job.exchange_hello("a").outcome == "joined"
    assert job.ledger.handle_reply(job.reply(job.issue("a", "rebase"))).outcome == "accepted"
    job.close_round()
    assert job.ledger.sums().num_clients == 1
    job.ledger.resync()
    assert (job.ledger.sums().num_clients, job.ledger.sums().total_weight) == (1, 1.0)
    assert job.open().sums().num_clients == 1


def test_largest_weight() -> None:
    job = Job(limits=Limits(max_weight=100.0))
    why = "the weight is 101; it must be in 0.000976562 .. 100"
    assert job.ledger.handle_hello(_hello(job, "a", weight=101.0)) == ("refused", why)
    assert job.ledger.clients() == []
    assert job.ledger.handle_hello(_hello(job, "a", weight=100.0)).outcome == "joined"
    assert job.ledger.handle_reply(job.reply(job.issue("a"), 1, 2, weight=101.0)) == ("refused", why)
    assert job.ledger.handle_reply(job.reply(job.issue("a"), 1, 2, weight=100.0)).outcome == "accepted"


@pytest.mark.parametrize("wrong", [{"max_weight": 0.0}, {"max_weight": 2.0**31}, {"max_clients": 0}])
def test_limits_out_of_range_raise(wrong: Any) -> None:
    [name] = wrong
    with pytest.raises(ConfigError, match=f"{name}="):
        Limits(**wrong)


def test_largest_number_of_clients() -> None:
    """Clients that have joined before may return, because the limit is on all clients that ever joined."""
    job = Job("a", "b", limits=Limits(max_clients=2))
    why = "the job has had 2 clients, which is its limit (max_clients)"
    assert job.ledger.handle_hello(_hello(job, "c")) == ("refused", why)
    job.store("a").leave(job.ledger.job)
    assert job.exchange_hello("a").outcome == "left"
    assert job.ledger.handle_hello(_hello(job, "c")) == ("refused", why)
    job.store("a").cancel_leave(job.ledger.job)
    assert job.exchange_hello("a").outcome == "joined"


def test_visitors_that_are_gone_are_forgotten() -> None:
    """22 new names in each of 12 rounds: 264 names, of which at most those of the last four rounds are members."""
    job = Job("a")
    members = []
    for round in range(12):
        for number in range(22):
            assert job.ledger.handle_hello(_hello(job, f"visitor-{round}-{number}")).outcome == "joined"
        job.time += 1.0
        assert job.upload("a", round, round).outcome == "accepted"
        job.close_round(reachable=["a"])
        members.append(len(job.ledger.clients()))
    most = 1 + 22 * (ROUNDS_WITHOUT_CONTACT + 1)
    assert members[:3] == [23, 45, 67]
    assert set(members[3:]) == {most - 22}
    assert job.ledger.sums().num_clients == 1


def test_forgotten_visitor_joins_again_and_its_old_ticket_is_invalid() -> None:
    job = Job("a", "b")
    late = job.reply(job.issue("b"), 10, 20)
    forgotten = []
    for _ in range(ROUNDS_WITHOUT_CONTACT + 2):
        job.time += 1.0
        forgotten += job.ledger.close_round({}, reachable=["a"])
    assert forgotten == ["b"]
    assert job.ledger.handle_reply(late) == ("refused", "the client has not joined the job")
    assert job.exchange_hello("b").outcome == "joined"
    assert job.ledger.handle_reply(late).outcome == "refused"
    assert job.round({"b": [1, 2]}) == ["accepted"]
    assert job.total == [1, 2]


def test_client_that_has_contributed_is_never_forgotten() -> None:
    job = Job("a", "b")
    job.round({"b": [10, 20]})
    for _ in range(20):
        job.time += 1.0
        job.close_round(reachable=["a"])
    assert [client.id for client in job.ledger.clients()] == ["a", "b"]
    assert job.total == [10, 20]


@pytest.mark.parametrize("known", [False, True])
def test_implausible_ticket_is_refused_and_later_tickets_can_be_decoded(known: bool) -> None:
    """A ticket above 2^62 could not be sent: the client would be locked out, or the server would stop."""
    job = Job("a") if known else Job()
    hello = _hello(job, "a", highest_ticket=2**62 - 1)
    assert job.ledger.handle_hello(hello) == (
        "refused",
        f"the client reports ticket {2**62 - 1}, the last one is 0",
    )
    assert [client.id for client in job.ledger.clients()] == (["a"] if known else []), "a refused hello joined"
    job.storages["a"] = FaultyStorage()
    job.exchange_hello("a")
    assert decode_instruction(encode(job.issue("a"))).ticket is not None
    assert job.round({"a": [1, 2]}) == ["accepted"]


def test_plausible_ticket_is_skipped() -> None:
    """After a restore, a client may have seen tickets that the ledger has not issued; the next ones are higher."""
    job = Job("a")
    hello = replace(job.hello("a"), highest_ticket=MAX_TICKETS_AHEAD)
    assert job.ledger.handle_hello(hello).outcome == "restored"
    ticket = decode_instruction(encode(job.issue("a"))).ticket
    assert ticket is not None
    assert ticket.number == MAX_TICKETS_AHEAD + 2


def test_client_that_reports_losses_again_and_again_is_ignored_for_longer_and_longer() -> None:
    """It reports a loss whenever it is asked. New epochs after the 1st report, then 2, 8 and 32 rounds later."""
    job = Job("a", "hostile")
    epochs = []
    for round in range(50):
        job.time += 1.0
        before = job.ledger.epoch
        job.upload("a", 1, 2)
        [row] = [client for client in job.ledger.clients() if client.id == "hostile"]
        claim = Epoch(before.number + 1, "abc")
        verdict = job.ledger.handle_hello(replace(job.hello("hostile"), epoch=claim))
        assert verdict.outcome == ("restored" if row.backoff_until <= round else "refused")
        if verdict.outcome == "refused":
            assert f"it is ignored until round {row.backoff_until}" in verdict.why
        job.close_round(reachable=["a", "hostile"])
        if job.ledger.epoch != before:
            epochs.append(round)
    assert epochs == [0, 1, 4, 13, 46]


def test_client_that_reported_many_losses_is_believed_if_no_other_takes_part() -> None:
    """It would be ignored for 512 rounds. After three rounds in which nothing counted, its report starts an epoch."""
    job = Job("a")
    job.round({"a": [1, 2]})
    with job.ledger.batch():
        for _ in range(9):
            job.ledger.table.add_loss("a", job.ledger.round, max_backoff=512)
    job.storages["a"].files.clear()
    assert [job.round({"a": [1, 2]}) for _ in range(5)] == [*[["refused"]] * 3, ["lost"], ["accepted"]]


def test_losses_without_a_backoff() -> None:
    job = Job("a", limits=Limits(max_loss_backoff=0))
    for _ in range(5):
        assert job.round({"a": [1, 2]}) == ["accepted"]
        job.storages["a"].files.clear()
        assert job.round({"a": [1, 2]}) == ["lost"]


@pytest.mark.parametrize("memory", ["client", "server"])
def test_expelled_client_is_removed_and_may_be_readmitted(memory: str, tmp_path: Path) -> None:
    """[1, 2] + [10, 20]: without b, the sum is [1, 2], or empty in a new epoch if only b has its update."""
    path = tmp_path / "ledger.sqlite"
    job = Job("a", "b", database=Database.open(path), memory=memory)
    job.round({"a": [1, 2], "b": [10, 20]})
    expel(path, find_client(path, "b"))
    assert job.upload("a", 3, 4).outcome == "accepted"  # the open round is closed first
    job.close_round()
    assert job.ledger.remove_expelled() == ["b"]
    assert job.ledger.remove_expelled() == []
    assert (job.total, job.ledger.epoch.number) == (([3, 4], 1) if memory == "server" else ([0, 0], 2))
    refused = ("refused", "the client was expelled; `fedlatest expel --undo` readmits it")
    assert job.exchange_hello("b") == refused
    job.ledger = job.open()
    assert job.exchange_hello("b") == refused, "the next server forgot it"
    expel(path, find_client(path, "b"), undo=True)
    job.ledger.remove_expelled()
    assert job.exchange_hello("b").outcome == "joined"
    assert job.round({"a": [5, 6], "b": [50, 60]}) == ["accepted", "accepted"]
    assert job.total == [55, 66]


def test_client_to_expel_is_found_by_its_id_or_its_name(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    job = Job("a", "b", "c", database=Database.open(path))
    for client, name in (("a", "kitchen"), ("b", "attic"), ("c", "attic")):
        job.ledger.handle_hello(job.hello(client), name=name)
    assert (find_client(path, "a"), find_client(path, "kitchen")) == ("a", "a")
    with pytest.raises(LedgerError, match=r"attic: several clients have this name \(b, c\); give the id"):
        find_client(path, "attic")
    with pytest.raises(LedgerError, match="garage: no client of the job has this id or name"):
        find_client(path, "garage")
