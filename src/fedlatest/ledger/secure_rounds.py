"""Secure aggregation in the ledger: sessions with durable numbers.

A session is atomic. Its uploads count in the open round all together, when their sum is unmasked, or not at all. It
exists in memory only: after a crash nothing of it counts, and each client still has the update that is in the sum.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from fedlatest.errors import ProtocolError
from fedlatest.ledger.checks import check_public_key
from fedlatest.ledger.client_table import MAX_BACKOFF
from fedlatest.ledger.cohort_choice import MAX_REST, RestingClients
from fedlatest.ledger.messages import Instruction, Reply
from fedlatest.ledger.secure_settings import scope_of

if TYPE_CHECKING:
    from fedlatest.ledger.ledger import Ledger
    from fedlatest.ledger.secure_session import SecureSession

# `fedlatest.ledger.secure_session` is imported where it is needed: it needs the library `cryptography`.
MAX_SESSIONS_AHEAD = 1_000_000  # a client that reports a session further ahead is not believed


class SessionEnd(NamedTuple):
    """How a secure session ended: either all its uploads count in the open round, or none does."""

    replies: Mapping[str, Reply]
    """The replies that count, by client; empty if the sum could not be unmasked."""
    why: str = ""
    """Why it could not be unmasked."""
    at_fault: Sequence[str] = ()
    """The clients that prevented it or may have; they rest for some rounds, unless others are too few."""


class SecureRounds:
    """The secure sessions of a job, one at a time.

    Args:
        ledger: the ledger of the job.
    """

    def __init__(self, ledger: "Ledger") -> None:
        assert ledger.config.secure is not None
        self._ledger, self._settings = ledger, ledger.config.secure
        [(self._number,)] = ledger.database.rows("SELECT session FROM state")
        self.draw: random.Random = random.SystemRandom()
        self.suspects = RestingClients(MAX_REST)  # clients that may have spoiled a session
        self.silent_decryptors = RestingClients(MAX_BACKOFF)  # that did not answer
        self.reset()

    def reset(self) -> None:
        """Forget the open session."""
        self.session: SecureSession | None = None

    def has_uploaded(self, client: str) -> bool:
        """Return whether the open session has an upload of a client."""
        return self.session is not None and client in self.session.replies

    def open(self, cohort: Sequence[str], *, decryptors: Sequence[str]) -> dict[str, Instruction]:
        """Open a session and return the instructions by client; its number and the tickets are durable.

        If a session is open, it ends, and its uploads do not count.

        Args:
            cohort: the clients that are asked to train.
            decryptors: clients that are available and will be asked to help to unmask the sum.

        Raises:
            ProtocolError: there are too few of them.
        """
        from fedlatest.ledger.secure_session import open_session

        ledger = self._ledger
        self.session = None
        training, helping = (
            [row for row in map(ledger.table.get, clients) if row is not None and row.public_key]
            for clients in (cohort, decryptors)
        )
        training = [row for row in training if ledger.may_take_part(row)]
        session = open_session(
            training,
            helping,
            scope=scope_of(ledger.job, ledger.epoch),
            number=self._number + 1,
            nonce=ledger.new_token(),
            min_cohort=self._settings["min_cohort"],
            size=ledger.layout.size,
        )
        with ledger.batch():
            self._write_number(session.number)
            instructions = ledger.issue([row.id for row in training])
        self._number, self.session = session.number, session
        return {
            client: replace(instruction, payload=session.payload_of(client))
            for client, instruction in instructions.items()
        }

    def collect(self, reply: Reply) -> None:
        """Add a masked upload to the open session; raise ProtocolError if it is not valid or too late."""
        if self.session is None:
            raise ProtocolError("the session of the upload has ended")
        self.session.add(reply)

    def requests(self) -> dict[str, Instruction]:
        """Return the instructions for the decryptors of the open session, by client; it accepts no uploads any more.

        Raises:
            ProtocolError: the sum must not be unmasked, for example because there are too few uploads.
        """
        assert self.session is not None
        return {
            client: self._ledger.instruction(client, "unmask", payload=request.encode())
            for client, request in self.session.requests().items()
        }

    def add_shares(self, reply: Reply) -> None:
        """Add the shares that a decryptor reveals; raise ProtocolError if some of them are not valid."""
        if self.session is None:
            raise ProtocolError("the session has ended")
        self.session.add_shares(reply)

    def end(self) -> SessionEnd:
        """End the open session: its uploads count in the open round if their sum can be unmasked now.

        They become durable with `Ledger.close_round`, in one transaction. If the sum cannot be unmasked, nothing
        counts.
        """
        from fedlatest.ledger.secure_session import clients_at_fault

        session, self.session = self.session, None
        assert session is not None
        if not session.is_complete:
            why = "too few decryptors answered" if session.requested else "too few clients uploaded"
            return self._failed(why, session.culprits())
        try:
            upload = session.unmask()
        except ProtocolError as error:
            return self._failed(str(error), clients_at_fault(error) or self._unproven(session.replies))
        self.suspects.clear(session.replies)
        self._ledger.accept_sum(upload, session.replies)
        return SessionEnd(session.replies)

    def note_facts(self, reply: Reply) -> bool:
        """Record the key that a client reports, and return whether it is a new one.

        Continue with a higher number if the client has answered a session that this ledger does not know. That happens
        after a restore: a decryptor would refuse a second session of the same number.

        Raises:
            ProtocolError: the key cannot be used by others.
        """
        client, table = self._ledger.table.get(reply.client), self._ledger.table
        is_new = client is not None and reply.public_key not in ("", client.public_key)
        if is_new:
            self.check_public_key(reply.public_key)
            with self._ledger.batch():
                table.set_public_key(reply.client, reply.public_key)
        if self._number < reply.highest_session <= self._number + MAX_SESSIONS_AHEAD:
            with self._ledger.batch():
                self._write_number(reply.highest_session)
            self._number = reply.highest_session
        return is_new

    def check_public_key(self, public_key: str) -> None:
        """Raise ProtocolError unless the public key of a client, in hexadecimal digits, can be used by others."""
        from fedlatest.secure.primitives import check_public_key as check_usable

        check_public_key(public_key)
        check_usable(bytes.fromhex(public_key))

    def _write_number(self, number: int) -> None:
        self._ledger.database.execute("UPDATE state SET session = ?", number)

    def _failed(self, why: str, at_fault: Sequence[str]) -> SessionEnd:
        self.suspects.add(at_fault, self._ledger.round)
        return SessionEnd({}, why, at_fault)

    def _unproven(self, clients: Iterable[str]) -> list[str]:
        """Return which clients may have spoiled a session: those whose uploads have never counted, or all."""
        rows = [row for row in map(self._ledger.table.get, clients) if row is not None]
        unproven = [row.id for row in rows if not row.has_contributed or row.id in self.suspects]
        return unproven or [row.id for row in rows]
