"""The messages between server and client: a JSON header, and beside it an array and bytes, for any transport.

The server issues a *ticket* with each instruction. An upload is accepted only if it carries the ticket that was
issued to its client last. `Instruction.applied` is the ticket of the update that is in the sum: the client subtracts
that update from its new one. The digest of the update is sent too, because a client whose disk was restored from a
copy can have computed another update under the same ticket.

The keys of the header are part of the protocol. They are the names of the fields, except where a field names another
key. An optional one is left out if its value is None, as clients of earlier versions do.

Beside the header, each message has the number of its protocol, which increases with every change of the messages or of
what they mean. It is checked before the header is parsed.
"""

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args, get_origin

import numpy.typing as npt

from fedlatest.errors import ProtocolError

InstructionKind = Literal["hello", "train", "rebase", "unmask"]
ReplyKind = Literal["hello", "upload", "goodbye", "declined", "failed", "lost", "ahead", "unmasked"]
LEAVING = "leaving"  # value of `why` in the hello of a client that wants to leave
PROTOCOL_VERSION, OLDEST_PROTOCOL = 2, 1  # of this version, and the oldest one that it understands
OLDEST_SECURE_PROTOCOL = 2  # likewise in secure jobs: with protocol 1, weights were masked, and goodbyes were uploads
MAX_HEADER = 64 * 1024
_JOB = re.compile(r"[0-9a-f]{32}")
_TOKEN = re.compile(r"[0-9a-f]{1,32}")


class Ticket(NamedTuple):
    """Permission to upload once.

    A client's numbers increase. The nonce distinguishes the tickets of two servers that continue from the same backup.
    """

    number: int
    nonce: str


class Epoch(NamedTuple):
    """A period of a job in which the sum changes by differences only; a new epoch starts from an empty sum."""

    number: int
    token: str


@dataclass(frozen=True)
class Instruction:
    """A message from the server to a client.

    Args:
        kind: "hello", report your state; "train", train and upload; "rebase", upload the stored update of the previous
            epoch again; "unmask", reveal shares of the masks of a secure cohort, as its decryptor.
        job: id of the job.
        epoch: current epoch of the job.
        config: hash of the job's configuration.
        layout: hash of the model's layout.
        client: id of the client.
        round: number of the round.
        ticket: the ticket to upload under; None for a hello and an unmask.
        applied: the ticket of the client's update that is in the sum; None if there is none.
        applied_digest: the digest of that update.
        settings: the job's configuration and the `size` of an update.
        payload: for secure aggregation, the session or the request to unmask; sent beside the header.
        protocol: number of the server's protocol; sent beside the header.
    """

    kind: InstructionKind = field(metadata={"key": "ask"})
    job: str
    epoch: Epoch
    config: str
    layout: str
    client: str
    round: int = 0
    ticket: Ticket | None = None
    applied: Ticket | None = None
    applied_digest: str = field(default="", metadata={"key": "value"})
    settings: Mapping[str, Any] = field(default_factory=dict)
    payload: bytes = b""
    protocol: int = PROTOCOL_VERSION


@dataclass(frozen=True, eq=False)
class Reply:
    """A message from a client to the server.

    Args:
        kind: "hello", the client's state; "upload", an update; "goodbye", an upload that removes the client's update
            from the sum; "declined", the client cannot train now; "failed", an error; "lost", the update in the sum
            is no longer on the client's disk; "ahead", the client has seen a newer ticket or epoch than the
            instruction's; "unmasked", shares of the masks of a secure cohort.
        job: id of the job.
        epoch: the epoch of the client's stored state.
        config: hash of the job's configuration.
        layout: hash of the model's layout.
        client: id of the client.
        round: round of the instruction.
        ticket: ticket of the instruction.
        base: the ticket of the update that was subtracted; None if the upload is the whole update.
        held_tickets: the tickets of the updates on the client's disk.
        highest_ticket: the highest ticket number that the client has seen in its epoch.
        trained: whether the client trained for this upload.
        weight: number of samples; 0 if not known yet.
        checksum: checksum of the upload.
        update_digest: digest of the whole update, which is now on the client's disk.
        why: explanation for people; `LEAVING` in the hello of a client that wants to leave.
        metrics: results of the training function.
        training_seconds: how long the client trained, as it has measured; None if it did not, or does not send it.
        public_key: for secure aggregation, the client's public key, in hexadecimal digits.
        highest_session: the highest secure session that the client has answered as a decryptor.
        upload: the update minus the update under `base`, masked in a secure job; sent beside the header.
        payload: for secure aggregation, encrypted shares and commitments, or revealed shares; sent beside the header.
        protocol: number of the client's protocol; sent beside the header.
    """

    kind: ReplyKind = field(metadata={"key": "say"})
    job: str
    epoch: Epoch
    config: str
    layout: str
    client: str
    round: int = 0
    ticket: Ticket | None = None
    base: Ticket | None = None
    held_tickets: tuple[Ticket, ...] = field(default=(), metadata={"key": "held"})
    highest_ticket: int = field(default=0, metadata={"key": "seen"})
    trained: bool = True
    weight: float = 0.0
    checksum: str = ""
    update_digest: str = field(default="", metadata={"key": "value"})
    why: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    training_seconds: float | None = field(default=None, metadata={"key": "seconds", "optional": True})
    public_key: str = ""
    highest_session: int = field(default=0, metadata={"key": "session"})
    upload: npt.NDArray[Any] | None = None  # int32; uint64 if masked
    payload: bytes = b""
    protocol: int = PROTOCOL_VERSION


