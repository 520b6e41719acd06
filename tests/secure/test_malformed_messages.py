"""Every malformed message is refused with ProtocolError; no other exception escapes."""

import copy
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from fedlatest.errors import ProtocolError
from fedlatest.secure import SessionView, UnmaskRequest
from tests.secure.cohort import SCOPE, Cohort

VALUES: list[Any] = [
    None, True, 0, -1, 1.5, 2**62, 2**64, 10**400, "", "a", "zz", "\ud800", "é" * 200, "A" * 44, "A===", [], [[]], [0],
    ["a", "b"], ["\ud800", "00" * 32], ["a", "00" * 31], ["é", "00" * 32], [None, None, None], {}, {"a": 1}, [[0, "a"]],
    float("nan"), float("inf"),
]  # fmt: skip
NOT_OBJECTS = [b"", b"\xff\xfe", b"[]", b"1", b"null", b'"x"', b"{", b"[" * 100_000, b'{"a": ' * 20_000, b"9" * 5000]


def accept_view(content: bytes) -> None:
    view = SessionView.decode(content)
    view.check("c0", scope=SCOPE, min_cohort=2)
    COHORT.upload("c0", view=view)


def accept_request(content: bytes) -> None:
    COHORT.answer("d0", UnmaskRequest.decode(content))


def accept_upload(content: bytes) -> None:
    cohort = Cohort(3, keys=COHORT.keys)
    cohort.collector.add("c0", UPLOADS["c0"].numbers, content)


def accept_answer(content: bytes) -> None:
    cohort = Cohort(3, keys=COHORT.keys)
    for name, upload in UPLOADS.items():
        cohort.collector.add(name, upload.numbers, upload.payload)
    requests = cohort.collector.requests()
    for name in ("d1", "d2"):
        cohort.collector.add_answer(name, cohort.answer(name, requests[name]))
    cohort.collector.add_answer("d0", content)
    if not cohort.collector.is_complete:
        assert "d0" in cohort.collector.unreliable_decryptors or not cohort.collector.culprits()
        raise ProtocolError("the answer was not valid")


COHORT = Cohort(3)
UPLOADS = COHORT.collect(["c0", "c1", "c2"])
REQUESTS = COHORT.collector.requests()
MESSAGES: dict[str, tuple[Callable[[bytes], None], bytes]] = {
    "session": (accept_view, COHORT.session.view_of("c0").encode()),
    "request": (accept_request, REQUESTS["d0"].encode()),
    "upload": (accept_upload, UPLOADS["c0"].payload),
    "answer": (accept_answer, COHORT.answer("d0", REQUESTS["d0"])),
}


@pytest.mark.parametrize("kind", MESSAGES)
def test_the_original_is_accepted(kind: str) -> None:
    accept, content = MESSAGES[kind]
    accept(content)


@pytest.mark.parametrize("kind", MESSAGES)
@pytest.mark.parametrize("content", NOT_OBJECTS, ids=range(len(NOT_OBJECTS)))
def test_content_that_is_not_an_object(kind: str, content: bytes) -> None:
    with pytest.raises(ProtocolError):
        MESSAGES[kind][0](content)


@pytest.mark.parametrize("kind", MESSAGES)
def test_every_field_with_other_values_or_without(kind: str) -> None:
    """All exceptions are ProtocolError; a change that is accepted leaves the meaning as it was."""
    accept, content = MESSAGES[kind]
    fields = json.loads(content)
    for path in _paths(fields):
        for value in [*VALUES, _MISSING]:
            changed = _with(fields, path, value)
            if changed == fields:
                continue
            try:
                accept(json.dumps(changed).encode())
            except ProtocolError:
                continue
            assert _may_be_accepted(kind, path), f"{path} = {value!r} was accepted"


@pytest.mark.parametrize("kind", MESSAGES)
def test_random_damage(kind: str) -> None:
    """Bytes that are changed, removed or inserted at random."""
    accept, content = MESSAGES[kind]
    draw = random.Random(kind)
    for _ in range(150):
        damaged = bytearray(content)
        for _ in range(draw.randint(1, 4)):
            start, end = sorted(draw.randrange(len(damaged) + 1) for _ in range(2))
            damaged[start : min(end, start + draw.choice([0, 1, 1, 50]))] = draw.randbytes(draw.choice([0, 1, 1, 3]))
        try:
            accept(bytes(damaged))
        except ProtocolError:
            continue


_MISSING = object()


def _paths(value: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths to all values, and of long lists to the first two."""
    inner = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    return [*([prefix] if prefix else []), *(path for key, each in inner for path in _paths(each, (*prefix, key)))]


def _with(fields: Any, path: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(fields)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    if value is _MISSING:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return changed


def _may_be_accepted(kind: str, path: tuple[Any, ...]) -> bool:
    """Return whether a changed field leads to a failure elsewhere, not to a refusal here.

    A client cannot check the number, the nonce, the hash of the roster and the names of others: its encrypted shares
    are bound to them. A decryptor answers for a session with another number once; sealed shares of others are their
    fault. A server finds wrong commitments and shares when it unmasks, and needs the answers of three of four.
    """
    free = {
        "session": {"number", "nonce", "roster", "decryptors", "neighbours", "size", "min_cohort", "position"},
        "request": {"number", "roster", "size", "sealed", "session", "included"},
        "upload": {"sealed", "seeds", "shares"},
        "answer": {"pieces", "keys"},
    }
    return path[0] in free[kind]
