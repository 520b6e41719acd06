"""The server's half of the protocol: whose value is in the sum, under which ticket, and one transaction a round.

    sum = sum over clients of the value under their applied ticket          within an epoch, to the last bit

An upload is taken if it bears the ticket that the client was handed last and starts from the value that is in the sum;
everything else is refused and changes nothing. A round is closed by one transaction that holds the model, the sum, the
tickets and the round, so that a crash leaves all of it or nothing.
"""

import json
import secrets
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.errors import LedgerError, ProtocolError
from fedlatest.ledger.checks import (
    check_greeting,
    check_job,
    check_ticket,
    check_upload,
    highest_ticket,
    lacks_base,
    look_for_evidence,
)
from fedlatest.ledger.database import SCHEMA, TABLES, Database
from fedlatest.ledger.fixed_point import IN_THE_LEDGER, Total, Vector
from fedlatest.ledger.hashing import add_to
from fedlatest.ledger.job_config import Arrays, JobConfig, Layout, Place
from fedlatest.ledger.membership import Member, Roster
from fedlatest.ledger.messages import LEAVING, Ask, Epoch, Instruction, Reply, Ticket

Outcome = Literal["taken", "left", "declined", "failed", "lost", "restored", "refused", "hello", "joined"]

MOST_EPOCHS_LOST = 10_000  # since a backup; a claim beyond that is not believed


class Verdict(NamedTuple):
    """What became of a reply."""

    outcome: Outcome
    why: str = ""


class RoundSums(NamedTuple):
    """The sums of a round, in units."""

    total: Total
    delta: Total  # what this round changed; for an algorithm without memory, the sum of its uploads
    num: int  # how many trained
    weight: float  # of those that trained
    num_members: int  # after the round
    total_weight: float  # of all members, after the round


