"""Which replies are refused. A refused reply changes nothing, and the correct one is still accepted after it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedlatest.ledger import Epoch, Reply, Ticket
from fedlatest.ledger.hashing import checksum_of, digest_of
from tests.ledger.faults import FaultyStorage
from tests.ledger.job import Job


def _with_upload(upload: Any, **more: Any) -> Callable[[Reply], Reply]:
    return lambda reply: replace(reply, upload=upload, checksum=checksum_of(np.asarray(upload)), **more)


def _with(**changes: Any) -> Callable[[Reply], Reply]:
    return lambda reply: replace(reply, **changes)


WRONG = {
    "no upload": (_with(upload=None), "the upload is missing, not int32[2]"),
    "short upload": (_with_upload(np.zeros(1, np.int32)), "the upload is int32[1], not int32[2]"),
    "two axes": (_with_upload(np.zeros((1, 2), np.int32)), "the upload is int32[1, 2], not int32[2]"),
    "floats": (_with(upload=np.array([np.nan, 1.0])), "the upload is float64[2], not int32[2]"),
    "64 bits": (_with(upload=np.zeros(2, np.int64)), "the upload is int64[2], not int32[2]"),
    "checksum": (_with(upload=np.array([9, 9], np.int32)), "the upload does not match the checksum in its header"),
    "superseded": (_with(ticket=Ticket(1, "99")), "the reply has ticket 1; the last one issued is 2"),
    "other nonce": (_with(ticket=Ticket(2, "99")), "the reply has ticket 2; the last one issued is 2"),
    "no ticket": (_with(ticket=None), "the reply has no ticket; the last one issued is 2"),
    "other base": (_with(base=Ticket(1, "99")), "the upload starts from ticket 1, the sum has ticket 1"),
    "no base": (_with(base=None), "the upload starts from no ticket, the sum has ticket 1"),
    "other epoch": (_with(epoch=Epoch(2, "99")), "the upload is of epoch 2, the job is in epoch 1"),
    "other job": (_with(job="b" * 32), f"the reply's job is {'b' * 32}, the job's is "),
    "other config": (_with(config="c0ffee"), "the reply's config is c0ffee, the job's is "),
    "other layout": (_with(layout="1a40"), "the reply's model layout is 1a40, the job's is "),
    "unknown client": (_with(client="z"), "the client has not joined the job"),
    "weight": (_with(weight=0.0), "the weight is 0; it must be in"),
}


@pytest.mark.parametrize("case", WRONG)
def test_invalid_reply_is_refused_and_changes_nothing(case: str) -> None:
    change, why = WRONG[case]
    job = Job("a", "b")
    job.round({"a": [1, 2], "b": [10, 20]})
    valid = job.reply(job.issue("a"), 3, 4)
    changes = job.database.connection.total_changes
    verdict = job.ledger.handle_reply(change(valid))
    assert verdict.outcome == "refused"
    assert verdict.why.startswith(why)
    assert job.ledger.sums().delta.tolist() == [0, 0]
    assert changes == job.database.connection.total_changes
    assert job.ledger.handle_reply(valid).outcome == "accepted"
    assert job.ledger.handle_reply(valid) == ("refused", "the ticket was already used")
    job.close_round()
    assert job.total == [13, 24]
    assert job.ledger.handle_reply(valid) == ("refused", "ticket 2 was already used")


@pytest.mark.parametrize("name", ["config", "layout", "job"])
def test_refusal_names_both_values(name: str) -> None:
    job = Job("a")
    expected = {"config": job.config.hash, "layout": job.ledger.layout.hash, "job": job.ledger.job}[name]
    reply = job.reply(job.issue("a"), 1, 2)
    other = "b" * 32
    changed = replace(reply, **{name: other})  # type: ignore[arg-type]
    assert f"is {other}, the job's is {expected}" in job.ledger.handle_reply(changed).why
    changed = replace(job.hello("a"), **{name: other})  # type: ignore[arg-type]
    assert f"is {other}, the job's is {expected}" in job.ledger.handle_hello(changed).why


def test_client_with_another_config_cannot_join() -> None:
    job = Job()
    job.storages["a"] = FaultyStorage()
    reply = replace(job.hello("a"), config="c0ffee")
    assert job.ledger.handle_hello(reply).outcome == "refused"
    assert job.ledger.clients() == []


def test_failed_reply_to_a_hello_does_not_join() -> None:
    """A client that uses the disk of another one replies \"failed\"; it must not join."""
    job = Job("a")
    reply = replace(job.hello("a"), kind="failed", client="z", why="this is client a, not z")
    assert job.ledger.handle_hello(reply) == ("failed", "this is client a, not z")
    assert [client.id for client in job.ledger.clients()] == ["a"]


