"""Invalid replies: each is refused and logged, and does not change the sum."""

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

from fedlatest.flower import ClientResult, ClientTask, Timeouts, client_app
from fedlatest.flower.message_records import PROTOCOL, VECTOR
from tests.flower.small_job import SmallJob, Train, Weights, towards

Change = Callable[[Message], object]


def set_vector(message: Message, array: Array) -> None:
    message.content[VECTOR] = ArrayRecord({VECTOR: array})


def vector(message: Message) -> Any:
    return message.content.array_records[VECTOR][VECTOR].numpy()


def flip_a_bit(message: Message) -> None:
    changed = vector(message).copy()
    changed[0] ^= 1
    set_vector(message, Array(changed))


def truncate(message: Message) -> None:
    array = message.content.array_records[VECTOR][VECTOR]
    set_vector(message, Array(array.dtype, array.shape, array.stype, array.data[:-4]))


def claim_a_terabyte(message: Message) -> None:
    """Claim an array of 2^38 numbers (1 TiB) in the header of 12 bytes of content."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<i4", "fortran_order": False, "shape": (2**38,)})
    set_vector(message, Array("int32", (3,), "numpy.ndarray", header.getvalue() + b"\0" * 12))


def change_header(**facts: Any) -> Change:
    def change(message: Message) -> None:
        header = json.loads(str(message.content.config_records[PROTOCOL]["header"]))
        message.content[PROTOCOL] = ConfigRecord({"header": json.dumps({**header, **facts})})

    return change


def drop_header(message: Message) -> None:
    del message.content[PROTOCOL]


CHANGES: list[tuple[Change, str]] = [
    (flip_a_bit, "does not match the checksum"),
    (truncate, "cannot be read"),
    (claim_a_terabyte, "cannot be read"),
    (lambda message: set_vector(message, Array(np.zeros(100_000, np.int32))), "more than 3 numbers take"),
    (lambda message: set_vector(message, Array(np.zeros(4, np.int32))), "not int32[3]"),
    (lambda message: set_vector(message, Array(np.zeros((3, 1), np.int32))), "not int32[3]"),
    (lambda message: set_vector(message, Array(np.zeros(3, np.float32))), "not int32[3]"),
    (lambda message: set_vector(message, Array(np.full(3, np.nan))), "not int32[3]"),
    (lambda message: set_vector(message, Array("int32", (3,), "pickle", b"boo")), "not one NumPy array"),
    (lambda message: message.content.pop(VECTOR), "the upload is missing"),
    (drop_header, "is the client app wrapped"),
    (change_header(client="c"), "claims to be c"),
    (change_header(weight=0), "the weight is 0"),
    (change_header(weight="many"), "weight=many"),
    (change_header(base=None), "the upload starts from no ticket"),
    (change_header(job="0" * 32), "the reply's job is 000"),
    (change_header(ticket=[1, "ab"]), "the reply has ticket 1"),
    (change_header(more=1), "does not have the keys of a reply"),
]


@pytest.mark.parametrize(("change", "why"), CHANGES)
def test_an_invalid_upload_is_refused(
    change: Change, why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = SmallJob(tmp_path)
    job.run_round()

    def tamper(node: int, message: Message) -> Message:
        change(message)
        return message

    job.change_next_upload(tamper, of="b")
    outcome = job.run_round()
    assert sorted(outcome.accepted) == ["a", "c"]
    assert outcome.refused == ["b"]
    [event] = job.events("refused")
    assert event["client"] == "b"
    assert why in event["why"]
    assert why in caplog.text
    assert job.audit().holds
    assert "b" in [client for _ in range(3) for client in job.run_round().accepted]
    assert job.audit().holds


def test_a_replayed_reply_is_refused(tmp_path: Path) -> None:
    job = SmallJob(tmp_path)
    kept: list[RecordDict] = []

    def keep(node: int, message: Message) -> Message:
        kept.append(deepcopy(message.content))
        return message

    def replay(node: int, message: Message) -> Message:
        message.content = kept[0]
        return message

    job.change_next_upload(keep, of="b")
    job.run_round()
    job.change_next_upload(replay, of="b")
    assert job.run_round().refused == ["b"]
    assert "ticket 1 was already used" in job.events("refused")[0]["why"]
    assert job.audit().holds


def returns(arrays: Any, num_examples: int = 2) -> Train:
    return lambda weights, task: ClientResult(num_examples, {}, arrays)


def raises(weights: Weights, task: ClientTask) -> ClientResult:
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
def test_a_training_function_that_fails(
    train: Train, why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The other clients take part as usual, and the failing one is asked again later."""
    job = SmallJob(tmp_path, clients="ab", timeouts=Timeouts(deadline=10, poll=1))
    job.add("c", client_app(train))
    job.loop.wait_for_clients(3, timeout=30)
    outcome = job.run_round()
    assert sorted(outcome.accepted) == ["a", "b"]
    assert outcome.failed == ["c"]
    [event] = job.events("failed")
    assert why in event["why"]
    assert why in caplog.text
    assert job.audit().holds
    assert "c" in [client for _ in range(3) for client in job.run_round().asked]


