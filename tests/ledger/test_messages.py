"""Messages: whatever is written reads back the same, and whatever else comes in is refused."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlatest.errors import ProtocolError
from fedlatest.ledger import Epoch, Instruction, Reply, Ticket, decode_instruction, decode_reply, encode
from fedlatest.ledger.hashing import digest_of
from fedlatest.ledger.messages import MOST_HEADER

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
    (Ticket(2, "b"), Ticket(3, "c")), 3, weight=2.0, checksum="d", value="v", metrics={"loss": 0.5},
)  # fmt: skip

WRONG_REPLIES: dict[str, dict[str, Any]] = {
    "unknown word": {"say": "shout"},
    "word of another type": {"say": ["upload"]},
    "job that leads out of a folder": {"job": "../../etc"},
    "job of another type": {"job": 3},
    "round is text": {"round": "7"},
    "round is true": {"round": True},
    "round is not whole": {"round": 7.5},
    "round below 0": {"round": -1},
    "round without end": {"round": 10**100},
    "seen below 0": {"seen": -1},
    "seen without end": {"seen": 10**30},
    "token that leads out of a folder": {"ticket": [1, "../x"]},
    "token that is empty": {"ticket": [1, ""]},
    "ticket below 0": {"ticket": [-1, "a"]},
    "ticket without end": {"ticket": [2**80, "a"]},
    "ticket of three": {"ticket": [1, "a", "b"]},
    "epoch is missing": {"epoch": None},
    "epoch is true": {"epoch": [True, "a"]},
    "too many held": {"held": [[1, "a"]] * 9},
    "held is no list": {"held": {}},
    "weight below 0": {"weight": -1.0},
    "weight is no number": {"weight": float("nan")},
    "weight has no end": {"weight": float("inf")},
    "weight does not fit": {"weight": 10**400},
    "weight is true": {"weight": True},
    "metric is text": {"metrics": {"loss": "low"}},
    "metric does not fit": {"metrics": {"loss": 10**400}},
    "metrics are a list": {"metrics": []},
    "half a character": {"client": "\ud800"},
    "half a character within": {"metrics": {"\ud800": 1.0}},
    "trained is 1": {"trained": 1},
    "why is nothing": {"why": None},
}


def test_messages_read_back_the_same() -> None:
    assert decode_instruction(encode(INSTRUCTION)) == INSTRUCTION
    vector = np.array([1, 2], np.int32)
    back = decode_reply(encode(REPLY), vector)
    assert back.vector is vector
    assert {**back.__dict__, "vector": None} == REPLY.__dict__


@pytest.mark.parametrize("case", WRONG_REPLIES)
def test_a_tampered_reply_is_refused(case: str) -> None:
    header = json.dumps({**json.loads(encode(REPLY)), **WRONG_REPLIES[case]})
    with pytest.raises(ProtocolError):
        decode_reply(header)


@pytest.mark.parametrize(
    "change",
    [
        {"ask": "obey"},
        {"ask": "hello"},
        {"ticket": None},
        {"settings": []},
        {"applied": "2"},
        {"value": 2},
        {"round": -1},
    ],
)
def test_a_tampered_instruction_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        decode_instruction(json.dumps({**json.loads(encode(INSTRUCTION)), **change}))


def test_headers_of_another_version_or_kind_are_refused() -> None:
    fields = json.loads(encode(REPLY))
    short = {name: value for name, value in fields.items() if name != "seen"}
    for header in (json.dumps({**fields, "mood": "good"}), json.dumps(short), encode(INSTRUCTION), "[]", "null", "7"):
        with pytest.raises(ProtocolError, match="the header is not that of a reply of this version"):
            decode_reply(header)


@pytest.mark.parametrize("end", [0, 1, 10, -1])
def test_a_truncated_header_is_refused(end: int) -> None:
    with pytest.raises(ProtocolError, match="not JSON"):
        decode_reply(encode(REPLY)[:end])


def test_a_header_without_end_is_refused() -> None:
    for header in (" " * (MOST_HEADER + 1), b"{}", None, "[" * MOST_HEADER, '{"round": ' + "9" * 60_000 + "}"):
        with pytest.raises(ProtocolError):
            decode_reply(header)  # type: ignore[arg-type]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(text=st.text() | json_values.map(json.dumps))
def test_any_text_is_refused(text: str) -> None:
    for decode in (decode_instruction, decode_reply):
        with pytest.raises(ProtocolError):
            decode(text)


@given(data=st.data())
def test_any_change_of_a_field_is_refused_or_read(data: st.DataObject) -> None:
    for message, decode in ((INSTRUCTION, decode_instruction), (REPLY, decode_reply)):
        fields = json.loads(encode(message))
        fields[data.draw(st.sampled_from(sorted(fields)))] = data.draw(json_values)
        try:
            read: Any = decode(json.dumps(fields))
        except ProtocolError:
            continue
        assert encode(decode(encode(read))) == encode(read)


def test_the_digest_is_of_the_numbers_not_of_the_machine() -> None:
    """SHA-256 of the SHA-256 of the bytes 01 00 00 00 ff ff ff ff: a short vector has one part."""
    expected = "0569cbe5d7dc8a4ff70048d0519964a2814408a799ec6f5e6ba0cd12f5f08e10"
    vector = np.array([1, -1], np.int32)
    for same in (vector, vector.astype(">i4"), np.array([1, 7, -1], np.int32)[::2]):
        assert digest_of(same) == expected
