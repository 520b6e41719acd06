"""The server's side of the protocol: which updates are in the sum, under which tickets, and one transaction per round.

Invariant, within an epoch and after every transaction, exact in integers:

    sum = sum over clients of the update under their applied ticket

- A ticket is durable before it is sent. A reply is accepted only under the ticket issued to its client last, and only
  if it starts from the update that is in the sum. Every other reply is rejected and changes nothing.
- Model, sum, tickets and round change in one transaction (`Ledger.close_round`): a crash leaves all of a round or
  nothing.
- The server that opened the ledger last owns it: the writes of every other server fail.

- What a client takes out of the sum when it leaves is what it has added: a secret checksum of its accepted differences
  must be 0 afterwards (`fedlatest.ledger.linear_checksum`), otherwise a new epoch starts.
- A client counts in N and in the total weight only after an update of it has counted.
- Times are seconds of uptime: of servers that had the ledger open. Clock steps and downtime do not count.

How it is tested: `tests/ledger/test_histories.py` runs random histories of lost, delayed and repeated messages,
crashes at any write, lost and restored disks and restored ledgers, and compares the sum with an independent record
after every step.
"""

import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy.typing as npt

from fedlatest.errors import LedgerError, ProtocolError
from fedlatest.ledger.bitmaps import difference, pack
from fedlatest.ledger.checks import (
    check_base,
    check_hello,
    check_job,
    check_ticket,
    check_upload,
    find_inconsistency,
    highest_ticket,
    lacks_base,
)
from fedlatest.ledger.client_table import ClientRow, ClientTable
from fedlatest.ledger.database import Database, create_job, read_job, read_noise_plan, read_settings
from fedlatest.ledger.durations import RoundTasks, write_tasks
from fedlatest.ledger.fixed_point import FixedPoint, FixedPointSum
from fedlatest.ledger.hashing import add_in_place
from fedlatest.ledger.job_config import Arrays, JobConfig, Layout, hash_of
from fedlatest.ledger.limits import Limits
from fedlatest.ledger.linear_checksum import MODULUS, LinearChecksum
from fedlatest.ledger.messages import LEAVING, Epoch, Instruction, InstructionKind, Reply, Ticket
from fedlatest.ledger.participation import ParticipationLimits
from fedlatest.ledger.round_sums import RoundSums, add_upload
from fedlatest.ledger.schema import migrate
from fedlatest.ledger.secure_rounds import SecureRounds

Outcome = Literal[
    "accepted", "collected", "unmasked", "left", "declined", "failed", "lost", "restored", "refused", "hello", "joined"
]

MAX_EPOCHS_AHEAD = 10_000  # a client that reports an epoch further ahead is not believed
MAX_TICKETS_AHEAD = 1_000_000  # likewise for ticket numbers
_ASKED_TO_LEAVE = "the client had asked to leave"
ROUNDS_WITHOUT_CONTACT = 3  # after which a client that has never contributed is forgotten


class Verdict(NamedTuple):
    """The ledger's decision on a reply.

    Outcomes: "accepted", the upload counts in the open round; "collected", a masked upload counts if its session is
    unmasked; "unmasked", the shares of a decryptor count; "left", the client leaves the job; "joined" and
    "hello", a new or known client reported its state; "declined" and "failed", as the client replied; "lost", the
    client's update in the sum is no longer on its disk; "restored", the client's state shows that the ledger was
    restored from a backup; "refused", the reply violates the protocol and changed nothing.
    """

    outcome: Outcome
    why: str = ""


