"""A server, its clients and the network between them in memory, with an independent record of what must be in the sum.

The record follows from the outside which uploads were accepted and which transactions became durable. `check` compares
the ledger with it. Every message passes through the real encoding. `history_actions.py` adds the actions of a history.
"""

import itertools
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from fedlatest.errors import DeclinedError, LedgerError
from fedlatest.ledger import ClientStore, JobConfig, Layout, Ledger, Limits, LocalUpdate, handle_instruction
from fedlatest.ledger.database import Database
from fedlatest.ledger.fixed_point import FixedPoint
from fedlatest.ledger.hashing import digest_of
from fedlatest.ledger.messages import Reply, Ticket, decode_instruction, decode_reply, encode
from fedlatest.ledger.secure_settings import SecureAggregation
from tests.ledger.faults import CrashError, FaultyConnection, FaultyStorage

SIZE = 3
LAYOUT = Layout.of({"x": np.zeros(SIZE, np.float32)})


class RecordedUpdate(NamedTuple):
    """An update that is in the sum according to the record.

    `incarnation` counts the replacements of the client's state and of the ledger before the update was computed.
    """

    ticket: Ticket
    update: FixedPoint
    weight: float
    incarnation: tuple[int, int]


class ReplyInTransit(NamedTuple):
    """An encoded reply on the network, with the whole update that the record knows it stands for."""

    header: str
    upload: FixedPoint | None
    update: FixedPoint | None
    weight: float
    incarnation: tuple[int, int]


class Backup(NamedTuple):
    """A copy of the ledger, and the record at the time of the copy."""

    content: bytes
    in_sum: dict[str, RecordedUpdate]
    weights: dict[str, float]
    used: set[tuple[str, Ticket]]
    participations: dict[str, list[int]]


@dataclass
class Device:
    """A client's disk and copies of it.

    `restores` counts how often the disk was lost, damaged or restored, or changed by an instruction that a server sent
    before its ledger was restored from a backup. Such an instruction may delete an update that the restored ledger
    counts; the client reports that at the next contact.
    """

    storage: FaultyStorage = field(default_factory=FaultyStorage)
    copies: list[dict[str, bytes]] = field(default_factory=lambda: [{}])
    restores: int = 0
    lost_data: bool = False  # whether the disk was lost, damaged or restored


