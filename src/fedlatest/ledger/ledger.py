"""The server's side of the protocol: which updates are in the sum, under which tickets, and one transaction per round.

Invariant, within an epoch and after every transaction, exact in integers:

    sum = sum over clients of the update under their applied ticket

- A ticket is durable before it is sent. A reply is accepted only under the ticket issued to its client last, and only
  if it starts from the update that is in the sum. Every other reply is rejected and changes nothing.
- Model, sum, tickets and round change in one transaction (`Ledger.close_round`): a crash leaves all of a round or
  nothing.
- The server that opened the ledger last owns it: the writes of every other server fail.

How it is tested: `tests/ledger/test_histories.py` runs random histories of lost, delayed and repeated messages,
crashes at any write, lost and restored disks and restored ledgers, and compares the sum with an independent record
after every step.
"""

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.errors import LedgerError, ProtocolError
from fedlatest.ledger.checks import (
    check_hello,
    check_job,
    check_ticket,
    check_upload,
    find_inconsistency,
    highest_ticket,
    lacks_base,
)
from fedlatest.ledger.database import ClientRow, ClientTable, Database, create_job, read_job
from fedlatest.ledger.fixed_point import SUM_DTYPE, FixedPoint, FixedPointSum
from fedlatest.ledger.hashing import add_in_place
from fedlatest.ledger.job_config import Arrays, JobConfig, Layout
from fedlatest.ledger.messages import LEAVING, Epoch, Instruction, InstructionKind, Reply, Ticket

Outcome = Literal["accepted", "left", "declined", "failed", "lost", "restored", "refused", "hello", "joined"]

MAX_EPOCHS_AHEAD = 10_000  # a client that reports an epoch further ahead is not believed


class Verdict(NamedTuple):
    """The ledger's decision on a reply.

    Outcomes: "accepted", the upload counts in the open round; "left", the client leaves the job; "joined" and
    "hello", a new or known client reported its state; "declined" and "failed", as the client replied; "lost", the
    client's update in the sum is no longer on its disk; "restored", the client's state shows that the ledger was
    restored from a backup; "refused", the reply violates the protocol and changed nothing.
    """

    outcome: Outcome
    why: str = ""


class RoundSums(NamedTuple):
    """The sums of the open round, in fixed-point numbers."""

    total: FixedPointSum  # sum of the clients' latest updates; zero for an algorithm without remembered state
    delta: FixedPointSum  # change of `total` in this round; without remembered state, the sum of the uploads
    trained_delta: FixedPointSum  # the part of `delta` that comes from clients that trained, not from those that left
    num: int  # number of clients that trained
    weight: float  # total weight of the clients that trained
    num_clients: int  # clients of the job after the round
    total_weight: float  # total weight of the clients of the job after the round