class Ledger:
    """The ledger of a job. Create or open it with `Ledger.open`; the context of the object closes it.

    Args:
        database: the ledger's file, which holds a job.
        limits: what the server accepts from clients.
        clock: returns the time in seconds; it must not go back.
        token: returns a new random token of hexadecimal digits.
    """

    def __init__(
        self,
        database: Database,
        *,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
        token: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        self.database, self.limits, self._clock, self._token = database, limits or Limits(), clock, token
        self.job, self.config, self.layout = read_job(database)
        settings = read_settings(database)
        self._config_hash, self._layout_hash = hash_of(settings), self.layout.hash
        self._settings = {**settings, "size": self.layout.size}
        self._participation = ParticipationLimits.of(self.config.privacy)
        self.noise_plan = read_noise_plan(database)
        self._boot = token()
        self._writing_depth = 0
        [(seed,)] = database.rows("SELECT checksum_seed FROM job")
        self._linear_checksum = LinearChecksum(seed)
        with database.write():  # first take ownership, then read: from now on, no other server can write
            database.execute("UPDATE state SET boot = ?", self._boot)
            columns = "round, epoch, token, uptime, releases"
            [(self.round, number, epoch_token, uptime, self.releases)] = database.rows(f"SELECT {columns} FROM state")
            self.total: FixedPointSum = database.get_arrays("sum")["total"]
            self.table = ClientTable(database)
            self._expelled = self._read_expelled()
            database.delete_unused_files()
        self._opened = clock() - uptime
        self.epoch = Epoch(number, epoch_token)
        self.needs_resync = ""  # why a new epoch must start after the open round; empty if none must
        self._highest_reported_epoch = 0
        self._leaving: set[str] = set()  # clients of a secure job that are removed after the open round
        self._delta: FixedPointSum | None  # change of the sum in the open round; None stands for zero
        self._untrained_delta: FixedPointSum | None  # the part of it without training, such as of goodbyes
        self._noise_seed: str | None
        self._closing_times: deque[float] = deque(maxlen=ROUNDS_WITHOUT_CONTACT)
        self.secure = SecureRounds(self) if self.config.secure is not None else None
        self._reset_round()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @classmethod
    def open(
        cls,
        path: Path | str | Database,
        *,
        config: JobConfig,
        layout: Layout,
        arrays: Callable[[], Arrays],
        noise_plan: Callable[[], Mapping[str, Any] | None] = lambda: None,
        **options: Any,
    ) -> "Ledger":
        """Open the ledger of a job, or create it. A server that has it open can no longer write.

        Args:
            path: the ledger's file, or an open database.
            config: the job's configuration.
            layout: the model's layout.
            arrays: returns the server's initial arrays; called only if the ledger is new.
            noise_plan: returns the noise plan of a private job; called only if the ledger is new.
            options: passed to the constructor.

        Raises:
            LedgerError: the file is not a ledger, or belongs to a job with another configuration or model.
        """
        database = path if isinstance(path, Database) else Database.open(path)
        try:
            if database.is_new:
                create_job(database, config, layout, arrays(), noise_plan=noise_plan())
            database.check_structure()
            migrate(database)
            _check_job_is(database, config, layout)
            return cls(database, **options)
        except BaseException:
            if database is not path:
                database.close()  # otherwise its lock would prevent a restore
            raise

    def close(self) -> None:
        """Close the file and release its lock."""
        self.database.close()

    @property
    def uptime(self) -> float:
        """The time in seconds for which servers have had this ledger open."""
        return self._clock() - self._opened

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Write everything that is done in this context in one transaction."""
        with self._writing():
            yield

    def new_token(self) -> str:
        """Return a new random token of hexadecimal digits."""
        return self._token()

    def clients(self) -> list[ClientRow]:
        """Return the clients of the job, ordered by number."""
        return self.table.all()

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the server's arrays after the last closed round: the model and the algorithm's other server state."""
        return self.database.get_arrays("server")

    # Joining and leaving

    def handle_hello(self, reply: Reply, *, name: str = "") -> Verdict:
        """Register a new client or update a known one, and report if its state contradicts the ledger.

        Args:
            reply: the client's reply to a hello.
            name: the name of the client's registered key.
        """
        known = self.table.get(reply.client)
        try:
            self._check_job(reply)
            check_hello(reply, max_weight=self.limits.max_weight)
            if self.secure is not None and (known is None or known.public_key != reply.public_key):
                self.secure.check_public_key(reply.public_key)
            self._check_may_join(reply, known)
            self._check_plausible(reply, known)
        except ProtocolError as error:
            return Verdict("refused", str(error))
        if reply.kind not in ("hello", "ahead"):
            return Verdict("failed", reply.why)
        if reply.why == LEAVING and (known is None or known.applied is None):
            if known is not None and not self._has_uploaded(known.id):
                self._remove([known])
            return Verdict("left", _ASKED_TO_LEAVE)
        if self.secure is not None and known is not None:
            self._leaving.discard(known.id)
            if reply.why == LEAVING:
                return self._leave_secure_job(known)
        with self._writing():
            if known is None:
                self.table.add(reply.client, reply.weight, self.uptime)
            self.table.set_last_contact([reply.client], self.uptime)
            if name:
                self.table.set_name(reply.client, name)
            if self.secure is not None:
                self.table.set_public_key(reply.client, reply.public_key)
                self.secure.skip_sessions(reply)
            inconsistency = self._handle_inconsistency(reply, known)
        return inconsistency or Verdict("joined" if known is None else "hello")

    def expire(self, *, seconds: float) -> list[str]:
        """Remove clients without contact for more than `seconds` of uptime, with their updates, and return their ids.

        Call it between rounds only. Where clients store their updates, removing one that is in the sum starts a new
        epoch.
        """
        assert not self._accepted, "clients expire between rounds only"
        now = self.uptime
        expired = [client for client in self.clients() if now - self.table.last_contact(client.id) > seconds]
        if expired:
            self._remove(expired)
        return [client.id for client in expired]

    def remove_expelled(self) -> list[str]:
        """Remove clients that an operator has expelled, with their updates, and return their ids.

        Call it between rounds only. Their hellos are refused from now on, until they are readmitted.
        """
        assert not self._accepted, "clients are removed between rounds only"
        self._expelled = self._read_expelled()
        removed = [client for client in map(self.table.get, sorted(self._expelled)) if client is not None]
        if removed:
            self._remove(removed)
        return [client.id for client in removed]

    # A round

    def check_budget(self) -> None:
        """Raise BudgetError if the privacy budget of the job does not allow the open round."""
        if self._participation is not None:
            self._participation.check_round(self.releases, self.clients())

    def may_take_part(self, client: ClientRow) -> bool:
        """Return whether the limits of a private job allow an upload of a client in the open round.

        A client of a secure job that has asked to leave does not take part any more.
        """
        limits = self._participation
        if client.id in self._leaving:
            return False
        return limits is None or limits.allow(client.participations, client.last_participation, self.round)

    def draw_noise_seed(self) -> str:
        """Return a new secret seed for the noise of the open round; the last one is stored when the round is closed.

        A seed is never used for two sums, because each attempt to close a round draws a new one: also after an error,
        a crash, or the restore of a backup.
        """
        seed = secrets.token_hex(16)
        self._noise_seed = seed
        return seed

    def noise_seed(self, rounds_ago: int) -> str | None:
        """Return the seed of the noise in a closed round, 1 for the last one; None if that round had no noise."""
        found = self.database.rows("SELECT noise_seed FROM rounds WHERE round = ?", self.round - rounds_ago)
        return found[0][0] if found else None

    def issue(self, clients: Sequence[str], kind: InstructionKind = "train") -> dict[str, Instruction]:
        """Issue a new ticket to each client and return the instructions to send, by client; the tickets are durable.

        A client whose upload is accepted in the open round is left out: with a new ticket it would delete the update
        that is about to count. So is a client that may not train any more (`may_take_part`).
        """
        instructions: dict[str, Instruction] = {}
        with self._writing():
            for client in clients:
                row = self.table.get(client)
                assert row is not None, "tickets are issued to clients of the job only"
                if self._has_uploaded(client) or (kind == "train" and not self.may_take_part(row)):
                    continue
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
        if self._has_uploaded(reply.client):
            return Verdict("refused", "the ticket was already used")
        try:
            self._check_job(reply)
            check_ticket(reply, client)
            self._check_plausible(reply, client)
            if reply.kind in ("lost", "ahead"):
                return self._handle_inconsistency(reply, client) or Verdict("failed", reply.why)
            if reply.kind not in ("upload", "goodbye"):
                return Verdict("declined" if reply.kind == "declined" else "failed", reply.why)
            if self._participation is not None and reply.kind == "upload":
                self._participation.check_upload(client, self.round)
            if self.secure is not None and reply.kind == "goodbye":
                return self._leave_secure_job(client)
            if self.secure is not None:
                check_base(reply, client, epoch=self.epoch, config=self.config)
                self.secure.collect(reply)
                return Verdict("collected")
            check_upload(
                reply, client, epoch=self.epoch, config=self.config, layout=self.layout,
                max_weight=self.limits.max_weight,
            )  # fmt: skip
        except ProtocolError as error:
            return Verdict("refused", str(error))
        return self._accept(reply, client)

    def handle_shares(self, reply: Reply) -> Verdict:
        """Add the shares that a decryptor reveals to the open secure session."""
        assert self.secure is not None
        try:
            self._check_job(reply)
            if reply.kind != "unmasked":
                self.secure.skip_sessions(reply)
                return Verdict("failed", reply.why)
            self.secure.add_shares(reply)
        except ProtocolError as error:
            return Verdict("refused", str(error))
        return Verdict("unmasked")

    def sums(self) -> RoundSums:
        """Return the sums of the open round, with all replies accepted so far."""
        trained = [reply for reply in self._accepted.values() if reply.trained]
        weight = sum(reply.weight for reply in trained)
        weights = {client.id: client.weight for client in self.clients() if client.has_contributed}
        for client, reply in self._accepted.items():
            weights[client] = reply.weight
            if reply.kind == "goodbye":
                del weights[client]
        return RoundSums(
            None if self.config.memory == "none" else self.total,
            self._delta,
            self._untrained_delta,
            size=self.layout.size,
            num=len(trained),
            weight=weight if self.secure is None else self.secure.trained_weight,
            num_clients=len(weights),
            total_weight=sum(weights.values()) if self.secure is None else self.secure.total_weight,
        )

    def accept_sum(self, upload: FixedPointSum, replies: Mapping[str, Reply]) -> None:
        """Accept the sum of the uploads of a secure session in the open round, all at once."""
        if self._delta is None:
            self._delta = upload
        else:
            add_in_place(self._delta, upload)
        self._accepted.update(replies)

    def close_round(
        self,
        arrays: Arrays,
        *,
        available: Iterable[str] = (),
        reachable: Iterable[str] = (),
        missed: Iterable[str] = (),
        declined: Iterable[str] = (),
        tasks: RoundTasks | None = None,
    ) -> list[str]:
        """Close the open round in one transaction. If a client lost its update in the sum, start a new epoch after it.

        Args:
            arrays: the server's arrays after the round.
            available: clients that could have taken part; recorded as available in this round.
            reachable: clients that were in contact, whether available or not; their time of last contact is updated.
            missed: clients that were asked and did not deliver; not selected for the next 1, 2, 4, ... rounds.
            declined: clients that declined; not selected in the next round.
            tasks: who was asked when, and what came of it; for the record only.

        Returns:
            The ids of the clients that were forgotten, because they have never contributed and are gone.

        Raises:
            BudgetError: the privacy budget does not allow another round.
        """
        if self._participation is not None:
            self._participation.check_round(self.releases, [])
        now, accepted, keeps_sum = self.uptime, self._accepted, self.config.memory != "none"
        available = {*available, *accepted}
        reachable = {*available, *reachable}
        took_part = [client for client, reply in accepted.items() if reply.trained]
        with self._adding_to_total(self._delta if keeps_sum else None), self._writing():
            available_bits = self.table.bits(available)
            for client, reply in accepted.items():
                self._apply(client, reply)
            for client in missed:
                self.table.back_off(client, self.round)
            for client in declined:
                self.table.skip_next_round(client, self.round)
            forgotten = self._forget_visitors(reachable)
            self.table.set_reachable(reachable, now)
            self.database.put_arrays("server", arrays)
            if accepted and keeps_sum:
                self.database.put_arrays("sum", {"total": self.total})
            in_contact = difference(self.table.bits(reachable), available_bits)
            bits = map(pack, (available_bits, self.table.bits(took_part), in_contact))
            times = (time.time(), now)
            self.database.execute(
                "INSERT INTO rounds VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                *(self.round, self.epoch.number, *times, *bits, self._noise_seed),
            )
            if tasks is not None:
                write_tasks(
                    self.database, tasks, round=self.round, closed=now, number_of=self.table.number_of,
                    bits=self.table.bits, available=available_bits,
                )  # fmt: skip
            self.database.execute("UPDATE state SET round = round + 1, releases = releases + 1")
            if self.secure is not None:
                self.secure.write_weight()
        self.round += 1
        self.releases += 1
        self._closing_times.append(now)
        self._reset_round()
        leaving = [client for client in map(self.table.get, sorted(self._leaving)) if client is not None]
        if leaving or self.needs_resync:
            self._remove(leaving, resync=bool(self.needs_resync))
            self._leaving = set()
        return forgotten

    def resync(self) -> None:
        """Start a new epoch with an empty sum; accepted uploads of the open round are discarded.

        Where the server stores the updates, they stay in the sum and only the epoch changes.
        """
        self._remove([], resync=True)

    def end_epoch_if_requested(self) -> bool:
        """Start a new epoch if an operator has asked to end the current one (`fedlatest epoch`); return whether.

        Call it between rounds only.
        """
        assert not self._accepted, "an epoch ends between rounds only"
        [(requested,)] = self.database.rows("SELECT ending_epoch FROM state")
        if requested == self.epoch.number:
            self.resync()
            return True
        return False

    # Internals

    def _check_job(self, reply: Reply) -> None:
        identity = {"job": self.job, "config": self._config_hash, "layout": self._layout_hash}
        check_job(reply, **identity, is_secure=self.secure is not None)

    def _handle_inconsistency(self, reply: Reply, client: ClientRow | None) -> Verdict | None:
        """Prepare the recovery if the client's state contradicts the ledger: a new epoch or a higher ticket number."""
        found = find_inconsistency(reply, client, epoch=self.epoch, round=self.round, config=self.config)
        if found is None:
            return None
        refused = self._count_loss(reply.client, found.why)
        if refused is not None:
            return refused
        other_epoch = reply.epoch != self.epoch
        if other_epoch or (client is not None and lacks_base(reply, client, round=self.round, config=self.config)):
            self.needs_resync = f"{reply.client}: {found.why}"
            self._highest_reported_epoch = max(self._highest_reported_epoch, reply.epoch.number)
        if not other_epoch and found.kind == "restored":
            with self._writing():  # skip all numbers that the client has seen; this ticket is never sent
                self.table.set_issued(reply.client, Ticket(highest_ticket(reply) + 1, self._token()))
        return Verdict(found.kind, found.why)

    def _count_loss(self, client: str, why: str) -> Verdict | None:
        """Count a reason for a new epoch, one per client and round; return a refusal if the client has given several.

        The reasons: a loss, a wrong goodbye, and leaving a secure job.
        """
        row = self.table.get(client)
        if row is not None and row.losses > 1 and row.backoff_until > self.round:
            until = f"it is ignored until round {row.backoff_until}, because the client has reported several"
            return Verdict("refused", f"{why}; {until}")
        if client not in self._reported_loss:
            self._reported_loss.add(client)
            with self._writing():
                self.table.add_loss(client, self.round, max_backoff=self.limits.max_loss_backoff)
        return None

    def _leave_secure_job(self, client: ClientRow) -> Verdict:
        """Remove a client after the open round; the server cannot see what to subtract, so a new epoch starts."""
        if self.config.memory == "client" and client.applied is not None:
            refused = self._count_loss(client.id, _ASKED_TO_LEAVE)
            if refused is not None:
                return refused
            self.needs_resync = f"{client.id}: {_ASKED_TO_LEAVE}"
        self._leaving.add(client.id)
        return Verdict("left", _ASKED_TO_LEAVE)

    def _accept(self, reply: Reply, client: ClientRow) -> Verdict:
        """Add an upload to the open round, unless it is a goodbye that would leave a part of the client in the sum."""
        assert reply.upload is not None
        checksum = self._checksum_with(reply.upload, client)
        if reply.kind == "goodbye" and checksum != 0:
            why = "the goodbye does not remove from the sum what the client has added"
            refused = self._count_loss(client.id, why)
            if refused is None:
                self.needs_resync = f"{client.id}: {why}"
            return refused or Verdict("lost", why)
        self._checksums[client.id] = checksum
        stored = self._stored_update(client) if self.config.memory == "server" else None
        self._delta = add_upload(self._delta, reply.upload, stored)
        if not reply.trained:
            self._untrained_delta = add_upload(self._untrained_delta, reply.upload, stored)
        if self.config.memory != "server":
            reply = replace(reply, upload=None)  # its content is in the sum now; release the memory
        self._accepted[reply.client] = reply
        return Verdict("left" if reply.kind == "goodbye" else "accepted")

    def _checksum_with(self, upload: FixedPoint, client: ClientRow) -> int | None:
        """Return the checksum of a client's accepted differences after another one; None if it is not known."""
        if self.config.memory != "client":
            return 0  # whole updates: nothing has to be believed
        return None if client.checksum is None else (client.checksum + self._linear_checksum.of(upload)) % MODULUS

    def _apply(self, client: str, reply: Reply) -> None:
        """Record an accepted upload as the client's update in the sum, inside the transaction of the round."""
        assert reply.ticket is not None
        row = self.table.get(client)
        assert row is not None
        if reply.kind == "goodbye":
            self.table.remove(client)
        else:
            self.table.add_participation(client, self.round)
            round = self.round if reply.trained else None
            self.table.set_applied(
                client, reply.ticket, digest=reply.update_digest, weight=reply.weight, round=round,
                checksum=self._checksums.get(client, 0),
            )  # fmt: skip
        if self.config.memory == "server":
            update = reply.upload if reply.kind == "upload" else None
            self.database.put_arrays(_owner(row), {} if update is None else {"value": update})

    def _remove(self, clients: Sequence[ClientRow], *, resync: bool = False) -> None:
        """Remove clients and, in the same transaction, their updates from the sum.

        The server cannot subtract updates that only the clients store: then a new epoch starts.
        """
        kept_by_clients = self.config.memory == "client"
        resync = resync or (kept_by_clients and any(client.applied for client in clients))
        changes_sum = resync or any(client.applied for client in clients)
        total, epoch = self.total.copy() if changes_sum else self.total, self.epoch
        with self._writing():
            for client in clients:
                stored = self._stored_update(client)
                if stored is not None:
                    total -= stored
                self.table.remove(client.id)
                self.database.delete_arrays(_owner(client))
            if resync:
                epoch = Epoch(max(self.epoch.number, self._highest_reported_epoch) + 1, self._token())
                self.database.execute("UPDATE state SET epoch = ?, token = ?, weight = 0", *epoch)
            if resync and kept_by_clients:
                total[:] = 0
                self.table.clear_applied()
            if changes_sum:
                self.database.put_arrays("sum", {"total": total})
        self.total, self.epoch = total, epoch
        if resync:
            self._reset_round()
            self.needs_resync, self._highest_reported_epoch = "", 0

    def _stored_update(self, client: ClientRow) -> FixedPoint | None:
        return self.database.get_arrays(_owner(client)).get("value")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Run the body as one transaction; raise LedgerError if another server has opened the ledger since.

        Inside another `_writing`, the body belongs to the transaction of the outer one.
        """
        if self._writing_depth:
            yield
            return
        try:
            with self.database.write():
                self._check_ownership()
                self._writing_depth = 1
                yield
                self.table.flush()
                self.database.execute("UPDATE state SET uptime = ?", self.uptime)
        except BaseException:
            with suppress(LedgerError):
                self.table.reload()
            raise
        finally:
            self._writing_depth = 0

    def _check_ownership(self) -> None:
        [(boot,)] = self.database.rows("SELECT boot FROM state")
        if boot != self._boot:
            raise LedgerError("another server run has taken over this job; this one stops")

    @contextmanager
    def _adding_to_total(self, delta: FixedPointSum | None) -> Iterator[None]:
        """Add the change of the round to the sum in place, and undo that if the round cannot be committed."""
        if delta is None:
            yield
            return
        add_in_place(self.total, delta)
        try:
            yield
        except BaseException:
            add_in_place(self.total, delta, sign=-1)
            raise

    def _forget_visitors(self, reachable: set[str]) -> list[str]:
        """Remove clients that have never contributed and were not reachable in the last rounds; return their ids."""
        if len(self._closing_times) < ROUNDS_WITHOUT_CONTACT:
            return []
        last = self._closing_times[0]
        visitors = [client.id for client in self.clients() if not client.has_contributed and client.id not in reachable]
        forgotten = [client for client in visitors if self.table.last_contact(client) < last]
        for client in forgotten:
            self.table.remove(client)
        return forgotten

    def _check_plausible(self, reply: Reply, client: ClientRow | None) -> None:
        """Raise ProtocolError if a client reports an epoch or a ticket too far ahead: numbers must not run out."""
        if reply.epoch.number > self.epoch.number + MAX_EPOCHS_AHEAD:
            raise ProtocolError(
                f"the client reports epoch {reply.epoch.number}, this ledger is in epoch {self.epoch.number}"
            )
        issued = client.issued.number if client is not None and client.issued is not None else 0
        if reply.epoch == self.epoch and highest_ticket(reply) > issued + MAX_TICKETS_AHEAD:
            raise ProtocolError(f"the client reports ticket {highest_ticket(reply)}, the last one is {issued}")

    def _check_may_join(self, reply: Reply, known: ClientRow | None) -> None:
        if reply.client in self._expelled:
            raise ProtocolError("the client was expelled; `fedlatest expel --undo` readmits it")
        if known is None and self.table.get_former(reply.client) is None:
            limit = self.limits.max_clients
            if self.table.num_rows >= limit:
                raise ProtocolError(f"the job has had {limit} clients, which is its limit (max_clients)")

    def _read_expelled(self) -> set[str]:
        return {client for (client,) in self.database.rows("SELECT client FROM expelled")}

    def _has_uploaded(self, client: str) -> bool:
        """Whether an upload of a client counts, or may count, in the open round."""
        return client in self._accepted or (self.secure is not None and self.secure.has_uploaded(client))

    def _reset_round(self) -> None:
        self._accepted: dict[str, Reply] = {}
        self._reported_loss: set[str] = set()
        self._checksums: dict[str, int | None] = {}  # by client with an accepted upload
        self._delta = None
        self._untrained_delta = None
        if self.secure is not None:
            self.secure.reset()
        self._noise_seed = None


def _check_job_is(database: Database, config: JobConfig, layout: Layout) -> None:
    """Raise LedgerError if a ledger holds a job with another configuration or model."""
    _, stored_config, stored_layout = read_job(database)
    if stored_config.privacy != config.privacy:
        raise LedgerError(
            f"the privacy settings of a job cannot change: it was created with {stored_config.privacy}, given are "
            f"{config.privacy}; a new job in another folder has a budget of its own, which adds to this one"
        )
    if stored_layout.hash != layout.hash:
        raise LedgerError(
            f"the job was created with the model layout {stored_layout.hash}, the given one is {layout.hash}: use "
            "another job folder"
        )
    if stored_config.hash != config.hash:
        stored, given = stored_config.as_dict(), config.as_dict()
        changed = sorted(name for name in {*stored, *given} if stored.get(name) != given.get(name))
        what = "; ".join(f"{name} was {stored.get(name)}, is now {given.get(name)}" for name in changed)
        raise LedgerError(
            f"the job was created with the config {stored_config.hash}, the given one is {config.hash} ({what}): use "
            "another job folder, or the settings of the job"
        )


def _owner(client: ClientRow) -> str:
    """Return the name under which the server stores a client's update."""
    return f"client {client.number}"
