"""A session: which clients upload together, which of them share masks, and which clients help to remove the masks.

The cohort is arranged in a ring, in the order of a hash of each client's id with the session's nonce. A client shares
masks with the `degree` clients nearest to it in the ring; in a small cohort, with all others.

The hash of the session goes into every derived key and every encrypted share. A client sees only its neighbours, so
their names and keys go into its encrypted shares too. So the server cannot describe the session to a client in one way
and to a decryptor in another: the shares of the client cannot be decrypted then.
"""

import base64
import hashlib
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from fedlatest.errors import ProtocolError
from fedlatest.secure.primitives import KEY_BYTES

STATISTICAL_SECURITY = 40  # bits
MIN_COHORT, MIN_DECRYPTORS = 2, 3
MAX_CLIENTS = 2**20  # so that sums of 2^31 units fit in 63 bits


class Participant(NamedTuple):
    """A client of a session."""

    id: str
    public_key: bytes


@dataclass(frozen=True)
class Session:
    """A session, as the server and the decryptors know it.

    Args:
        scope: the job and its epoch.
        number: increases with every session of a job.
        nonce: random; distinguishes the sessions of two servers that continue from the same backup.
        min_cohort: the smallest number of uploads whose sum may be unmasked.
        threshold: number of decryptors whose shares are needed.
        roster: the cohort, in the order of the ring.
        decryptors: the clients that hold shares.
    """

    scope: str
    number: int
    nonce: str
    min_cohort: int
    threshold: int
    roster: tuple[Participant, ...]
    decryptors: tuple[Participant, ...]

    @cached_property
    def hash(self) -> bytes:
        """The hash that binds everything that the participants must agree on."""
        return _session_hash(self, len(self.roster), _roster_hash(self.roster))

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """The positions of the clients in the ring, by their ids."""
        return {participant.id: position for position, participant in enumerate(self.roster)}

    def neighbours(self, position: int) -> tuple[int, ...]:
        """Return the positions of the clients with which a client shares masks, in ascending order."""
        return neighbours(position, len(self.roster))

    def context_of(self, position: int) -> bytes:
        """Return what the encrypted shares of a client are bound to: the session and the client's neighbours."""
        return _context(self.hash, position, {other: self.roster[other] for other in self.neighbours(position)})

    def view_of(self, client: str) -> "SessionView":
        """Return what one client of the cohort is told."""
        position = self.positions[client]
        others = {other: self.roster[other] for other in self.neighbours(position)}
        rest = (len(self.roster), _roster_hash(self.roster), position, self.roster[position].public_key, others)
        return SessionView(self.scope, self.number, self.nonce, self.min_cohort, self.threshold, self.decryptors, *rest)

    def check(self) -> None:
        """Raise ProtocolError unless the session is well formed, as a decryptor must check before it answers."""
        _check_decryptors(self.decryptors, self.threshold)
        if len(self.positions) != len(self.roster) or list(self.roster) != _ring_order(self.roster, self.nonce):
            raise ProtocolError("the cohort is not in the order of its ring, or has a client twice")
        _check_size(len(self.roster), self.min_cohort)

    def check_included(self, included: Sequence[int]) -> None:
        """Raise ProtocolError if the sum over the clients at these positions must not be unmasked.

        They must be at least `min_cohort`, and connected by masks: otherwise the server would learn the sum over each
        connected part.
        """
        if list(included) != sorted(set(included)) or not all(0 <= each < len(self.roster) for each in included):
            raise ProtocolError("the clients to include are not distinct positions in ascending order")
        if len(included) < self.min_cohort:
            raise ProtocolError(f"{len(included)} uploads are too few to unmask: the minimum is {self.min_cohort}")
        if not self._is_connected(set(included)):
            raise ProtocolError("the uploads are not connected by masks")

    def _is_connected(self, included: set[int]) -> bool:
        waiting = [min(included)]
        reached = set(waiting)
        while waiting:
            found = (set(self.neighbours(waiting.pop())) & included) - reached
            reached |= found
            waiting += found
        return reached == included