def test_whole_updates_are_required_if_the_server_stores_them() -> None:
    job = Job("a", memory="server")
    job.round({"a": [1, 2]})
    reply = job.reply(job.issue("a"), 3, 4)
    assert reply.base is None
    assert (
        job.ledger.handle_reply(replace(reply, base=Ticket(1, "1"))).why
        == "the upload is a difference; the job requires whole updates"
    )
    assert job.ledger.handle_reply(reply).outcome == "accepted"
    job.close_round()
    assert job.total == [3, 4]


def test_upload_above_the_clipping_norm_is_refused() -> None:
    """Limit 5, two numbers, unit 1: the norm of an update is at most 5.005 + sqrt(2) = 6.419, of a difference 12.84."""
    job = Job("a", clip_norm=5.0)
    assert job.upload("a", 100, 0).why == "the norm of the upload is 100; at most 6.419 is allowed"
    assert job.round({"a": [3, 4]}) == ["accepted"]
    assert job.round({"a": [-3, -4]}) == ["accepted"]  # the difference has norm 10
    assert job.upload("a", 100, 0).why == "the norm of the upload is 103.1; at most 12.84 is allowed"
    server = Job("a", clip_norm=5.0, memory="server")
    assert server.upload("a", 7, 0).why == "the norm of the upload is 7; at most 6.419 is allowed"
    assert server.round({"a": [3, 4]}) == ["accepted"]


@pytest.mark.parametrize("number", [2**30, -(2**30), -(2**31)])
def test_whole_update_with_a_number_above_the_maximum_is_refused(number: int) -> None:
    """The difference of two updates must fit in 32 bits, so an update has at most 2^30 - 1 units."""
    job = Job("a", memory="server")
    update = np.array([number, 0], np.int32)
    reply = replace(job.reply(job.issue("a"), 1, 2), upload=update, update_digest=digest_of(update))
    assert job.ledger.handle_reply(reply) == (
        "refused",
        f"the upload is a whole update and has a number above {2**30 - 1} units",
    )
    assert job.round({"a": [2**30 - 1, -(2**30 - 1)]}) == ["accepted"]


@pytest.mark.parametrize("memory", ["client", "server", "none"])
def test_declined_and_failed_replies_change_nothing(memory: str) -> None:
    job = Job("a", memory=memory)
    for kind in ("declined", "failed"):
        reply = replace(job.reply(job.issue("a"), 1, 2), kind=kind, why="on battery")
        assert job.ledger.handle_reply(reply) == (kind, "on battery")
    job.close_round()
    assert job.total == [0, 0]


def test_without_memory_the_sum_stays_empty() -> None:
    job = Job("a", "b", memory="none")
    job.upload("a", 1, 2)
    job.upload("b", 10, 20)
    sums = job.ledger.sums()
    assert (sums.total.tolist(), sums.delta.tolist(), sums.num, sums.weight) == ([0, 0], [11, 22], 2, 2.0)
    job.close_round()
    assert job.round({"a": [3, 4]}) == ["accepted"]
    assert job.total == [0, 0]
