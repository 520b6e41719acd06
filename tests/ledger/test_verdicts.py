"""What a reply must be to count. Whatever is refused leaves the sum as it was, and the right reply still counts."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedlatest.ledger import Epoch, Reply, Ticket
from fedlatest.ledger.hashing import checksum_of
from tests.ledger.faults import FlakyDisk
from tests.ledger.job import Job


def _with(vector: Any, **more: Any) -> Callable[[Reply], Reply]:
    return lambda reply: replace(reply, vector=vector, checksum=checksum_of(np.asarray(vector)), **more)


def _but(**changes: Any) -> Callable[[Reply], Reply]:
    return lambda reply: replace(reply, **changes)


WRONG = {
    "no vector": (_but(vector=None), "its vector is nothing, not int32[2]"),
    "short vector": (_with(np.zeros(1, np.int32)), "its vector is int32[1], not int32[2]"),
    "flat no more": (_with(np.zeros((1, 2), np.int32)), "its vector is int32[1, 2], not int32[2]"),
    "not finite": (_but(vector=np.array([np.nan, 1.0])), "its vector is float64[2], not int32[2]"),
    "too wide": (_but(vector=np.zeros(2, np.int64)), "its vector is int64[2], not int32[2]"),
    "digest": (_but(vector=np.array([9, 9], np.int32)), "its vector does not have the checksum that its header names"),
    "superseded": (_but(ticket=Ticket(1, "99")), "it bears ticket 1; the last one was 2"),
    "other nonce": (_but(ticket=Ticket(2, "99")), "it bears ticket 2; the last one was 2"),
    "no ticket": (_but(ticket=None), "it bears no ticket; the last one was 2"),
    "other base": (_but(base=Ticket(1, "99")), "it starts from ticket 1, in the sum is ticket 1"),
    "no base": (_but(base=None), "it starts from nothing, in the sum is ticket 1"),
    "other epoch": (_but(epoch=Epoch(2, "99")), "it is of epoch 2, not 1"),
    "other job": (_but(job="b" * 32), f"its job is {'b' * 32}, the job's "),
    "other config": (_but(config="c0ffee"), "its config is c0ffee, the job's "),
    "other layout": (_but(layout="1a40"), "its model layout is 1a40, the job's "),
    "stranger": (_but(client="z"), "it is not a member of the job"),
    "weight": (_but(weight=0.0), "its weight is 0, not in"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_reply_is_refused_and_changes_nothing(case: str) -> None:
    spoil, why = WRONG[case]
    job = Job("a", "b")
    job.round({"a": [1, 2], "b": [10, 20]})
    right = job.obey(job.ask("a"), 3, 4)
    changes = job.database.connection.total_changes
    verdict = job.ledger.take(spoil(right))
    assert verdict.outcome == "refused"
    assert verdict.why.startswith(why)
    assert job.ledger.sums().delta.tolist() == [0, 0]
    assert changes == job.database.connection.total_changes
    assert job.ledger.take(right).outcome == "taken"
    assert job.ledger.take(right) == ("refused", "its ticket was used already")
    job.close()
    assert job.total == [13, 24]
    assert job.ledger.take(right) == ("refused", "ticket 2 was used already")


@pytest.mark.parametrize("name", ["config", "layout", "job"])
def test_both_hashes_are_named(name: str) -> None:
    job = Job("a")
    here = {"config": job.config.hash, "layout": job.ledger.layout.hash, "job": job.ledger.job}[name]
    reply = job.obey(job.ask("a"), 1, 2)
    there = "b" * 32
    spoilt = replace(reply, **{name: there})  # type: ignore[arg-type]
    assert f"is {there}, the job's {here}" in job.ledger.take(spoilt).why
    spoilt = replace(job.hello("a"), **{name: there})  # type: ignore[arg-type]
    assert f"is {there}, the job's {here}" in job.ledger.greet(spoilt).why


def test_a_stranger_to_the_job_is_not_let_in() -> None:
    job = Job()
    job.disks["a"] = FlakyDisk()
    reply = replace(job.hello("a"), config="c0ffee")
    assert job.ledger.greet(reply).outcome == "refused"
    assert job.ledger.members() == []


def test_only_a_greeting_is_a_greeting() -> None:
    """A client whose disk is another's says that it failed; it must not be let in for it."""
    job = Job("a")
    reply = replace(job.hello("a"), say="failed", client="z", why="this is client a, not z")
    assert job.ledger.greet(reply) == ("failed", "this is client a, not z")
    assert [member.client for member in job.ledger.members()] == ["a"]


def test_whole_values_are_wanted_where_the_server_keeps_them() -> None:
    job = Job("a", memory="server")
    job.round({"a": [1, 2]})
    reply = job.obey(job.ask("a"), 3, 4)
    assert reply.base is None
    assert job.ledger.take(replace(reply, base=Ticket(1, "1"))).why == "it is a difference, the job wants whole values"
    assert job.ledger.take(reply).outcome == "taken"
    job.close()
    assert job.total == [3, 4]


def test_a_value_that_is_too_long_is_refused() -> None:
    """With a limit of 5, two numbers and a unit of 1: a value may reach 5.005 + sqrt(2), a difference twice that."""
    job = Job("a", clip_norm=5.0)
    assert job.upload("a", 100, 0).why == "its norm is 100, above 6.419"
    assert job.round({"a": [3, 4]}) == ["taken"]
    assert job.round({"a": [-3, -4]}) == ["taken"]  # 10 away
    assert job.upload("a", 100, 0).why == "its norm is 103.1, above 12.84"
    server = Job("a", clip_norm=5.0, memory="server")
    assert server.upload("a", 7, 0).why == "its norm is 7, above 6.419"
    assert server.round({"a": [3, 4]}) == ["taken"]


@pytest.mark.parametrize("memory", ["client", "server", "none"])
def test_whoever_declines_or_fails_changes_nothing(memory: str) -> None:
    job = Job("a", memory=memory)
    for say in ("declined", "failed"):
        reply = replace(job.obey(job.ask("a"), 1, 2), say=say, why="on battery")
        assert job.ledger.take(reply) == (say, "on battery")
    job.close()
    assert job.total == [0, 0]


def test_without_memory_only_the_round_counts() -> None:
    job = Job("a", "b", memory="none")
    job.upload("a", 1, 2)
    job.upload("b", 10, 20)
    sums = job.ledger.sums()
    assert (sums.total.tolist(), sums.delta.tolist(), sums.num, sums.weight) == ([0, 0], [11, 22], 2, 2.0)
    job.close()
    assert job.round({"a": [3, 4]}) == ["taken"]
    assert job.total == [0, 0]