@dataclass(frozen=True)
class SessionView:
    """A session, as a client of the cohort knows it: only its neighbours, and a hash of the rest.

    Args:
        scope: the job and its epoch.
        number: the number of the session.
        nonce: the nonce of the session.
        min_cohort: the smallest number of uploads whose sum may be unmasked.
        threshold: number of decryptors whose shares are needed.
        decryptors: the clients that hold shares.
        num_clients: the size of the cohort.
        roster_hash: the hash of the cohort.
        position: the client's own position in the ring.
        public_key: the client's own key, as the server and the decryptors know it.
        neighbours: the clients with which it shares masks, by position.
    """

    scope: str
    number: int
    nonce: str
    min_cohort: int
    threshold: int
    decryptors: tuple[Participant, ...]
    num_clients: int
    roster_hash: str
    position: int
    public_key: bytes
    neighbours: Mapping[int, Participant]

    @cached_property
    def hash(self) -> bytes:
        """The hash of the session; equal to the server's if the view is."""
        return _session_hash(self, self.num_clients, self.roster_hash)

    @property
    def context(self) -> bytes:
        """What the encrypted shares of the client are bound to; equal to the decryptor's if the view is."""
        return _context(self.hash, self.position, self.neighbours)

    def check(self, client: str, *, scope: str, min_cohort: int) -> None:
        """Raise ProtocolError if a client must not upload in this session.

        Args:
            client: its id.
            scope: the job and the epoch of the instruction.
            min_cohort: the minimum that the client accepts.
        """
        if self.scope != scope:
            raise ProtocolError("the session belongs to another job or epoch")
        if self.min_cohort < min_cohort:
            raise ProtocolError(f"the session allows {self.min_cohort} uploads; the job's minimum is {min_cohort}")
        _check_size(self.num_clients, self.min_cohort)
        _check_decryptors(self.decryptors, self.threshold)
        names = {client, *(neighbour.id for neighbour in self.neighbours.values())}
        expected = neighbours(self.position, self.num_clients) if self.position < self.num_clients else ()
        if tuple(sorted(self.neighbours)) != expected or len(names) != len(expected) + 1:
            raise ProtocolError("the neighbours in the session are not those of the client's position")

    def encode(self) -> bytes:
        """Return the view as it is sent to the client."""
        others = [[position, *_as_text(each)] for position, each in sorted(self.neighbours.items())]
        own = {"position": self.position, "key": self.public_key.hex(), "neighbours": others}
        return json.dumps({**_core(self, self.num_clients, self.roster_hash), **own}).encode()

    @classmethod
    def decode(cls, content: bytes) -> "SessionView":
        """Return the view in a message; raise ProtocolError if it is not valid."""
        fields = read_object(content)
        try:
            others = {read_int(place): read_participant(rest) for place, *rest in fields["neighbours"]}
            own = (read_int(fields["position"]), read_key(fields["key"]), others)
            return cls(*read_core(fields), read_int(fields["size"]), read_text(fields["roster"]), *own)
        except (KeyError, TypeError, ValueError):
            raise ProtocolError("the session in the message is not valid") from None


def make_session(
    participants: Collection[Participant],
    decryptors: Sequence[Participant],
    *,
    scope: str,
    number: int,
    nonce: str,
    min_cohort: int,
) -> Session:
    """Return a new session.

    Args:
        participants: the cohort.
        decryptors: the clients that hold shares.
        scope: the job and its epoch.
        number: must be above that of every earlier session of the job.
        nonce: random hexadecimal digits.
        min_cohort: the smallest number of uploads whose sum may be unmasked.
    """
    roster = tuple(_ring_order(participants, nonce))
    return Session(scope, number, nonce, min_cohort, threshold_of(len(decryptors)), roster, tuple(decryptors))


def threshold_of(num_decryptors: int) -> int:
    """Return the number of shares that are needed: more than two thirds.

    Two different requests for one session could both be answered only if more than a third of the decryptors answered
    both. Honest decryptors answer one.

    >>> [threshold_of(number) for number in (3, 4, 5, 10)]
    [3, 3, 4, 7]
    """
    return 2 * num_decryptors // 3 + 1


def degree_of(num_clients: int) -> int:
    """Return the number of neighbours of a client.

    If half of the clients, chosen at random, drop out or work together against the others, the rest of the ring stays
    connected unless degree / 2 clients in a row are among them. The probability of that is at most
    num_clients * 2^(-degree / 2), and the degree makes it at most 2^-40.

    >>> [degree_of(number) for number in (2, 10, 93, 94, 1000)]
    [1, 9, 92, 93, 100]
    """
    half = math.ceil(STATISTICAL_SECURITY + math.log2(max(num_clients, 1)))
    return min(num_clients - 1, 2 * half)


