"""Messages: encoding and decoding are inverse, and everything that is not a valid message raises ProtocolError."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlatest.errors import ProtocolError
from fedlatest.ledger import Epoch, Instruction, Reply, Ticket, decode_instruction, decode_reply, encode
from fedlatest.ledger.hashing import digest_of
from fedlatest.ledger.messages import MAX_HEADER

JOB = "0123456789abcdef" * 2
INSTRUCTION = Instruction(
    "train",
    JOB,
    Epoch(1, "ab"),
    "config",
    "layout",
    "me",
    7,
    Ticket(3, "c"),
    Ticket(2, "b"),
    "checksum",
    {"memory": "client"},
)
REPLY = Reply(
    "upload", JOB, Epoch(1, "ab"), "config", "layout", "me", 7, Ticket(3, "c"), Ticket(2, "b"),
    (Ticket(2, "b"), Ticket(3, "c")), 3, weight=2.0, checksum="d", update_digest="v", metrics={"loss": 0.5},
)  # fmt: skip

WRONG_REPLIES: dict[str, dict[str, Any]] = {
    "unknown kind": {"say": "other"},
    "kind of another type": {"say": ["upload"]},
    "job is a path": {"job": "../../etc"},
    "job of another type": {"job": 3},
    "round is text": {"round": "7"},
    "round is true": {"round": True},
    "round is not an integer": {"round": 7.5},
    "negative round": {"round": -1},
    "round too large": {"round": 10**100},
    "negative highest ticket": {"seen": -1},
    "highest ticket too large": {"seen": 10**30},
    "token is a path": {"ticket": [1, "../x"]},
    "empty token": {"ticket": [1, ""]},
    "negative ticket": {"ticket": [-1, "a"]},
    "ticket too large": {"ticket": [2**80, "a"]},
    "ticket with three elements": {"ticket": [1, "a", "b"]},
    "epoch is missing": {"epoch": None},
    "epoch is true": {"epoch": [True, "a"]},
    "too many held tickets": {"held": [[1, "a"]] * 9},
    "held tickets are not a list": {"held": {}},
    "negative weight": {"weight": -1.0},
    "weight is NaN": {"weight": float("nan")},
    "weight is infinite": {"weight": float("inf")},
    "weight overflows a float": {"weight": 10**400},
    "weight is true": {"weight": True},
    "metric is text": {"metrics": {"loss": "low"}},
    "metric overflows a float": {"metrics": {"loss": 10**400}},
    "metrics are a list": {"metrics": []},
    "unpaired surrogate": {"client": "\ud800"},
    "unpaired surrogate in a nested key": {"metrics": {"\ud800": 1.0}},
    "trained is 1": {"trained": 1},
    "why is null": {"why": None},
}


def test_decoding_inverts_encoding() -> None:
    assert decode_instruction(encode(INSTRUCTION)) == INSTRUCTION
    upload = np.array([1, 2], np.int32)
    back = decode_reply(encode(REPLY), upload)
    assert back.upload is upload
    assert {**back.__dict__, "upload": None} == REPLY.__dict__


@pytest.mark.parametrize("case", WRONG_REPLIES)
def test_invalid_field_of_a_reply_raises(case: str) -> None:
    header = json.dumps({**json.loads(encode(REPLY)), **WRONG_REPLIES[case]})
    with pytest.raises(ProtocolError):
        decode_reply(header)


@pytest.mark.parametrize(
    "change",
    [
        {"ask": "other"},
        {"ask": "hello"},
        {"ticket": None},
        {"settings": []},
        {"applied": "2"},
        {"value": 2},
        {"round": -1},
    ],
)
def test_invalid_field_of_an_instruction_raises(change: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        decode_instruction(json.dumps({**json.loads(encode(INSTRUCTION)), **change}))


def test_header_with_other_keys_raises() -> None:
    fields = json.loads(encode(REPLY))
    short = {name: value for name, value in fields.items() if name != "seen"}
    for header in (json.dumps({**fields, "extra": "value"}), json.dumps(short), encode(INSTRUCTION), "[]", "null", "7"):
        with pytest.raises(ProtocolError, match="the header does not have the keys of a reply"):
            decode_reply(header)


@pytest.mark.parametrize("end", [0, 1, 10, -1])
def test_truncated_header_raises(end: int) -> None:
    with pytest.raises(ProtocolError, match="not JSON"):
        decode_reply(encode(REPLY)[:end])


def test_oversized_header_raises() -> None:
    for header in (" " * (MAX_HEADER + 1), b"{}", None, "[" * MAX_HEADER, '{"round": ' + "9" * 60_000 + "}"):
        with pytest.raises(ProtocolError):
            decode_reply(header)  # type: ignore[arg-type]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(text=st.text() | json_values.map(json.dumps))
def test_random_text_raises(text: str) -> None:
    for decode in (decode_instruction, decode_reply):
        with pytest.raises(ProtocolError):
            decode(text)


@given(data=st.data())
def test_random_change_of_a_field_raises_or_is_decoded(data: st.DataObject) -> None:
    for message, decode in ((INSTRUCTION, decode_instruction), (REPLY, decode_reply)):
        fields = json.loads(encode(message))
        fields[data.draw(st.sampled_from(sorted(fields)))] = data.draw(json_values)
        try:
            read: Any = decode(json.dumps(fields))
        except ProtocolError:
            continue
        assert encode(decode(encode(read))) == encode(read)


def test_digest_does_not_depend_on_byte_order_or_strides() -> None:
    """SHA-256 of the SHA-256 of the bytes 01 00 00 00 ff ff ff ff: a short array has one chunk."""
    expected = "0569cbe5d7dc8a4ff70048d0519964a2814408a799ec6f5e6ba0cd12f5f08e10"
    update = np.array([1, -1], np.int32)
    for same in (update, update.astype(">i4"), np.array([1, 7, -1], np.int32)[::2]):
        assert digest_of(same) == expected