class HistoryState:
    """The state of a history: server, clients, messages in transit and the record.

    Args:
        memory: where updates are stored, as in `JobConfig`.
        num_clients: number of clients.
        secure: settings of secure aggregation; None if uploads are not masked.
        max_loss_backoff: as in `Limits`.
        participation: for a private job, least separation and largest number of participations.
        path: the ledger's file; None for a database in memory.
        ledger_class: the server's protocol under test.
        client_handler: the client's protocol under test.
    """

    def __init__(
        self,
        *,
        memory: str,
        num_clients: int,
        secure: SecureAggregation | None = None,
        max_loss_backoff: int = 0,
        participation: tuple[int, int] | None = None,
        path: Path | None = None,
        ledger_class: type[Ledger] = Ledger,
        client_handler: Callable[..., Reply] = handle_instruction,
    ) -> None:
        optional: Any = {} if secure is None else {"secure": secure.as_dict(), "weighs": True}
        if participation is not None:
            limits = {"rounds": 10_000, "min_separation": participation[0], "max_participations": participation[1]}
            optional |= {"privacy": limits, "clip_norm": 2.0**40}
        self.participation = participation
        self.config = JobConfig("fedlaavg", memory=memory, unit=1.0, **optional)  # type: ignore[arg-type]
        self.limits = Limits(max_loss_backoff=max_loss_backoff)
        self.path, self.ledger_class, self.client_handler = path, ledger_class, client_handler
        self.devices = {f"c{number}": Device() for number in range(num_clients)}
        self.instructions: list[str] = []  # in transit to clients
        self.outdated_instructions: set[str] = set()  # sent before a restore of the ledger
        self.replies: list[ReplyInTransit] = []  # in transit to the server
        self.in_sum: dict[str, RecordedUpdate] = {}
        self.weights: dict[str, float] = {}  # of all clients of the job that have contributed
        self.accepted: dict[str, RecordedUpdate | None] = {}  # in the open round; None for a goodbye
        self.used: set[tuple[str, Ticket]] = set()
        self.updates: dict[str, FixedPoint] = {digest_of(_zeros()): _zeros()}  # all computed updates, by digest
        self.weight_of: dict[str, float] = {digest_of(_zeros()): 0.0}  # the weights of these updates
        self.participations: dict[str, list[int]] = {client: [] for client in self.devices}  # rounds, by client
        self.released: set[tuple[str, Ticket]] = set()  # as `used`, but a restore of the ledger does not remove any
        self.backups: list[Backup] = []
        self.statistics: Counter[str] = Counter()
        self.num_reports = self.num_tokens = self.num_updates = self.ledger_restores = 0
        self.data_was_lost = False  # whether a disk or the ledger was lost, damaged or restored
        self.may_resync = False
        self.time = self.wall_clock_offset = 0.0
        self.connection = self._connect()
        self.ledger = self._open()
        self.round, self.epoch = self.ledger.round, self.ledger.epoch
        self.job = self.ledger.job

    # Invariants

    def check(self) -> None:
        """Check that the ledger's sum is that of the record, and that clients store their updates in the sum."""
        expected = sum(
            (recorded.update.astype(np.int64) for recorded in self.in_sum.values()), np.zeros(SIZE, np.int64)
        )
        if self.config.memory == "none":
            expected[:] = 0
        assert self.ledger.total.tolist() == expected.tolist(), "the sum differs from the updates that counted"
        assert self.ledger.database.get_arrays("sum")["total"].tolist() == expected.tolist()
        tickets = {client.id: client.applied for client in self.ledger.clients() if client.applied is not None}
        if self.ledger_class is Ledger:
            assert tickets == {client: recorded.ticket for client, recorded in self.in_sum.items()}
            self._check_weights()
            self._check_participations()
        [(round, epoch)] = self.connection.execute("SELECT round, epoch FROM state").fetchall()
        assert (round, epoch) == (self.ledger.round, self.ledger.epoch.number)
        with_tasks = [round for (round,) in self.connection.execute("SELECT round FROM tasks ORDER BY round")]
        assert with_tasks == [*range(round)], "the tasks are of other rounds than the ledger"
        assert self.ledger.arrays()["x"].tolist() == [round] * SIZE, "the model is of another round than the ledger"
        if self.config.memory == "client" and self.ledger_class is Ledger:
            for client, recorded in self.in_sum.items():
                assert self._stores(client, recorded) or recorded.incarnation != self._incarnation(client)

    def _check_weights(self) -> None:
        """Check that each update in the sum counts with its own weight, and only clients that have contributed."""
        found = {client.id: client.weight for client in self.ledger.clients() if client.applied is not None}
        assert found == {client: recorded.weight for client, recorded in self.in_sum.items()}, "a weight is wrong"
        if not self.accepted:
            sums = self.ledger.sums()
            assert (sums.num_clients, sums.total_weight) == (len(self.weights), sum(self.weights.values()))

    def _check_participations(self) -> None:
        """Check that the ledger counts each client's uploads, and that no client exceeds the limits of a private job.

        Over restores of the ledger, the clients' own counts bound the number of their different uploads.
        """
        for client, rounds in self.participations.items():
            row = self.ledger.table.get_former(client)
            assert (row.participations if row else 0) == len(rounds), "the participations are wrong"
            if self.participation is not None:
                separation, most = self.participation
                assert len(rounds) <= most, "a client took part too often"
                assert all(b - a >= separation for a, b in itertools.pairwise(rounds)), "participations are too close"
                if self.client_handler is handle_instruction and not self.devices[client].lost_data:
                    assert sum(used == client for used, _ in self.released) <= most, "a client uploaded too often"

    def is_allowed(self, client: str) -> bool:
        """Return whether the record allows that an upload of a client counts in the open round."""
        if self.participation is None:
            return True
        (separation, most), rounds = self.participation, self.participations[client]
        return len(rounds) < most and (not rounds or self.round - rounds[-1] >= separation)

    def clients_without_base(self) -> list[str]:
        """Return the clients that can no longer subtract their update from the sum."""
        if self.config.memory != "client":
            return []
        return [client for client, recorded in self.in_sum.items() if not self._stores(client, recorded)]

    # The server

    def _open(self, database: Database | None = None) -> Ledger:
        options: Any = {"clock": lambda: self.time, "token": self._token, "limits": self.limits}
        arrays = {"x": np.zeros(SIZE, np.float32)}
        database = database or Database(self.connection)
        self.inconsistent: set[str] = set()
        return self.ledger_class.open(database, config=self.config, layout=LAYOUT, arrays=lambda: arrays, **options)

    def _connect(self, content: bytes | None = None) -> FaultyConnection:
        if self.path is not None and content is not None:
            for suffix in ("", "-wal", "-shm"):
                Path(f"{self.path}{suffix}").unlink(missing_ok=True)
            self.path.write_bytes(content)
        connection = faulty_connection(Database.open(self.path or ":memory:", factory=FaultyConnection))
        connection.crashes = self.statistics
        if self.path is None and content is not None:
            connection.deserialize(content)
        return connection

    def _run_server(self, action: Callable[[], Any], *, may_remove: bool = False) -> Any:
        """Run an action of the server, restart the server if it crashes, and update the record from the database."""
        result = None
        wall_clock = 1e9 + self.time + self.wall_clock_offset
        try:
            with mock.patch("time.time", lambda: wall_clock):  # noqa: PT008 (a mock takes most of the time of a history)
                result = action()
        except CrashError:
            self._restart_server(may_remove=may_remove)
        else:
            self._update_record(may_remove=may_remove)
        self.may_resync = False
        return result

    def _restart_server(self, *, may_remove: bool = False) -> None:
        if self.path is not None:
            self.connection.close()
            self.connection = self._connect()
        elif self.connection.in_transaction:  # SQLite does this when the file of a dead process is reopened
            self.connection.rollback()
        for _ in range(2):
            try:
                self.ledger = self._open()
                break
            except CrashError:
                self.statistics["server crashes at its start"] += 1
                self.connection.rollback()
        self._update_record(may_remove=may_remove)
        self.accepted = {}

    def _update_record(self, *, may_remove: bool) -> None:
        """Infer from round and epoch which transactions took place; everything else must agree with them."""
        [(round, number, token)] = self.connection.execute("SELECT round, epoch, token FROM state").fetchall()
        assert round in (self.round, self.round + 1), "the round decreased"
        if round > self.round:
            for client, recorded in self.accepted.items():
                self._record_applied(client, recorded)
            self.accepted = {}
        if (number, token) != self.epoch:
            assert number > self.epoch.number
            assert self.may_resync, "a new epoch without a cause"
            self.accepted = {}
            self.statistics["new epoch"] += 1
            if self.config.memory == "client":
                self.in_sum = {}
        clients = {client.id for client in self.ledger.clients()}
        for client in [client for client in self.in_sum if client not in clients]:
            assert may_remove, "a client was removed while its update was in the sum"
            self.statistics["expired from the sum"] += 1
            del self.in_sum[client]
        self.weights = {client: weight for client, weight in self.weights.items() if client in clients}
        self.round, self.epoch = round, type(self.epoch)(number, token)

    def _record_applied(self, client: str, recorded: RecordedUpdate | None) -> None:
        if recorded is None:
            self.in_sum.pop(client, None)
            self.weights.pop(client, None)
            self.statistics["goodbye counted"] += 1
            return
        assert (client, recorded.ticket) not in self.used, "a ticket counted twice"
        self.used.add((client, recorded.ticket))
        self.released.add((client, recorded.ticket))
        self.participations[client].append(self.round)
        self.in_sum[client] = recorded
        self.weights[client] = recorded.weight
        self.statistics["upload counted"] += 1

    def _deliver_reply(self, sent: ReplyInTransit) -> None:
        reply = decode_reply(sent.header, sent.upload)
        if reply.ticket is None:
            verdict = self._run_server(lambda: self.ledger.handle_hello(reply))
        else:
            changes, delta = self.connection.total_changes, self.ledger.sums().delta.copy()
            verdict = self._run_server(lambda: self.ledger.handle_reply(reply))
            if verdict is not None and verdict.outcome not in ("accepted", "left", "lost", "restored"):
                assert changes == self.connection.total_changes, "a refused reply changed the file"
                assert delta.tolist() == self.ledger.sums().delta.tolist(), "a refused reply changed the sum"
        if verdict is None:
            return
        self.statistics[f"{'hello' if reply.ticket is None else 'reply'}: {verdict.outcome}"] += 1
        if verdict.outcome == "refused" and re.search("took part in|has taken part in", verdict.why):
            assert not self.is_allowed(reply.client), "an upload was refused that the limits allow"
            self.statistics["upload refused: too many or too close"] += 1
        self.inconsistent.discard(reply.client)
        if verdict.outcome in ("lost", "restored"):
            assert self.data_was_lost, f"an inconsistency was reported without a cause: {verdict}"
            self.num_reports += 1
            self.inconsistent.add(reply.client)
        if reply.ticket is not None and verdict.outcome in ("accepted", "left"):
            assert reply.client not in self.accepted, "two replies of one client were accepted in a round"
            assert sent.update is not None
            recorded = RecordedUpdate(reply.ticket, sent.update, sent.weight, sent.incarnation)
            self.accepted[reply.client] = recorded if verdict.outcome == "accepted" else None
            self.statistics["late reply accepted"] += reply.round < self.round

    def _state_row(self) -> Any:
        return self.connection.execute("SELECT round, boot, epoch, token FROM state").fetchall()

    def _token(self) -> str:
        self.num_tokens += 1
        return f"{self.num_tokens:x}"

    # The clients

    def _deliver_instruction(self, position: int, *, keep_copy: bool, how: int = 0) -> None:
        header = self.instructions[position] if keep_copy else self.instructions.pop(position)
        instruction = decode_instruction(header)
        self.statistics["instruction delivered twice"] += keep_copy
        store = self._store(instruction.client)
        before, files = self.num_updates, dict(self.devices[instruction.client].storage.files)
        try:
            reply = self.client_handler(store, instruction, train=lambda: self._train(how), weight=1.0)
        except CrashError:
            return
        finally:
            device = self.devices[instruction.client]
            if header in self.outdated_instructions and device.storage.files != files:
                device.restores += 1
                self.statistics["client changed by a server before its restore"] += 1
        update = self.updates[reply.update_digest] if reply.update_digest else None
        if update is not None and self.num_updates > before:
            assert digest_of(self._last_update) == reply.update_digest
        weight = self.weight_of[reply.update_digest] if reply.update_digest else 0.0
        assert reply.kind != "upload" or reply.weight == weight, "the weight of another update was sent"
        sent = ReplyInTransit(encode(reply), reply.upload, update, weight, self._incarnation(instruction.client))
        self.replies.append(sent)
        self.statistics[f"sent: {reply.kind}"] += 1
        self.statistics["declined: own count"] += reply.kind == "declined" and "part in" in reply.why

    def _train(self, how: int) -> LocalUpdate:
        """Return an update that no other call returns; one value of `how` in 8 declines, another one fails."""
        if how % 8 == 1:
            raise DeclinedError("not now")
        if how % 8 == 2:
            raise LedgerError("something is broken")
        self.num_updates += 1
        number = self.num_updates
        self._last_update = np.array([number, -2 * number, 7919 * number % 1009], np.int32)
        digest, weight = digest_of(self._last_update), 1.0 + number
        self.updates[digest], self.weight_of[digest] = self._last_update, weight
        return LocalUpdate(self._last_update.copy(), weight, {"loss": 0.5})

    def _client(self, which: int) -> str:
        return f"c{which % len(self.devices)}"

    def _store(self, client: str) -> ClientStore:
        storage = self.devices[client].storage
        storage.crashes = self.statistics
        return ClientStore(storage)

    def _incarnation(self, client: str) -> tuple[int, int]:
        return self.devices[client].restores, self.ledger_restores

    def _replace_disk(self, which: int, files: dict[str, bytes]) -> None:
        device = self.devices[self._client(which)]
        device.storage.files = dict(files)
        device.restores += 1
        device.lost_data = self.data_was_lost = True

    def _stores(self, client: str, recorded: RecordedUpdate) -> bool:
        state = self._store(client).load(self.job)
        digests = {stored.ticket: stored.digest for stored in state.updates} if state else {}
        return digests.get(recorded.ticket) == digest_of(recorded.update)

    def _newest_update(self, client: str) -> FixedPoint:
        store = self._store(client)
        state = store.load(self.job)
        assert state is not None
        newest = store.read_update(self.job, state.updates[-1])
        assert newest is not None
        return newest

    def _is_leaving(self, client: str) -> bool:
        state = self._store(client).load(self.job, verify=False)
        return state is not None and state.leaving


def faulty_connection(database: Database) -> FaultyConnection:
    """Return the connection of a database that was opened with `factory=FaultyConnection`."""
    assert isinstance(database.connection, FaultyConnection)
    return database.connection


def _zeros() -> FixedPoint:
    return np.zeros(SIZE, np.int32)