def test_an_app_without_the_mod(tmp_path: Path) -> None:
    """Its node does not become a client, with or without a key, and gets at most one hello per deadline."""
    job = SmallJob(tmp_path, clients="ab")
    plain = ClientApp()

    @plain.train()
    def train(message: Message, context: Any) -> Message:
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    job.add("x", plain)
    job.add("y", plain, key=b"key of y")
    job.add("z", ClientApp())
    for _ in range(5):
        assert sorted(job.run_round().accepted) == ["a", "b"]
    refused = job.events("refused", "failed")
    assert len(refused) == 3
    assert ["is the client app wrapped" in event["why"] for event in refused] == [True, True, False]
    assert {event["client"] for event in refused} == {f"node {job.nodes['x']}", "y", f"node {job.nodes['z']}"}
    job.now += 100
    job.run_round()
    job.run_round()
    assert len(job.events("refused", "failed")) == 6


def test_a_node_without_a_state_dir(tmp_path: Path) -> None:
    job = SmallJob(tmp_path, clients="ab")
    job.add("c", client_app(towards(1)), node_config={"state-dir": ""})
    job.run_round()
    assert "--node-config" in job.events("failed")[0]["why"]


def test_a_name_with_the_prefix_of_keys_is_refused(tmp_path: Path) -> None:
    """Names that start with "key-" are reserved for nodes with a registered key."""
    job = SmallJob(tmp_path, clients="ab")
    job.add("c", client_app(towards(1)), node_config={"name": "key-0123456789abcdef"})
    for _ in range(3):
        assert sorted(job.run_round().accepted) == ["a", "b"]
    assert [event["why"] for event in job.events("refused")] == ["it claims to be key-0123456789abcdef"]


def test_versions_that_do_not_fit_say_which_side_to_upgrade(tmp_path: Path) -> None:
    """First the client has a newer protocol than the server, then the server a newer one than the client."""
    job = SmallJob(tmp_path, clients="a")
    of_the_server = job.grid.push_messages

    def from_a_newer_client(node: int, message: Message) -> Message:
        message.content.config_records[PROTOCOL]["protocol"] = 99
        return message

    def from_a_newer_server(messages: Any) -> Any:
        messages = list(messages)
        for message in messages:
            message.content.config_records[PROTOCOL]["protocol"] = 99
        return of_the_server(messages)

    job.grid.on_reply = from_a_newer_client
    job.run_round()
    job.grid.on_reply = lambda node, message: message
    job.grid.push_messages = from_a_newer_server  # type: ignore[method-assign]
    job.run_round()
    [refused] = {event["why"] for event in job.events("refused")}
    [failed] = {event["why"] for event in job.events("failed")}
    assert refused == "the client has protocol 99, the server understands 1 to 2: upgrade fedlatest at the server"
    assert "the server has protocol 99, the client understands 1 to 2: upgrade fedlatest at the client" in failed
    job.grid.push_messages = of_the_server  # type: ignore[method-assign]
    job.now += job.timeouts.deadline
    job.run_round()
    assert job.run_round().accepted == ["a"]
