"""The decryptor's side: reveals shares of the seeds that are needed to unmask one sum, once per session.

For a client that has uploaded, a decryptor reveals its share of the client's own seed. For a client that has not, it
reveals its shares of the seeds that the client shares with those that have. It never reveals both kinds for one client.
The answers can be opened only if enough decryptors were asked for the same clients (`agreement`). So no upload can be
unmasked on its own, whichever clients the server names.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from fedlatest.errors import ProtocolError
from fedlatest.secure.agreement import seal_answer
from fedlatest.secure.masking import share_key
from fedlatest.secure.primitives import KeyPair, decrypt
from fedlatest.secure.session import (
    Session,
    decode_bytes,
    decode_session,
    encode_bytes,
    encode_session,
    read_int,
    read_object,
)
from fedlatest.secure.shamir import SHARE_BYTES

MAX_REMEMBERED = 64  # answered sessions; older ones are refused without looking


@dataclass(frozen=True)
class UnmaskRequest:
    """The server's request to one decryptor.

    Args:
        session: the session.
        included: the positions of the clients whose uploads are in the sum, in ascending order.
        sealed: their shares, encrypted for this decryptor, in the same order.
    """

    session: Session
    included: tuple[int, ...]
    sealed: tuple[bytes, ...]

    def encode(self) -> bytes:
        """Return the request as it is sent."""
        fields = {
            "session": encode_session(self.session),
            "included": list(self.included),
            "sealed": [encode_bytes(each) for each in self.sealed],
        }
        return json.dumps(fields).encode()

    @classmethod
    def decode(cls, content: bytes) -> "UnmaskRequest":
        """Return the request in a message; raise ProtocolError if it is not valid."""
        fields = read_object(content)
        try:
            included = tuple(map(read_int, fields["included"]))
            sealed = tuple(map(decode_bytes, fields["sealed"]))
        except (KeyError, TypeError, ValueError):
            raise ProtocolError("the request to unmask is not valid") from None
        session = fields.get("session")
        if not isinstance(session, dict) or len(sealed) != len(included):
            raise ProtocolError("the request to unmask is not valid")
        return cls(decode_session(session), included, sealed)

    @property
    def digest(self) -> str:
        """A hash of the whole request: a decryptor answers the same request again, and no other of its session."""
        return hashlib.sha256(self.encode()).hexdigest()

    @property
    def statement(self) -> bytes:
        """A hash of what all decryptors of the session must be asked in the same way."""
        return hashlib.sha256(self.session.hash + json.dumps(self.included).encode()).digest()


@dataclass(frozen=True)
class AnsweredSessions:
    """Which sessions a decryptor has answered; it must be durable before the answer is sent.

    Args:
        digests: the digests of the requests, by the number of the session; the newest `MAX_REMEMBERED`.
        floor: sessions up to this number are refused, because they are no longer in `digests`.
    """

    digests: Mapping[int, str] = field(default_factory=dict)
    floor: int = 0

    @property
    def highest(self) -> int:
        """The highest number of a session that was answered."""
        return max(self.digests, default=self.floor)

    def add(self, request: UnmaskRequest) -> "AnsweredSessions":
        """Return the record with one more request.

        Raises:
            ProtocolError: another request of this session, or of a session too long ago, was answered.
        """
        number, digest = request.session.number, request.digest
        known = self.digests.get(number)
        if known == digest:
            return self
        if known is not None or number <= self.floor:
            raise ProtocolError(f"another request for session {number} was answered")
        digests = {**self.digests, number: digest}
        kept = sorted(digests)[-MAX_REMEMBERED:]
        floor = max([self.floor, *(each for each in digests if each < kept[0])])
        return AnsweredSessions({each: digests[each] for each in kept}, floor)


def answer_request(request: UnmaskRequest, client: str, keys: KeyPair, *, scope: str, min_cohort: int) -> bytes:
    """Return the shares that a decryptor reveals, as JSON; the server can open it with the answers of the others.

    The caller has recorded the request durably (`AnsweredSessions`), so that no other one of this session is answered.

    Args:
        request: the request.
        client: the decryptor's id.
        keys: the decryptor's key pair.
        scope: the job and the epoch of the instruction.
        min_cohort: the smallest number of uploads that the decryptor helps to unmask.

    Raises:
        ProtocolError: the request must not be answered.
    """
    check_request(request, client, keys, scope=scope, min_cohort=min_cohort)
    revealed = [_shares(request, index, client, keys) for index in range(len(request.included))]
    content = json.dumps({"shares": [encode_bytes(each) for each in revealed]}).encode()
    session = request.session
    return seal_answer(
        content, request.statement, client, keys, decryptors=session.decryptors, threshold=session.threshold
    ).encode()


def check_request(request: UnmaskRequest, client: str, keys: KeyPair, *, scope: str, min_cohort: int) -> None:
    """Raise ProtocolError if a request must not be answered; for the arguments see `answer_request`."""
    session = request.session
    if session.scope != scope:
        raise ProtocolError("the session belongs to another job or epoch")
    if session.min_cohort < min_cohort:
        raise ProtocolError(f"the session allows {session.min_cohort} uploads; the job's minimum is {min_cohort}")
    session.check()
    session.check_included(request.included)
    if (client, keys.public) not in session.decryptors:
        raise ProtocolError("this client, with its present key, is not a decryptor of the session")


def revealed_positions(session: Session, position: int, included: frozenset[int]) -> list[int]:
    """Return which of the shares of a client that has uploaded are revealed.

    0 is its own seed, and 1 + k is the seed that it shares with its k-th neighbour.
    """
    others = session.neighbours(position)
    return [0, *(1 + index for index, other in enumerate(others) if other not in included)]


def _shares(request: UnmaskRequest, index: int, client: str, keys: KeyPair) -> bytes:
    """Return the shares to reveal of one client; nothing if they cannot be decrypted, which is the sender's fault."""
    session, position = request.session, request.included[index]
    sender = session.roster[position]
    try:
        key = share_key(session.hash, keys, sender.public_key, sender=sender.id, receiver=client)
        bundle = decrypt(key, request.sealed[index], session.context_of(position))
    except ProtocolError:
        return b""
    revealed = revealed_positions(session, position, frozenset(request.included))
    if len(bundle) != SHARE_BYTES * (1 + len(session.neighbours(position))):
        return b""
    return b"".join(bundle[SHARE_BYTES * each : SHARE_BYTES * (each + 1)] for each in revealed)
