"""Replies that are not what they should be: each is refused, is written down, and leaves the sum as it was."""

import io
import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedlatest.flower import Assignment, Fitted, Pace, client_app
from fedlatest.flower.message_records import OURS, VECTOR
from tests.flower.small import Small, Train, Weights, towards

Change = Callable[[Message], object]


def put(message: Message, array: Array) -> None:
    message.content[VECTOR] = ArrayRecord({VECTOR: array})


def vector(message: Message) -> Any:
    return message.content.array_records[VECTOR][VECTOR].numpy()


def flip_a_bit(message: Message) -> None:
    changed = vector(message).copy()
    changed[0] ^= 1
    put(message, Array(changed))


def truncate(message: Message) -> None:
    array = message.content.array_records[VECTOR][VECTOR]
    put(message, Array(array.dtype, array.shape, array.stype, array.data[:-4]))


def claim_a_terabyte(message: Message) -> None:
    """A header of an array that no machine could hold, before 12 bytes of content."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<i4", "fortran_order": False, "shape": (2**38,)})
    put(message, Array("int32", (3,), "numpy.ndarray", header.getvalue() + b"\0" * 12))


def change_header(**facts: Any) -> Change:
    def change(message: Message) -> None:
        header = json.loads(str(message.content.config_records[OURS]["header"]))
        message.content[OURS] = ConfigRecord({"header": json.dumps({**header, **facts})})

    return change


def no_header(message: Message) -> None:
    del message.content[OURS]


CHANGES: list[tuple[Change, str]] = [
    (flip_a_bit, "does not match the checksum"),
    (truncate, "cannot be read"),
    (claim_a_terabyte, "cannot be read"),
    (lambda message: put(message, Array(np.zeros(100_000, np.int32))), "more than 3 numbers take"),
    (lambda message: put(message, Array(np.zeros(4, np.int32))), "not int32[3]"),
    (lambda message: put(message, Array(np.zeros((3, 1), np.int32))), "not int32[3]"),
    (lambda message: put(message, Array(np.zeros(3, np.float32))), "not int32[3]"),
    (lambda message: put(message, Array(np.full(3, np.nan))), "not int32[3]"),
    (lambda message: put(message, Array("int32", (3,), "pickle", b"boo")), "not one NumPy array"),
    (lambda message: message.content.pop(VECTOR), "the upload is missing"),
    (no_header, "is the client wrapped"),
    (change_header(client="c"), "says that it is c"),
    (change_header(weight=0), "the weight is 0"),
    (change_header(weight="many"), "weight=many"),
    (change_header(base=None), "the upload starts from no ticket"),
    (change_header(job="0" * 32), "the reply's job is 000"),
    (change_header(ticket=[1, "ab"]), "the reply has ticket 1"),
    (change_header(more=1), "does not have the keys of a reply"),
]


@pytest.mark.parametrize(("change", "why"), CHANGES)
def test_a_bad_upload_is_refused(change: Change, why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    job = Small(tmp_path)
    job.play()

    def tamper(node: int, message: Message) -> Message:
        change(message)
        return message

    job.once(tamper, of="b")
    tally = job.play()
    assert sorted(tally.taken) == ["a", "c"]
    assert tally.refused == ["b"]
    [event] = job.events("refused")
    assert event["client"] == "b"
    assert why in event["why"]
    assert why in caplog.text
    assert job.audit().holds
    assert "b" in [client for _ in range(3) for client in job.play().taken]
    assert job.audit().holds


def test_a_reply_from_an_earlier_round_is_refused(tmp_path: Path) -> None:
    job = Small(tmp_path)
    kept: list[RecordDict] = []

    def keep(node: int, message: Message) -> Message:
        kept.append(deepcopy(message.content))
        return message

    def replay(node: int, message: Message) -> Message:
        message.content = kept[0]
        return message

    job.once(keep, of="b")
    job.play()
    job.once(replay, of="b")
    assert job.play().refused == ["b"]
    assert "ticket 1 was already used" in job.events("refused")[0]["why"]
    assert job.audit().holds


def returns(arrays: Any, num_examples: int = 2) -> Train:
    return lambda weights, task: Fitted(num_examples, {}, arrays)


def raises(weights: Weights, task: Assignment) -> Fitted:
    raise RuntimeError("out of memory")


@pytest.mark.parametrize(
    ("train", "why"),
    [
        (raises, "out of memory"),
        (returns({"w": np.full(3, np.nan, np.float32)}), "not finite"),
        (returns({"w": np.full(3, np.inf, np.float32)}), "not finite"),
        (returns({"w": np.full(3, 1e9, np.float32)}), "above the maximum"),
        (returns({"w": np.zeros(4, np.float32)}), "the model is not the job's"),
        (returns({"w": np.zeros(3, np.float64)}), "the model is not the job's"),
        (returns({"v": np.zeros(3, np.float32)}), "the model is not the job's"),
        (returns({}), "the model is not the job's"),
        (returns(None), "returned no arrays"),
        (returns({"w": np.zeros(3, np.float32)}, 0), "num-examples"),
        (lambda weights, task: None, "NoneType"),
    ],
)
def test_a_failing_training_function(train: Train, why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The others go on, and the failing one is asked again later."""
    job = Small(tmp_path, clients="ab", pace=Pace(deadline=10, poll=1))
    job.add("c", client_app(train))
    job.loop.wait_for(3, seconds=30)
    tally = job.play()
    assert sorted(tally.taken) == ["a", "b"]
    assert tally.failed == ["c"]
    [event] = job.events("failed")
    assert why in event["why"]
    assert why in caplog.text
    assert job.audit().holds
    assert "c" in [client for _ in range(3) for client in job.play().asked]


def test_an_app_that_is_not_wrapped(tmp_path: Path) -> None:
    """It is not a client, whether it has a key or not, and is not asked who it is all the time."""
    job = Small(tmp_path, clients="ab")
    plain = ClientApp()

    @plain.train()
    def train(message: Message, context: Any) -> Message:
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    job.add("x", plain)
    job.add("y", plain, key=b"key of y")
    job.add("z", ClientApp())
    for _ in range(5):
        assert sorted(job.play().taken) == ["a", "b"]
    refused = job.events("refused", "failed")
    assert len(refused) == 3
    assert ["is the client wrapped" in event["why"] for event in refused] == [True, True, False]
    assert {event["client"] for event in refused} == {f"node {job.nodes['x']}", "y", f"node {job.nodes['z']}"}
    job.now += 100
    job.play()
    job.play()
    assert len(job.events("refused", "failed")) == 6


def test_a_node_without_a_state_folder(tmp_path: Path) -> None:
    job = Small(tmp_path, clients="ab")
    job.add("c", client_app(towards(1)), node_config={"state-dir": ""})
    job.play()
    assert "--node-config" in job.events("failed")[0]["why"]


def test_a_name_that_looks_like_a_key(tmp_path: Path) -> None:
    """Names that begin like that are for nodes whose key is registered."""
    job = Small(tmp_path, clients="ab")
    job.add("c", client_app(towards(1)), node_config={"name": "key-0123456789abcdef"})
    for _ in range(3):
        assert sorted(job.play().taken) == ["a", "b"]
    assert [event["why"] for event in job.events("refused")] == ["it says that it is key-0123456789abcdef"]