def neighbours(position: int, num_clients: int) -> tuple[int, ...]:
    """Return the positions of the neighbours of a position in the ring, in ascending order."""
    degree = degree_of(num_clients)
    if degree == num_clients - 1:
        return tuple(other for other in range(num_clients) if other != position)
    near = (*range(-(degree // 2), 0), *range(1, degree // 2 + 1))
    return tuple(sorted((position + step) % num_clients for step in near))


# Encoding of messages: JSON, with keys in hexadecimal and other bytes in base 64.


def encode_bytes(content: bytes) -> str:
    """Return bytes as text."""
    return base64.b64encode(content).decode()


def decode_bytes(text: Any) -> bytes:
    """Return the bytes in a text; raise ValueError or TypeError if it is not valid."""
    return base64.b64decode(read_text(text), validate=True)


def read_object(content: bytes) -> dict[str, Any]:
    """Return the JSON object in a message; raise ProtocolError if there is none."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ProtocolError("the content of the message is not a JSON object")
    return found


def read_int(value: Any) -> int:
    """Return a number that is a JSON integer of at least 0; raise TypeError otherwise."""
    if type(value) is not int or not 0 <= value < 2**62:
        raise TypeError
    return value


def read_list(value: Any) -> list[Any]:
    """Return a value that is a JSON array; raise TypeError otherwise."""
    if type(value) is not list:
        raise TypeError
    return value


def read_text(value: Any) -> str:
    """Return a value that is a JSON string; raise TypeError otherwise, or ValueError if it has unpaired surrogates."""
    if type(value) is not str:
        raise TypeError
    value.encode()
    return value


def read_participant(value: Any) -> Participant:
    """Return a participant from its id and the text of its key; raise ValueError or TypeError if they are not valid."""
    name, key = value
    return Participant(read_text(name), read_key(key))


def read_key(value: Any) -> bytes:
    """Return a public key from its text; raise ValueError or TypeError if it is not valid."""
    public_key = bytes.fromhex(read_text(value))
    if len(public_key) != KEY_BYTES:
        raise ValueError("the key has another length")
    return public_key


def read_core(fields: Mapping[str, Any]) -> tuple[str, int, str, int, int, tuple[Participant, ...]]:
    """Return the fields that a `Session` and a `SessionView` have in common."""
    number, min_cohort, threshold = (read_int(fields[name]) for name in ("number", "min_cohort", "threshold"))
    scope, nonce = (read_text(fields[name]) for name in ("scope", "nonce"))
    return scope, number, nonce, min_cohort, threshold, tuple(map(read_participant, fields["decryptors"]))


def encode_session(session: Session) -> dict[str, Any]:
    """Return a session as plain values for JSON."""
    core = _core(session, len(session.roster), _roster_hash(session.roster))
    return {**core, "clients": [_as_text(each) for each in session.roster]}


def decode_session(fields: Mapping[str, Any]) -> Session:
    """Return the session of `encode_session`; raise ProtocolError if it is not valid."""
    try:
        scope, number, nonce, min_cohort, threshold, decryptors = read_core(fields)
        roster = tuple(map(read_participant, fields["clients"]))
        return Session(scope, number, nonce, min_cohort, threshold, roster, decryptors)
    except (KeyError, TypeError, ValueError):
        raise ProtocolError("the session in the message is not valid") from None


def _core(session: Session | SessionView, num_clients: int, roster_hash: str) -> dict[str, Any]:
    """Return what all participants of a session know and must agree on."""
    return {
        "scope": session.scope,
        "number": session.number,
        "nonce": session.nonce,
        "min_cohort": session.min_cohort,
        "threshold": session.threshold,
        "size": num_clients,
        "roster": roster_hash,
        "decryptors": [_as_text(each) for each in session.decryptors],
    }


def _session_hash(session: Session | SessionView, num_clients: int, roster_hash: str) -> bytes:
    core = json.dumps(_core(session, num_clients, roster_hash), sort_keys=True)
    return hashlib.sha256(core.encode()).digest()


def _roster_hash(roster: Sequence[Participant]) -> str:
    return hashlib.sha256(json.dumps([_as_text(each) for each in roster]).encode()).hexdigest()


def _context(session_hash: bytes, position: int, others: Mapping[int, Participant]) -> bytes:
    listed = [position, *([other, *_as_text(each)] for other, each in sorted(others.items()))]
    return session_hash + hashlib.sha256(json.dumps(listed).encode()).digest()


def _as_text(participant: Participant) -> list[str]:
    return [participant.id, participant.public_key.hex()]


def _ring_order(participants: Collection[Participant], nonce: str) -> list[Participant]:
    return sorted(participants, key=lambda each: hashlib.sha256(f"{nonce} {each.id}".encode()).digest())


def _check_decryptors(decryptors: Sequence[Participant], threshold: int) -> None:
    if len({each.id for each in decryptors}) != len(decryptors) or len(decryptors) < MIN_DECRYPTORS:
        raise ProtocolError(f"the session has {len(decryptors)} decryptors; at least {MIN_DECRYPTORS} are required")
    if threshold != threshold_of(len(decryptors)):
        raise ProtocolError(f"the threshold is {threshold}; for {len(decryptors)} decryptors it must be more than 2/3")


def _check_size(num_clients: int, min_cohort: int) -> None:
    if not MIN_COHORT <= min_cohort <= num_clients <= MAX_CLIENTS:
        raise ProtocolError(f"the cohort has {num_clients} clients and the minimum is {min_cohort}: not allowed")