class Ledger:
    """The ledger of a job. Create or open it with `Ledger.open`.

    Args:
        database: the ledger's file, which holds a job.
        clock: returns the current time in seconds.
        token: returns a new random token of hexadecimal digits.
    """

    def __init__(
        self,
        database: Database,
        *,
        clock: Callable[[], float] = time.time,
        token: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        self.database, self.table, self.clock, self._token = database, ClientTable(database), clock, token
        self.job, self.config, self.layout = read_job(database)
        self._config_hash, self._layout_hash = self.config.hash, self.layout.hash
        self._settings = {**self.config.as_dict(), "size": self.layout.size}
        self._boot = token()
        with database.write():  # first take ownership, then read: from now on, no other server can write
            database.execute("UPDATE state SET boot = ?", self._boot)
            [(self.round, number, epoch_token)] = database.rows("SELECT round, epoch, token FROM state")
            self.total: FixedPointSum = database.get_arrays("sum")["total"]
        self.epoch = Epoch(number, epoch_token)
        self.needs_resync = ""  # why a new epoch must start after the open round; empty if none must
        self._highest_reported_epoch = 0
        self._reset_round()

    @classmethod
    def open(
        cls,
        path: Path | str | Database,
        *,
        config: JobConfig,
        layout: Layout,
        arrays: Callable[[], Arrays],
        **options: Any,
    ) -> "Ledger":
        """Open the ledger of a job, or create it. A server that has it open can no longer write.

        Args:
            path: the ledger's file, or an open database.
            config: the job's configuration.
            layout: the model's layout.
            arrays: returns the server's initial arrays; called only if the ledger is new.
            options: passed to the constructor.

        Raises:
            LedgerError: the file is not a ledger, or belongs to a job with another configuration or model.
        """
        database = path if isinstance(path, Database) else Database.open(path)
        if database.is_new:
            create_job(database, config, layout, arrays())
        _, stored_config, stored_layout = read_job(database)
        for name, stored, given in (
            ("config", stored_config.hash, config.hash),
            ("model layout", stored_layout.hash, layout.hash),
        ):
            if stored != given:
                raise LedgerError(
                    f"the job was created with the {name} {stored}, the given one is {given}: use another job folder"
                )
        return cls(database, **options)

    def clients(self) -> list[ClientRow]:
        """Return the clients of the job, ordered by number."""
        return self.table.all()

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the server's arrays after the last closed round: the model and the algorithm's other server state."""
        return self.database.get_arrays("server")

    # Joining and leaving

    def handle_hello(self, reply: Reply) -> Verdict:
        """Register a new client or update a known one, and report if its state contradicts the ledger."""
        try:
            self._check_job(reply)
            check_hello(reply)
        except ProtocolError as error:
            return Verdict("refused", str(error))
        if reply.kind not in ("hello", "ahead"):
            return Verdict("failed", reply.why)
        known = self.table.get(reply.client)
        if reply.why == LEAVING and (known is None or known.applied is None):
            if known is not None and known.id not in self._accepted:
                self._remove([known])
            return Verdict("left", "the client had asked to leave")
        inconsistency = self._handle_inconsistency(reply, known)
        with self._writing():
            if known is None:
                self.table.add(reply.client, reply.weight, self.clock())
            else:
                self.table.set_last_contact(reply.client, self.clock())
        return inconsistency or Verdict("joined" if known is None else "hello")

    def expire(self, *, seconds: float) -> list[str]:
        """Remove clients without contact for more than `seconds`, with their updates, and return their ids.

        Call it between rounds only. Where clients store their updates, removing one that is in the sum starts a new
        epoch.
        """
        assert not self._accepted, "clients expire between rounds only"
        expired = [client for client in self.clients() if self.clock() - client.last_contact > seconds]
        if expired:
            self._remove(expired)
        return [client.id for client in expired]

    # A round

    def issue(self, clients: Sequence[str], kind: InstructionKind = "train") -> dict[str, Instruction]:
        """Issue a new ticket to each client and return the instructions to send, by client; the tickets are durable.

        A client whose upload is accepted in the open round is left out: with a new ticket it would delete the update
        that is about to count.
        """
        instructions: dict[str, Instruction] = {}
        with self._writing():
            for client in clients:
                if client in self._accepted:
                    continue
                row = self.table.get(client)
                assert row is not None, "tickets are issued to clients of the job only"
                ticket = Ticket((row.issued.number if row.issued else 0) + 1, self._token())
                self.table.set_issued(client, ticket)
                instructions[client] = self.instruction(
                    client, kind, ticket=ticket, applied=row.applied, applied_digest=row.digest
                )
        return instructions

    def instruction(self, client: str, kind: InstructionKind, **more: Any) -> Instruction:
        """Return an instruction of this job; `more` sets further fields. A hello has no ticket."""
        identity = (self.job, self.epoch, self._config_hash, self._layout_hash)
        return Instruction(kind, *identity, client, self.round, settings=self._settings, **more)

    def handle_reply(self, reply: Reply) -> Verdict:
        """Accept a reply to an instruction with a ticket in the open round, or refuse it.

        An accepted upload becomes durable with `close_round`.
        """
        client = self.table.get(reply.client)
        if client is None:
            return Verdict("refused", "the client has not joined the job")
        if reply.client in self._accepted:
            return Verdict("refused", "the ticket was already used")
        try:
            self._check_job(reply)
            check_ticket(reply, client)
            if reply.kind in ("lost", "ahead"):
                return self._handle_inconsistency(reply, client) or Verdict("failed", reply.why)
            if reply.kind not in ("upload", "goodbye"):
                return Verdict("declined" if reply.kind == "declined" else "failed", reply.why)
            check_upload(reply, client, epoch=self.epoch, config=self.config, layout=self.layout)
        except ProtocolError as error:
            return Verdict("refused", str(error))
        self._accept(reply, client)
        return Verdict("left" if reply.kind == "goodbye" else "accepted")

    def sums(self) -> RoundSums:
        """Return the sums of the open round, with all replies accepted so far."""
        trained = [reply for reply in self._accepted.values() if reply.trained]
        total = self.total if self.config.memory == "none" else self.total + self._delta
        weights = {client.id: client.weight for client in self.clients()}
        for client, reply in self._accepted.items():
            weights[client] = reply.weight
            if reply.kind == "goodbye":
                del weights[client]
        known = [weight for weight in weights.values() if weight]
        total_weight = sum(known) * len(weights) / len(known) if known else 0.0  # unknown weights count as the mean
        weight = sum(reply.weight for reply in trained)
        trained_delta = self._delta - self._delta_without_training
        return RoundSums(total, self._delta, trained_delta, len(trained), weight, len(weights), total_weight)

    def close_round(
        self,
        arrays: Arrays,
        *,
        available: Iterable[str] = (),
        reachable: Iterable[str] = (),
        missed: Iterable[str] = (),
        declined: Iterable[str] = (),
    ) -> None:
        """Close the open round in one transaction. If a client lost its update in the sum, start a new epoch after it.

        Args:
            arrays: the server's arrays after the round.
            available: clients that could have taken part; recorded as available in this round.
            reachable: clients that were in contact, whether available or not; their time of last contact is updated.
            missed: clients that were asked and did not deliver; not selected for the next 1, 2, 4, ... rounds.
            declined: clients that declined; not selected in the next round.
        """
        total = self.sums().total
        with self._writing():
            for client, reply in self._accepted.items():
                self._apply(client, reply)
            for client in missed:
                self.table.back_off(client, self.round)
            for client in declined:
                self.table.skip_next_round(client, self.round)
            for client in {*available, *reachable, *self._accepted}:
                self.table.set_last_contact(client, self.clock())
            for client in {*available, *self._accepted}:
                took_part = client in self._accepted and self._accepted[client].trained
                self.database.execute(
                    "INSERT OR REPLACE INTO attendance SELECT ?, number, ? FROM clients WHERE client = ?",
                    *(self.round, took_part, client),
                )
            self.database.put_arrays("server", arrays)
            if self._accepted and self.config.memory != "none":
                self.database.put_arrays("sum", {"total": total})
            self.database.execute("INSERT INTO rounds VALUES (?, ?, ?)", self.round, self.epoch.number, self.clock())
            self.database.execute("UPDATE state SET round = round + 1")
        self.total, self.round = total, self.round + 1
        self._reset_round()
        if self.needs_resync:
            self.resync()

    def resync(self) -> None:
        """Start a new epoch with an empty sum; accepted uploads of the open round are discarded.

        Where the server stores the updates, they stay in the sum and only the epoch changes.
        """
        self._remove([], resync=True)

    # Internals

    def _check_job(self, reply: Reply) -> None:
        check_job(reply, job=self.job, config=self._config_hash, layout=self._layout_hash)

    def _handle_inconsistency(self, reply: Reply, client: ClientRow | None) -> Verdict | None:
        """Prepare the recovery if the client's state contradicts the ledger: a new epoch or a higher ticket number."""
        if reply.epoch.number > self.epoch.number + MAX_EPOCHS_AHEAD:
            why = f"the client reports epoch {reply.epoch.number}, this ledger is in epoch {self.epoch.number}"
            return Verdict("refused", why)
        found = find_inconsistency(reply, client, epoch=self.epoch, round=self.round, config=self.config)
        if found is None:
            return None
        other_epoch = reply.epoch != self.epoch
        if other_epoch or (client is not None and lacks_base(reply, client, round=self.round, config=self.config)):
            self.needs_resync = f"{reply.client}: {found.why}"
            self._highest_reported_epoch = max(self._highest_reported_epoch, reply.epoch.number)
        if not other_epoch and found.kind == "restored":
            with self._writing():  # skip all numbers that the client has seen; this ticket is never sent
                self.table.set_issued(reply.client, Ticket(highest_ticket(reply) + 1, self._token()))
        return Verdict(found.kind, found.why)

    def _accept(self, reply: Reply, client: ClientRow) -> None:
        """Add an upload to the open round."""
        assert reply.upload is not None
        changed = [self._delta] if reply.trained else [self._delta, self._delta_without_training]
        stored = self._stored_update(client) if self.config.memory == "server" else None
        for delta in changed:
            add_in_place(delta, reply.upload)
            if stored is not None:
                add_in_place(delta, stored, sign=-1)
        if self.config.memory != "server":
            reply = replace(reply, upload=None)  # its content is in the sum now; release the memory
        self._accepted[reply.client] = reply

    def _apply(self, client: str, reply: Reply) -> None:
        """Record an accepted upload as the client's update in the sum, inside the transaction of the round."""
        assert reply.ticket is not None
        row = self.table.get(client)
        assert row is not None
        if reply.kind == "goodbye":
            self.table.remove(client)
        else:
            round = self.round if reply.trained else None
            self.table.set_applied(client, reply.ticket, digest=reply.update_digest, weight=reply.weight, round=round)
        if self.config.memory == "server":
            update = reply.upload if reply.kind == "upload" else None
            self.database.put_arrays(_owner(row), {} if update is None else {"value": update})

    def _remove(self, clients: Sequence[ClientRow], *, resync: bool = False) -> None:
        """Remove clients and, in the same transaction, their updates from the sum.

        The server cannot subtract updates that only the clients store: then a new epoch starts.
        """
        kept_by_clients = self.config.memory == "client"
        resync = resync or (kept_by_clients and any(client.applied for client in clients))
        total, epoch = self.total.copy(), self.epoch
        with self._writing():
            for client in clients:
                stored = self._stored_update(client)
                total -= 0 if stored is None else stored
                self.table.remove(client.id)
                self.database.delete_arrays(_owner(client))
            if resync:
                epoch = Epoch(max(self.epoch.number, self._highest_reported_epoch) + 1, self._token())
                self.database.execute("UPDATE state SET epoch = ?, token = ?", *epoch)
            if resync and kept_by_clients:
                total[:] = 0
                self.table.clear_applied()
            self.database.put_arrays("sum", {"total": total})
        self.total, self.epoch = total, epoch
        if resync:
            self._reset_round()
            self.needs_resync, self._highest_reported_epoch = "", 0

    def _stored_update(self, client: ClientRow) -> FixedPoint | None:
        return self.database.get_arrays(_owner(client)).get("value")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Run the body as one transaction; raise LedgerError if another server has opened the ledger since."""
        with self.database.write():
            [(boot,)] = self.database.rows("SELECT boot FROM state")
            if boot != self._boot:
                raise LedgerError("another server run has taken over this job; this one stops")
            yield

    def _reset_round(self) -> None:
        self._accepted: dict[str, Reply] = {}
        self._delta: FixedPointSum = np.zeros(self.layout.size, SUM_DTYPE)
        self._delta_without_training: FixedPointSum = np.zeros(self.layout.size, SUM_DTYPE)  # such as of goodbyes


def _owner(client: ClientRow) -> str:
    """Return the name under which the server stores a client's update."""
    return f"client {client.number}"
