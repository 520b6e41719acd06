"""The client's side of the protocol: its replies, and what it must not send."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedlatest.errors import DeclinedError, DivergedError
from fedlatest.ledger import Instruction, JobConfig, LocalUpdate, encode, fixed_point_update, handle_instruction
from fedlatest.ledger.fixed_point import MAX_UNITS
from tests.ledger.job import LAYOUT, Job


def test_repeated_instruction_gets_the_same_reply() -> None:
    job = Job("a")
    job.round({"a": [1, 2]})
    instruction = job.issue("a")
    first, again = job.reply(instruction, 3, 4), job.reply(instruction, 5, 6)
    assert first.upload is not None
    assert again.upload is not None
    assert first.upload.tolist() == again.upload.tolist() == [2, 2]
    known: Any = {"held_tickets": first.held_tickets, "highest_ticket": first.highest_ticket}
    assert (again.metrics, again.training_seconds) == ({}, None)  # they are not stored
    assert encode(first) == encode(replace(again, **known, training_seconds=first.training_seconds))


@pytest.mark.parametrize("lost", ["instruction", "reply", "acknowledgement"])
def test_lost_message_is_repaired_at_the_next_contact(lost: str) -> None:
    """[1, 2] is in the sum; a message about [3, 4] is lost; after the next round the sum is the new update [7, 8]."""
    job = Job("a")
    job.round({"a": [1, 2]})
    instruction = job.issue("a")
    if lost != "instruction":
        reply = job.reply(instruction, 3, 4)
        if lost == "acknowledgement":
            assert job.ledger.handle_reply(reply).outcome == "accepted"
            job.close_round()
            job.issue("a")  # this instruction, which is lost, would acknowledge [3, 4]
    assert job.round({"a": [7, 8]}) == ["accepted"]
    assert job.total == [7, 8]


def test_outdated_instruction_gets_no_upload() -> None:
    job = Job("a")
    old = job.issue("a")
    assert job.round({"a": [1, 2]}) == ["accepted"]
    reply = job.reply(old, 9, 9)
    assert (reply.kind, reply.upload) == ("ahead", None)
    assert job.ledger.handle_reply(reply).outcome == "refused"


def test_instruction_for_another_config_or_client_fails() -> None:
    job = Job("a")
    job.round({"a": [1, 2]})
    instruction = job.issue("a")
    other = job.reply(replace(instruction, config="c0ffee"), 3, 4)
    assert (other.kind, other.why) == (
        "failed",
        f"this client joined the job with the config {job.config.hash}, the server now has c0ffee",
    )
    store = job.store("a")
    wrong = replace(instruction, client="z")
    reply = handle_instruction(store, wrong, train=lambda: pytest.fail("it must not train"))
    assert (reply.kind, reply.why) == ("failed", "this is client a, not z")


def _reply(job: Job, instruction: Instruction, result: Any) -> Any:
    def train() -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    return handle_instruction(job.store("a"), instruction, train=train)


@pytest.mark.parametrize(
    ("result", "kind", "why"),
    [
        (DeclinedError("on battery"), "declined", "on battery"),
        (DivergedError("not finite"), "failed", "not finite"),
        (LocalUpdate(np.zeros(3, np.int32), 1.0, {}), "failed", "training returned int32[3], not int32[2]"),
        (LocalUpdate(np.zeros(2, np.float32), 1.0, {}), "failed", "training returned float32[2], not int32[2]"),
        (
            LocalUpdate(np.array([0, 2**30], np.int32), 1.0, {}),
            "failed",
            f"the update has a number above {MAX_UNITS} units",
        ),
        (
            LocalUpdate(np.array([0, -(2**31)], np.int32), 1.0, {}),
            "failed",
            f"the update has a number above {MAX_UNITS} units",
        ),
        (LocalUpdate(np.zeros(2, np.int32), 0.0, {}), "failed", "weight=0.0: must be finite and above 0"),
        (LocalUpdate(np.zeros(2, np.int32), np.inf, {}), "failed", "weight=inf: must be finite and above 0"),
    ],
)
def test_invalid_result_of_training_changes_nothing(result: Any, kind: str, why: str) -> None:
    """The difference of two numbers above 2^30 can overflow 32 bits, which NumPy does not report."""
    job = Job("a")
    job.round({"a": [1, 2]})
    before = dict(job.storages["a"].files)
    reply = _reply(job, job.issue("a"), result)
    assert (reply.kind, reply.why) == (kind, why)
    assert job.storages["a"].files == before


def test_largest_updates_count_exactly() -> None:
    job = Job("a")
    assert job.round({"a": [MAX_UNITS, -MAX_UNITS]}) == ["accepted"]
    assert job.round({"a": [-MAX_UNITS, MAX_UNITS]}) == ["accepted"]
    assert job.total == [-MAX_UNITS, MAX_UNITS]


def test_numpy_scalars_can_be_sent() -> None:
    job = Job("a")
    half: Any = np.float32(0.5)
    result = LocalUpdate(np.array([1, 2], np.int32), 4 * half, {"loss": half})
    reply = _reply(job, job.issue("a"), result)
    assert (reply.weight, reply.metrics) == (2.0, {"loss": 0.5})
    assert '"loss": 0.5' in encode(reply)


def test_rebase_uploads_the_stored_update_without_training() -> None:
    """After a new epoch, `rebase` adds the stored update to the sum again; it does not change `last_round`."""
    job = Job("a")
    job.round({"a": [1, 2]})
    job.ledger.resync()
    assert job.total == [0, 0]
    assert job.ledger.handle_reply(job.reply(job.issue("a", "rebase"), 9, 9)).outcome == "accepted"
    assert job.ledger.sums().num == 0
    job.close_round()
    assert job.total == [1, 2]
    [client] = job.ledger.clients()
    assert client.last_round == 0


def test_rebase_without_a_stored_update_is_declined() -> None:
    job = Job("a", "b")
    assert job.reply(job.issue("a", "rebase"), 9, 9).kind == "declined"
    job.round({"b": [1, 2]})
    job.ledger.resync()
    [name] = [name for name in job.storages["b"].files if name.endswith(".value")]
    job.storages["b"].put(name, b"damaged!")
    assert job.reply(job.issue("b", "rebase"), 9, 9).kind == "declined"


def test_slow_training_does_not_overwrite_a_newer_update() -> None:
    """While the client trains for the first ticket, a second one is issued, answered and applied."""
    job = Job("a")
    slow = job.issue("a")

    def train() -> LocalUpdate:
        assert job.round({"a": [3, 4]}) == ["accepted"]
        return LocalUpdate(np.array([1, 2], np.int32), 1.0, {})

    reply = handle_instruction(job.store("a"), slow, train=train)
    assert (reply.kind, reply.why) == (
        "failed",
        "another instruction was handled in the meantime; this result is discarded",
    )
    assert job.ledger.handle_reply(reply).outcome == "refused"
    assert job.round({"a": [5, 6]}) == ["accepted"]
    assert job.total == [5, 6]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [6, 8]),
        ({"clip_norm": 2.5}, [3, 4]),
        ({"weighs": True}, [12, 16]),
        ({"clip_norm": 2.5, "weighs": True}, [6, 8]),
    ],
)
def test_update_is_clipped_weighted_and_rounded(settings: dict[str, Any], expected: list[int]) -> None:
    """x_local - x = [3, 4] has norm 5; a limit of 2.5 halves it; the weight is 2; a unit of 0.5 doubles the numbers."""
    config = JobConfig("fedlaavg", unit=0.5, **settings)
    instruction = replace(Job("a").issue("a"), settings=config.as_dict())
    broadcast, local = {"x": np.array([1.0, 1.0], np.float32)}, {"x": np.array([4.0, 5.0], np.float32)}
    update = fixed_point_update(instruction, LAYOUT, broadcast, local, weight=2.0)
    assert update.dtype == np.int32
    assert update.tolist() == expected