def encode(message: Instruction | Reply) -> str:
    """Return the header of a message as JSON; the upload and the payload are sent beside it."""
    values = {key: getattr(message, f.name) for key, f in _HEADER_FIELDS[type(message)].items()}
    optional = _OPTIONAL_KEYS[type(message)]
    return json.dumps({key: value for key, value in values.items() if value is not None or key not in optional})


def check_protocol(protocol: Any, *, sender: str, receiver: str, is_secure: bool = False) -> None:
    """Raise ProtocolError, which says which side to upgrade, unless this version understands a protocol."""
    oldest = OLDEST_SECURE_PROTOCOL if is_secure else OLDEST_PROTOCOL
    if not _is_count(protocol) or not oldest <= protocol <= PROTOCOL_VERSION:
        older = sender if _is_count(protocol) and protocol < oldest else receiver
        job = " in a secure job" if is_secure else ""
        raise ProtocolError(
            f"the {sender} has protocol {str(protocol)[:20]}, the {receiver} understands {oldest} to "
            f"{PROTOCOL_VERSION}{job}: upgrade fedlatest at the {older}"
        )


def decode_instruction(header: str, payload: bytes = b"", protocol: Any = PROTOCOL_VERSION) -> Instruction:
    """Parse the header of an instruction; raise ProtocolError if it is not valid."""
    check_protocol(protocol, sender="server", receiver="client")
    values = _decode(header, Instruction)
    _check_choice("ask", values["kind"], InstructionKind)
    if (values["kind"] in ("hello", "unmask")) != (values["ticket"] is None):
        raise ProtocolError("an instruction must have a ticket, except a hello or an unmask, which must not")
    return Instruction(**values, payload=payload, protocol=protocol)


def decode_reply(header: str, upload: Any = None, payload: bytes = b"", protocol: Any = PROTOCOL_VERSION) -> Reply:
    """Parse the header of a reply; raise ProtocolError if it is not valid. The ledger checks the upload itself."""
    check_protocol(protocol, sender="client", receiver="server")
    values = _decode(header, Reply)
    _check_choice("say", values["kind"], ReplyKind)
    values["metrics"] = {name: _number(f"metrics.{name}", value) for name, value in values["metrics"].items()}
    return Reply(**values, upload=upload, payload=payload, protocol=protocol)


_BESIDE_THE_HEADER = ("upload", "payload", "protocol")
# The fields that are in the header of each kind of message, by their keys.
_HEADER_FIELDS: dict[type, dict[str, dataclasses.Field[Any]]] = {
    kind: {f.metadata.get("key", f.name): f for f in dataclasses.fields(kind) if f.name not in _BESIDE_THE_HEADER}
    for kind in (Instruction, Reply)
}
_OPTIONAL_KEYS = {
    kind: {key for key, f in fields.items() if f.metadata.get("optional")} for kind, fields in _HEADER_FIELDS.items()
}


def _decode(header: str, kind: type[Instruction] | type[Reply]) -> dict[str, Any]:
    if not isinstance(header, str) or len(header) > MAX_HEADER:
        raise ProtocolError(f"the header must be a text of at most {MAX_HEADER} characters")
    try:
        found = json.loads(header)
        if "\\u" in header or not header.isascii():
            json.dumps(found, ensure_ascii=False).encode()  # raises on unpaired surrogates, which cannot be stored
    except (ValueError, RecursionError):
        raise ProtocolError("the header is not JSON") from None
    fields = _HEADER_FIELDS[kind]
    if not isinstance(found, dict) or set(found) | _OPTIONAL_KEYS[kind] != set(fields):
        raise ProtocolError(
            f"the header does not have the keys of a {kind.__name__.lower()} of protocol {PROTOCOL_VERSION}: upgrade "
            "fedlatest at both sides"
        )
    return {fields[key].name: _parse(key, fields[key].type, value) for key, value in found.items()}


def _parse(key: str, kind: Any, value: Any) -> Any:
    if kind == Epoch:
        return Epoch(*_pair(key, value))
    if kind == Ticket | None:
        return None if value is None else Ticket(*_pair(key, value))
    if kind == tuple[Ticket, ...]:
        if not isinstance(value, list) or len(value) > 8:
            raise ProtocolError(f"{key}: must be a list of at most 8 tickets")
        return tuple(Ticket(*_pair(key, each)) for each in value)
    if kind is float or kind == float | None:
        number = _number(key, value)
        if not 0 <= number < math.inf:
            raise ProtocolError(f"{key}={number}: must be finite and at least 0")
        return number
    if kind is int:
        if not _is_count(value):
            raise ProtocolError(f"{key}={str(value)[:40]}: must be an integer in 0 .. 2^62 - 1")
        return value
    plain: Any = str if kind is str or get_origin(kind) is Literal else bool if kind is bool else dict
    if not isinstance(value, plain):
        raise ProtocolError(f"{key}={value!r}: must be of type {plain.__name__}")
    if key == "job" and not _JOB.fullmatch(value):
        raise ProtocolError(f"job={value!r}: must be 32 hexadecimal digits")
    return value


def _number(key: str, value: Any) -> float:
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    except OverflowError:
        pass
    raise ProtocolError(f"{key}={str(value)[:40]}: must be a number")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62


def _pair(key: str, value: Any) -> tuple[int, str]:
    match value:
        case [number, str(token)] if _is_count(number) and _TOKEN.fullmatch(token):
            return number, token  # both become part of file names at the client, so they are checked strictly
    raise ProtocolError(f"{key}={value!r}: must be an integer and a token of 1 to 32 hexadecimal digits")


def _check_choice(key: str, value: Any, choices: Any) -> None:
    if value not in get_args(choices):
        raise ProtocolError(f"{key}={value!r}: must be one of {', '.join(get_args(choices))}")