class Ledger:
    """A job's record. Make or open it with `Ledger.open`."""

    def __init__(
        self,
        database: Database,
        *,
        clock: Callable[[], float] = time.time,
        token: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        self.database, self.roster, self.clock, self._token = database, Roster(database), clock, token
        self.job, self.config, self.layout = _read_job(database)
        self._config_hash, self._layout_hash = self.config.hash, self.layout.hash
        self._settings = {**self.config.as_dict(), "size": self.layout.size}
        self._boot = token()
        with database.write():  # take over, then read: from here on nobody else changes anything
            database.execute("UPDATE state SET boot = ?", self._boot)
            [(self.round, number, epoch_token)] = database.rows("SELECT round, epoch, token FROM state")
            self.total: Total = database.get_arrays("sum")["total"]
        self.epoch = Epoch(number, epoch_token)
        self.needs_resync = ""
        self._later_epoch = 0
        self._forget_round()

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
        """Go on with the job at `path`, or begin it with the server's first `arrays`.

        Whoever opened it before is shut out: its next write fails.
        """
        database = path if isinstance(path, Database) else Database.open(path)
        if database.is_new:
            _begin(database, config, layout, arrays())
        _, its_config, its_layout = _read_job(database)
        for name, there, here in (
            ("config", its_config.hash, config.hash),
            ("model layout", its_layout.hash, layout.hash),
        ):
            if there != here:
                raise LedgerError(f"the job was begun with the {name} {there}, this is {here}: use another job folder")
        return cls(database, **options)

    def members(self) -> list[Member]:
        """The clients that belong to the job, by number."""
        return self.roster.members()

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The server's arrays: the model, and what else the algorithm keeps."""
        return self.database.get_arrays("server")

    # Joining and leaving

    def greet(self, reply: Reply) -> Verdict:
        """Let a client in, or recognise it; says if what it holds does not fit the ledger."""
        try:
            self._check_job(reply)
            check_greeting(reply)
        except ProtocolError as error:
            return Verdict("refused", str(error))
        if reply.say not in ("hello", "ahead"):
            return Verdict("failed", reply.why)
        known = self.roster.member(reply.client)
        if reply.why == LEAVING and (known is None or known.applied is None):
            if known is not None and known.client not in self._taken:
                self._dismiss([known])
            return Verdict("left", "it had asked to leave")
        odd = self._look_at(reply, known)
        with self._writing():
            if known is None:
                self.roster.admit(reply.client, reply.weight, self.clock())
            else:
                self.roster.hear(reply.client, self.clock())
        return odd or Verdict("joined" if known is None else "hello")

    def expire(self, *, seconds: float) -> list[str]:
        """Remove clients that were not heard of for so long, and their values with them; between rounds."""
        assert not self._taken, "expiry is between rounds"
        gone = [member for member in self.members() if self.clock() - member.seen > seconds]
        if gone:
            self._dismiss(gone)
        return [member.client for member in gone]

    # A round

    def issue(self, clients: Sequence[str], ask: Ask = "train") -> dict[str, Instruction]:
        """Hand each client a fresh ticket, durably, before it is told of it.

        A client whose reply is already in the open round is left out: asked again, it would drop the value that is
        about to count.
        """
        given: dict[str, Instruction] = {}
        with self._writing():
            for client in clients:
                if client in self._taken:
                    continue
                member = self.roster.member(client)
                assert member is not None, "only members are asked"
                ticket = Ticket((member.issued.number if member.issued else 0) + 1, self._token())
                self.roster.issue(client, ticket)
                in_sum = {"applied": member.applied, "value": member.digest}
                given[client] = self.instruction(client, ask, ticket=ticket, **in_sum)
        return given

    def instruction(self, client: str, ask: Ask, **more: Any) -> Instruction:
        """An instruction of this job; a hello needs no ticket."""
        about = (self.job, self.epoch, self._config_hash, self._layout_hash)
        return Instruction(ask, *about, client, self.round, settings=self._settings, **more)

    def take(self, reply: Reply) -> Verdict:
        """Take a reply into the open round, or refuse it; nothing of an upload is durable before `close`."""
        member = self.roster.member(reply.client)
        if member is None:
            return Verdict("refused", "it is not a member of the job")
        if reply.client in self._taken:
            return Verdict("refused", "its ticket was used already")
        try:
            self._check_job(reply)
            check_ticket(reply, member)
            if reply.say in ("lost", "ahead"):
                return self._look_at(reply, member) or Verdict("failed", reply.why)
            if reply.say not in ("upload", "goodbye"):
                return Verdict("declined" if reply.say == "declined" else "failed", reply.why)
            check_upload(reply, member, epoch=self.epoch, config=self.config, layout=self.layout)
        except ProtocolError as error:
            return Verdict("refused", str(error))
        self._add(reply, member)
        return Verdict("left" if reply.say == "goodbye" else "taken")

    def sums(self) -> RoundSums:
        """What the open round amounts to so far."""
        trained = [reply for reply in self._taken.values() if reply.trained]
        total = self.total if self.config.memory == "none" else self.total + self._delta
        weights = {member.client: member.weight for member in self.members()}
        for client, reply in self._taken.items():
            weights[client] = reply.weight
            if reply.say == "goodbye":
                del weights[client]
        known = [weight for weight in weights.values() if weight]
        expected = sum(known) * len(weights) / len(known) if known else 0.0  # who has not said weighs the mean
        weight = sum(reply.weight for reply in trained)
        return RoundSums(total, self._delta, len(trained), weight, len(weights), expected)

    def close(
        self,
        arrays: Arrays,
        *,
        here: Iterable[str] = (),
        heard: Iterable[str] = (),
        missed: Iterable[str] = (),
        declined: Iterable[str] = (),
    ) -> None:
        """Close the round: one transaction.

        `here` could have worked; `heard` gave a sign of life, though they may not work now. `missed` were asked and did
        not work, and are left alone for 1, 2, 4, ... rounds; `declined` said that they may not, and rest for one. If a
        client turned out to be unable to withdraw its value, a new epoch begins with the next round.
        """
        total = self.sums().total
        with self._writing():
            for client, reply in self._taken.items():
                self._apply(client, reply)
            for client in missed:
                self.roster.miss(client, self.round)
            for client in declined:
                self.roster.rest(client, self.round)
            for client in {*here, *heard, *self._taken}:
                self.roster.hear(client, self.clock())
            for client in {*here, *self._taken}:
                worked = client in self._taken and self._taken[client].trained
                self.database.execute(
                    "INSERT OR REPLACE INTO attendance SELECT ?, number, ? FROM clients WHERE client = ?",
                    *(self.round, worked, client),
                )
            self.database.put_arrays("server", arrays)
            if self._taken and self.config.memory != "none":
                self.database.put_arrays("sum", {"total": total})
            self.database.execute("INSERT INTO rounds VALUES (?, ?, ?)", self.round, self.epoch.number, self.clock())
            self.database.execute("UPDATE state SET round = round + 1")
        self.total, self.round = total, self.round + 1
        self._forget_round()
        if self.needs_resync:
            self.resync()

    def resync(self) -> None:
        """Begin a new epoch: nothing is in the sum, and everybody starts from nothing.

        Where the server keeps the values itself they stay in the sum, and only the epoch is new.
        """
        self._dismiss([], resync=True)

    # How

    def _check_job(self, reply: Reply) -> None:
        check_job(reply, job=self.job, config=self._config_hash, layout=self._layout_hash)

    def _look_at(self, reply: Reply, member: Member | None) -> Verdict | None:
        if reply.epoch.number > self.epoch.number + MOST_EPOCHS_LOST:
            return Verdict("refused", f"it claims epoch {reply.epoch.number}, this ledger is at {self.epoch.number}")
        evidence = look_for_evidence(reply, member, epoch=self.epoch, round=self.round, config=self.config)
        if evidence is None:
            return None
        later = reply.epoch != self.epoch
        if later or (member is not None and lacks_base(reply, member, round=self.round, config=self.config)):
            self.needs_resync = f"{reply.client}: {evidence.why}"
            self._later_epoch = max(self._later_epoch, reply.epoch.number)
        if not later and evidence.of == "restored":
            with self._writing():  # go on beyond all that the client has seen; this number is handed to nobody
                self.roster.issue(reply.client, Ticket(highest_ticket(reply) + 1, self._token()))
        return Verdict(evidence.of, evidence.why)

    def _add(self, reply: Reply, member: Member) -> None:
        assert reply.vector is not None
        add_to(self._delta, reply.vector)
        stored = self._stored(member) if self.config.memory == "server" else None
        if stored is not None:
            add_to(self._delta, stored, sign=-1)
        if self.config.memory != "server":
            reply = replace(reply, vector=None)  # it is in the sum, and needs no room
        self._taken[reply.client] = reply

    def _apply(self, client: str, reply: Reply) -> None:
        assert reply.ticket is not None
        member = self.roster.member(client)
        assert member is not None
        if reply.say == "goodbye":
            self.roster.dismiss(client)
        else:
            round = self.round if reply.trained else None
            self.roster.apply(client, reply.ticket, digest=reply.value, weight=reply.weight, round=round)
        if self.config.memory == "server":
            value = reply.vector if reply.say == "upload" else None
            self.database.put_arrays(_owner(member), {} if value is None else {"value": value})

    def _dismiss(self, gone: Sequence[Member], *, resync: bool = False) -> None:
        """Remove clients and, in the same transaction, what is theirs from the sum.

        What they keep on their own disks cannot be subtracted: then everybody starts anew, in a new epoch.
        """
        kept_by_clients = self.config.memory == "client"
        resync = resync or (kept_by_clients and any(member.applied for member in gone))
        total, epoch = self.total.copy(), self.epoch
        with self._writing():
            for member in gone:
                stored = self._stored(member)
                total -= 0 if stored is None else stored
                self.roster.dismiss(member.client)
                self.database.drop_arrays(_owner(member))
            if resync:
                epoch = Epoch(max(self.epoch.number, self._later_epoch) + 1, self._token())
                self.database.execute("UPDATE state SET epoch = ?, token = ?", *epoch)
            if resync and kept_by_clients:
                total[:] = 0
                self.roster.forget_applied()
            self.database.put_arrays("sum", {"total": total})
        self.total, self.epoch = total, epoch
        if resync:
            self._forget_round()
            self.needs_resync, self._later_epoch = "", 0

    def _stored(self, member: Member) -> Vector | None:
        return self.database.get_arrays(_owner(member)).get("value")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction, unless another server has opened the ledger since."""
        with self.database.write():
            [(boot,)] = self.database.rows("SELECT boot FROM state")
            if boot != self._boot:
                raise LedgerError("another server run has taken over this job; this one stops")
            yield

    def _forget_round(self) -> None:
        self._taken: dict[str, Reply] = {}
        self._delta: Total = np.zeros(self.layout.size, IN_THE_LEDGER)


def _owner(member: Member) -> str:
    return f"client {member.number}"


def _read_job(database: Database) -> tuple[str, JobConfig, Layout]:
    [(job, schema, config, layout)] = database.rows("SELECT id, schema, config, layout FROM job")
    if schema != SCHEMA:
        raise LedgerError(f"the ledger's schema is {schema}, this version reads {SCHEMA}")
    places = (Place(name, tuple(shape), dtype) for name, shape, dtype in json.loads(layout))
    return job, JobConfig(**json.loads(config)), Layout(tuple(places))


def _begin(database: Database, config: JobConfig, layout: Layout, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    places = json.dumps([list(place) for place in layout.places])
    with database.write():
        if not database.is_new:  # another server was quicker
            return
        for statement in TABLES.split(";"):
            database.execute(statement)
        about = (uuid.uuid4().hex, SCHEMA, json.dumps(config.as_dict()), places, time.time())
        database.execute("INSERT INTO job VALUES (?, ?, ?, ?, ?)", *about)
        database.execute("INSERT INTO state VALUES (0, '', 1, ?)", secrets.token_hex(8))
        database.put_arrays("server", arrays)
        database.put_arrays("sum", {"total": np.zeros(layout.size, IN_THE_LEDGER)})
