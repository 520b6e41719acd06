"""What server and client say to each other, whatever carries it: a text header, and for an upload a vector.

The server hands a client a *ticket* with each instruction; an upload counts if it bears the ticket that the client was
handed last. `applied` is the ticket of the value that is in the sum, and the base of the difference that comes back;
its digest goes with it, because a disk that was set back may have made another value under the same ticket.
"""

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from fedlatest.errors import ProtocolError
from fedlatest.ledger.fixed_point import Vector

Ask = Literal["hello", "train", "rebase"]
Say = Literal["hello", "upload", "goodbye", "declined", "failed", "lost", "ahead"]
LEAVING = "leaving"  # why a client says hello that wants to go
MOST_HEADER = 64 * 1024
_JOB = re.compile(r"[0-9a-f]{32}")
_TOKEN = re.compile(r"[0-9a-f]{1,32}")


class Ticket(NamedTuple):
    """Leave to upload once. Numbers grow; the nonce tells apart two servers that continue from one backup."""

    number: int
    nonce: str


class Epoch(NamedTuple):
    """A stretch of a job in which the sum is kept by differences without a break."""

    number: int
    token: str


@dataclass(frozen=True)
class Instruction:
    """What the server asks of a client."""

    ask: Ask
    job: str
    epoch: Epoch
    config: str  # hash
    layout: str  # hash
    client: str
    round: int = 0
    ticket: Ticket | None = None
    applied: Ticket | None = None
    value: str = ""  # digest of the applied value
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Reply:
    """What a client answers; `vector` is the difference from `base`, or the value itself where there is no base."""

    say: Say
    job: str
    epoch: Epoch
    config: str  # hash
    layout: str  # hash
    client: str
    round: int = 0
    ticket: Ticket | None = None
    base: Ticket | None = None
    held: tuple[Ticket, ...] = ()
    seen: int = 0
    trained: bool = True
    weight: float = 0.0
    checksum: str = ""  # of the vector
    value: str = ""  # digest of the value that the client now keeps
    why: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    vector: Vector | None = None


def encode(message: Instruction | Reply) -> str:
    """The header as text; a reply's vector travels beside it."""
    fields = {f.name: getattr(message, f.name) for f in dataclasses.fields(message) if f.name != "vector"}
    return json.dumps(fields)


def decode_instruction(header: str) -> Instruction:
    """Read an instruction; anything that is not one is refused."""
    values = _read(header, Instruction)
    _check_choice("ask", values["ask"], Ask)
    if (values["ask"] == "hello") != (values["ticket"] is None):
        raise ProtocolError("an instruction bears a ticket unless it is a hello")
    return Instruction(**values)


def decode_reply(header: str, vector: Any = None) -> Reply:
    """Read a reply; anything that is not one is refused. What its vector must be is the ledger's to say."""
    values = _read(header, Reply)
    _check_choice("say", values["say"], Say)
    values["metrics"] = {name: _number(f"metrics.{name}", value) for name, value in values["metrics"].items()}
    return Reply(**values, vector=vector)


def _read(header: str, kind: type[Instruction] | type[Reply]) -> dict[str, Any]:
    if not isinstance(header, str) or len(header) > MOST_HEADER:
        raise ProtocolError(f"the header is not a text of at most {MOST_HEADER} characters")
    try:
        found = json.loads(header)
        json.dumps(found, ensure_ascii=False).encode()  # halves of characters cannot be written anywhere
    except (ValueError, RecursionError):
        raise ProtocolError("the header is not JSON") from None
    known = {f.name: f for f in dataclasses.fields(kind) if f.name != "vector"}
    if not isinstance(found, dict) or set(found) != set(known):
        raise ProtocolError(f"the header is not that of a {kind.__name__.lower()} of this version")
    return {name: _parse(name, known[name].type, value) for name, value in found.items()}


def _parse(name: str, kind: Any, value: Any) -> Any:
    if kind == Epoch:
        return Epoch(*_pair(name, value))
    if kind == Ticket | None:
        return None if value is None else Ticket(*_pair(name, value))
    if kind == tuple[Ticket, ...]:
        if not isinstance(value, list) or len(value) > 8:
            raise ProtocolError(f"{name}: not a list of tickets")
        return tuple(Ticket(*_pair(name, each)) for each in value)
    if kind is float:
        number = _number(name, value)
        if not 0 <= number < math.inf:
            raise ProtocolError(f"{name}={number}: not a finite number from 0 on")
        return number
    if kind is int:
        if not _is_count(value):
            raise ProtocolError(f"{name}={str(value)[:40]}: not a whole number in 0 .. 2^62")
        return value
    plain: Any = {bool: bool}.get(kind, dict if "Mapping" in str(kind) else str)
    if not isinstance(value, plain):
        raise ProtocolError(f"{name}={value!r}: not a {plain.__name__}")
    if name == "job" and not _JOB.fullmatch(value):
        raise ProtocolError(f"job={value!r}: not a job's id")
    return value


def _number(name: str, value: Any) -> float:
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    except OverflowError:
        pass
    raise ProtocolError(f"{name}={str(value)[:40]}: not a number")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62


def _pair(name: str, value: Any) -> tuple[int, str]:
    match value:
        case [number, str(token)] if _is_count(number) and _TOKEN.fullmatch(token):
            return number, token  # a client names files after these
    raise ProtocolError(f"{name}={value!r}: not a number and a token")


def _check_choice(name: str, value: Any, choices: Any) -> None:
    if value not in get_args(choices):
        raise ProtocolError(f"{name}={value!r}: unknown; it is one of {', '.join(get_args(choices))}")
