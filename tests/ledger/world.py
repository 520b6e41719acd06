"""A server, its clients and the network between them, in which everything that can go wrong does when it is told to.

The world keeps its own record of what was uploaded and what counted, from the outside, and compares the ledger with it
after every act. Every message passes through the real encoding.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.errors import DeclinedError, LedgerError
from fedlatest.ledger import ClientStore, JobConfig, Layout, Ledger, Trained, answer
from fedlatest.ledger.database import Database
from fedlatest.ledger.fixed_point import Vector
from fedlatest.ledger.hashing import digest_of
from fedlatest.ledger.messages import Reply, Ticket, decode_instruction, decode_reply, encode
from tests.ledger.faults import CrashError, FlakyConnection, FlakyDisk

SIZE = 3
LAYOUT = Layout.of({"x": np.zeros(SIZE, np.float32)})
ROUNDS_TO_HEAL = 4

Answer = Callable[..., Reply]


class Counted(NamedTuple):
    """A value that the record says is in the sum; `made_in` tells the lives of disk and ledger it was made in."""

    ticket: Ticket
    value: Vector
    made_in: tuple[int, int]


class Letter(NamedTuple):
    """A reply on its way, and beside it what the record knows of it."""

    header: str
    vector: Vector | None
    value: Vector | None
    made_in: tuple[int, int]


class Backup(NamedTuple):
    """A ledger as it once was, and the record of that time."""

    content: bytes
    in_sum: dict[str, Counted]
    used: set[tuple[str, Ticket]]


@dataclass
class Device:
    """A client's device; `life` counts how often its disk was lost or set back."""

    disk: FlakyDisk = field(default_factory=FlakyDisk)
    copies: list[dict[str, bytes]] = field(default_factory=lambda: [{}])
    life: int = 0


class World:
    """Acts are methods whose name begins with `do_`; each takes two numbers to choose by."""

    def __init__(
        self,
        *,
        memory: str,
        num_clients: int,
        path: Path | None = None,
        kind: type[Ledger] = Ledger,
        answer: Answer = answer,
    ) -> None:
        self.config = JobConfig("fedlaavg", memory=memory, unit=1.0)  # type: ignore[arg-type]
        self.path, self.kind, self.answer = path, kind, answer
        self.devices = {f"c{number}": Device() for number in range(num_clients)}
        self.down: list[str] = []
        self.up: list[Letter] = []
        self.in_sum: dict[str, Counted] = {}
        self.taken: dict[str, Counted | None] = {}  # None for a goodbye
        self.used: set[tuple[str, Ticket]] = set()
        self.made: dict[str, Vector] = {digest_of(_zeros()): _zeros()}
        self.backups: list[Backup] = []
        self.happened: Counter[str] = Counter()
        self.alarms = self.num_tokens = self.num_values = self.life = 0
        self.faulty = False  # whether a disk was lost or set back, or the ledger was
        self.may_resync = False
        self.time = 0.0
        self.connection = self._connect()
        self.ledger = self._open()
        self.round, self.epoch = self.ledger.round, self.ledger.epoch
        self.job = self.ledger.job
        self.do_backup()

    # Acts

    def do_wait(self, *_: int) -> None:
        """Time passes."""

    def do_hello(self, which: int, _: int = 0) -> None:
        """Say hello to a client."""
        self.down.append(encode(self.ledger.instruction(self._client(which), "hello")))

    def do_meet(self, which: int, how: int) -> None:
        """Say hello to a client, and it answers at once; copies may come late."""
        self.do_hello(which)
        self._exchange(1, copies=how & 6)

    def do_issue(self, which: int, how: int) -> None:
        """Hand out tickets to some members."""
        clients = [m.client for place, m in enumerate(self.ledger.members()) if which >> place & 1]
        given = self._serve(lambda: self.ledger.issue(clients, "rebase" if how % 4 == 0 else "train"))
        self.down += [encode(instruction) for instruction in (given or {}).values()]

    def do_close(self, which: int, how: int) -> None:
        """Close the round; some of those who did not answer are said to have missed it."""
        members = [m.client for m in self.ledger.members()]
        missed = [c for place, c in enumerate(members) if which >> place & 1 and c not in self.taken]
        here = [c for place, c in enumerate(members) if how >> place & 1]
        arrays = {"x": np.full(SIZE, self.ledger.round + 1, np.float32)}
        self.may_resync = bool(self.ledger.needs_resync)
        self._serve(lambda: self.ledger.close(arrays, here=here, missed=missed))

    def do_whole_round(self, which: int, how: int) -> None:
        """A round in which nothing goes wrong for some members; copies of its messages may come late."""
        before = len(self.down)
        self.do_issue(which, how | 1)
        self._exchange(len(self.down) - before, copies=how & 6)
        self.do_close(0, 0)

    def do_arrive(self, which: int, how: int) -> None:
        """An instruction arrives at its client, or a copy of it does."""
        if self.down:
            self._arrive(_place(which, self.down), keep=how % 2 == 0, how=how // 2)

    def do_answer(self, which: int, how: int) -> None:
        """A reply arrives at the server, or a copy of it does."""
        if self.up:
            place = _place(which, self.up)
            keep = how % 2 == 0
            self.happened["reply twice"] += keep
            self._take(self.up[place] if keep else self.up.pop(place))

    def do_lose_instruction(self, which: int, _: int = 0) -> None:
        """An instruction is lost on its way."""
        if self.down:
            self.down.pop(which % len(self.down))
            self.happened["instruction lost"] += 1

    def do_lose_reply(self, which: int, _: int = 0) -> None:
        """A reply is lost on its way."""
        if self.up:
            self.up.pop(which % len(self.up))
            self.happened["reply lost"] += 1

    def do_expire(self, _: int, how: int) -> None:
        """Remove who was not heard of, between rounds."""
        if not self.taken:
            self.may_resync = True
            self._serve(lambda: self.ledger.expire(seconds=1.0 + how % 8), may_remove=True)

    def do_resync(self, *_: int) -> None:
        """Begin a new epoch."""
        self.may_resync = True
        self._serve(self.ledger.resync)
        self.happened["resync asked for"] += 1

    def do_leave(self, which: int, how: int) -> None:
        """A client asks to leave, or changes its mind."""
        store = self._store(self._client(which))
        ask, what = (store.leave, "leave") if how % 3 else (store.stay, "stay")
        with suppress(CrashError):
            self.happened[f"asks to {what}"] += ask(self.job)

    def do_kill_server(self, *_: int) -> None:
        """The server dies between two acts, and comes back."""
        self.happened["server dies between"] += 1
        self._come_back()

    def do_light_server_fuse(self, writes: int, how: int) -> None:
        """The server will die at a write."""
        self.connection.fuse.set(writes % 24, after=bool(how % 2))

    def do_light_client_fuse(self, which: int, how: int) -> None:
        """A client will die at a write."""
        self.devices[self._client(which)].disk.fuse.set(how // 2 % 4, after=bool(how % 2))

    def do_second_server(self, *_: int) -> None:
        """Another server opens the ledger; the first can write nothing any more."""
        first = self.ledger
        self.connection.fuse.put_out()
        self.ledger = self._open(Database(self._connect()) if self.path else None)
        self.taken = {}
        state = self._state()
        for act in (first.resync, lambda: first.close({}), lambda: first.issue([m.client for m in first.members()])):
            try:
                act()
            except LedgerError:
                pass
            else:
                raise AssertionError("a server that was shut out wrote")
        assert self._state() == state
        if self.path:
            self.connection.close()
            self.connection = self._of(self.ledger.database)
        self.happened["second server"] += 1

    def do_copy_disk(self, which: int, _: int = 0) -> None:
        """A copy of a client's disk is put aside."""
        device = self.devices[self._client(which)]
        device.copies.append(dict(device.disk.files))

    def do_lose_disk(self, which: int, _: int = 0) -> None:
        """A client's disk is lost; it comes back empty under the same name."""
        self._set_disk(which, {})
        self.happened["disk lost"] += 1

    def do_set_back_disk(self, which: int, how: int) -> None:
        """A client's disk is set back to a copy."""
        copies = self.devices[self._client(which)].copies
        self._set_disk(which, copies[_place(how, copies)])
        self.happened["disk set back"] += 1

    def do_damage_disk(self, which: int, how: int) -> None:
        """A file on a client's disk is damaged."""
        files = dict(self.devices[self._client(which)].disk.files)
        if files:
            name = sorted(files)[how % len(files)]
            self._set_disk(which, {**files, name: files[name][:-1] + b"?"})
            self.happened["disk damaged"] += 1

    def do_backup(self, *_: int) -> None:
        """A backup of the ledger is put aside."""
        with sqlite3.connect(":memory:") as copy:
            self.connection.backup(copy)
            content = copy.serialize()
        copy.close()
        self.backups.append(Backup(content, dict(self.in_sum), set(self.used)))

    def do_restore(self, which: int, _: int = 0) -> None:
        """The ledger is set back to a backup."""
        backup = self.backups[_place(which, self.backups)]
        self.connection.close()
        self.connection = self._connect(backup.content)
        self.in_sum, self.used = dict(backup.in_sum), set(backup.used)
        self.life += 1
        self.faulty = True
        self.ledger = self._open()
        before = self.epoch
        self.round, self.epoch, self.taken = self.ledger.round, self.ledger.epoch, {}
        self.happened["ledger restored" + (", other epoch" if before != self.epoch else "")] += 1

    def _exchange(self, num: int, *, copies: int) -> None:
        """The last instructions arrive, and so do the replies to them; copies of them may stay on their way."""
        for header in self.down[len(self.down) - num :]:
            before = len(self.up)
            self.down.append(header)
            self._arrive(len(self.down) - 1, keep=False)
            for letter in self.up[before:]:
                self._take(letter)
            if not copies & 2:
                del self.up[before:]
        if not copies & 4:
            del self.down[len(self.down) - num :]

    # What must hold

    def check(self) -> None:
        """The ledger's sum is that of the record, in memory and on disk, and clients hold what is in it."""
        expected = sum((counted.value.astype(np.int64) for counted in self.in_sum.values()), np.zeros(SIZE, np.int64))
        assert self.ledger.total.tolist() == expected.tolist(), "the sum is not that of the values that counted"
        assert self.ledger.database.get_arrays("sum")["total"].tolist() == expected.tolist()
        members = {member.client: member for member in self.ledger.members()}
        tickets = {client: m.applied for client, m in members.items() if m.applied is not None}
        if self.kind is Ledger:
            assert tickets == {client: counted.ticket for client, counted in self.in_sum.items()}
        [(round, epoch)] = self.connection.execute("SELECT round, epoch FROM state").fetchall()
        assert (round, epoch) == (self.ledger.round, self.ledger.epoch.number)
        assert self.ledger.arrays()["x"].tolist() == [round] * SIZE, "the model is of another round than the ledger"
        if self.config.memory == "client" and self.kind is Ledger:
            for client, counted in self.in_sum.items():
                assert self._holds(client, counted) or counted.made_in != self._lives(client)

    def come_to_rest(self) -> None:
        """Faults stop: after a few rounds everybody is in the sum with its newest value, and damage was reported."""
        self.down, self.up = [], []
        self.connection.fuse.put_out()
        for device in self.devices.values():
            device.disk.fuse.put_out()
        if self.taken:
            self.do_close(0, 0)
            self.check()
        damaged = self._damaged()
        alarms = self.alarms
        for _ in range(ROUNDS_TO_HEAL):
            self._fair_round()
            self.check()
        assert not damaged or self.alarms > alarms, "a value could not be withdrawn, and nobody said so"
        staying = {client for client in self.devices if not self._is_leaving(client)}
        assert {member.client for member in self.ledger.members()} == staying, "somebody was forgotten"
        assert set(self.in_sum) == staying, "somebody's value is not in the sum"
        newest = sum((self._newest(client) for client in staying), np.zeros(SIZE, np.int64))
        assert self.ledger.total.tolist() == newest.tolist()

    def _fair_round(self) -> None:
        for client in range(len(self.devices)):
            self.do_hello(client)
            self._arrive(0, keep=False)
            self._take(self.up.pop())
        asked = [member.client for member in self.ledger.members() if member.client not in self.odd]
        self.down += [encode(instruction) for instruction in self.ledger.issue(asked).values()]
        while self.down:
            self._arrive(0, keep=False)
            self._take(self.up.pop())
        self.do_close(0, 0)

    def _damaged(self) -> list[str]:
        """Clients that can no longer withdraw their value from the sum."""
        if self.config.memory != "client":
            return []
        return [client for client, counted in self.in_sum.items() if not self._holds(client, counted)]

    # The server

    def _open(self, database: Database | None = None) -> Ledger:
        options = {"clock": lambda: self.time, "token": self._token}
        begin = {"x": np.zeros(SIZE, np.float32)}
        database = database or Database(self.connection)
        self.odd: set[str] = set()
        return self.kind.open(database, config=self.config, layout=LAYOUT, arrays=lambda: begin, **options)

    def _connect(self, content: bytes | None = None) -> FlakyConnection:
        place = self.path or ":memory:"
        if self.path is not None and content is not None:
            for end in ("", "-wal", "-shm"):
                Path(f"{self.path}{end}").unlink(missing_ok=True)
            self.path.write_bytes(content)
        connection = self._of(Database.open(place, kind=FlakyConnection))
        connection.deaths = self.happened
        if self.path is None and content is not None:
            connection.deserialize(content)
        return connection

    @staticmethod
    def _of(database: Database) -> FlakyConnection:
        assert isinstance(database.connection, FlakyConnection)
        return database.connection

    def _serve(self, act: Callable[[], Any], *, may_remove: bool = False) -> Any:
        """The server does something, dies at it perhaps, and the record follows what became durable."""
        result = None
        try:
            result = act()
        except CrashError:
            self._come_back(may_remove=may_remove)
        else:
            self._follow(may_remove=may_remove)
        self.may_resync = False
        return result

    def _come_back(self, *, may_remove: bool = False) -> None:
        if self.path is not None:
            self.connection.close()
            self.connection = self._connect()
        elif self.connection.in_transaction:  # as SQLite does with what a dead process had begun
            self.connection.rollback()
        for _ in range(2):
            try:
                self.ledger = self._open()
                break
            except CrashError:
                self.happened["server dies at its start"] += 1
                self.connection.rollback()
        self._follow(may_remove=may_remove)
        self.taken = {}

    def _follow(self, *, may_remove: bool) -> None:
        """Round and epoch say which of the transactions took place; all else must agree with them."""
        [(round, number, token)] = self.connection.execute("SELECT round, epoch, token FROM state").fetchall()
        assert round in (self.round, self.round + 1), "the round went back"
        if round > self.round:
            for client, counted in self.taken.items():
                self._count(client, counted)
            self.taken = {}
        if (number, token) != self.epoch:
            assert number > self.epoch.number
            assert self.may_resync, "a new epoch without a cause"
            self.taken = {}
            self.happened["new epoch"] += 1
            if self.config.memory == "client":
                self.in_sum = {}
        members = {member.client for member in self.ledger.members()}
        for client in [client for client in self.in_sum if client not in members]:
            assert may_remove, "a client was removed while its value was in the sum"
            self.happened["expired from the sum"] += 1
            del self.in_sum[client]
        self.round, self.epoch = round, type(self.epoch)(number, token)

    def _count(self, client: str, counted: Counted | None) -> None:
        if counted is None:
            self.in_sum.pop(client, None)
            self.happened["goodbye counted"] += 1
            return
        assert (client, counted.ticket) not in self.used, "a ticket counted twice"
        self.used.add((client, counted.ticket))
        self.in_sum[client] = counted
        self.happened["upload counted"] += 1

    def _take(self, letter: Letter) -> None:
        reply = decode_reply(letter.header, letter.vector)
        if reply.ticket is None:
            verdict = self._serve(lambda: self.ledger.greet(reply))
        else:
            changes, delta = self.connection.total_changes, self.ledger.sums().delta.copy()
            verdict = self._serve(lambda: self.ledger.take(reply))
            if verdict is not None and verdict.outcome not in ("taken", "left", "lost", "restored"):
                assert changes == self.connection.total_changes, "a reply that does not count was written down"
                assert delta.tolist() == self.ledger.sums().delta.tolist(), "a reply that does not count did"
        if verdict is None:
            return
        self.happened[f"{'greeted' if reply.ticket is None else 'answered'}: {verdict.outcome}"] += 1
        self.odd.discard(reply.client)
        if verdict.outcome in ("lost", "restored"):
            assert self.faulty, f"a false alarm: {verdict}"
            self.alarms += 1
            self.odd.add(reply.client)
        if reply.ticket is not None and verdict.outcome in ("taken", "left"):
            assert reply.client not in self.taken, "two replies of one client in a round"
            value = letter.value
            assert value is not None
            counted = Counted(reply.ticket, value, letter.made_in)
            self.taken[reply.client] = counted if verdict.outcome == "taken" else None
            self.happened["late reply taken"] += reply.round < self.round

    def _state(self) -> Any:
        return self.connection.execute("SELECT round, boot, epoch, token FROM state").fetchall()

    def _token(self) -> str:
        self.num_tokens += 1
        return f"{self.num_tokens:x}"

    # The clients

    def _arrive(self, place: int, *, keep: bool, how: int = 0) -> None:
        header = self.down[place] if keep else self.down.pop(place)
        instruction = decode_instruction(header)
        self.happened["instruction twice"] += keep
        store = self._store(instruction.client)
        before = self.num_values
        try:
            reply = self.answer(store, instruction, train=lambda: self._train(how), weight=1.0)
        except CrashError:
            return
        value = self.made[reply.value] if reply.value else None
        if value is not None and self.num_values > before:
            assert digest_of(self._last) == reply.value
        self.up.append(Letter(encode(reply), reply.vector, value, self._lives(instruction.client)))
        self.happened[f"said: {reply.say}"] += 1

    def _train(self, how: int) -> Trained:
        if how % 8 == 1:
            raise DeclinedError("not now")
        if how % 8 == 2:
            raise LedgerError("something is broken")
        self.num_values += 1
        number = self.num_values
        self._last = np.array([number, -2 * number, 7919 * number % 1009], np.int32)
        self.made[digest_of(self._last)] = self._last
        return Trained(self._last, 1.0 + how % 3, {"loss": 0.5})

    def _client(self, which: int) -> str:
        return f"c{which % len(self.devices)}"

    def _store(self, client: str) -> ClientStore:
        disk = self.devices[client].disk
        disk.deaths = self.happened
        return ClientStore(disk)

    def _lives(self, client: str) -> tuple[int, int]:
        return self.devices[client].life, self.life

    def _set_disk(self, which: int, files: dict[str, bytes]) -> None:
        device = self.devices[self._client(which)]
        device.disk.files = dict(files)
        device.life += 1
        self.faulty = True

    def _holds(self, client: str, counted: Counted) -> bool:
        store = self._store(client)
        held = store.load(self.job)
        known = {slot.ticket: slot.digest for slot in held.slots} if held else {}
        return known.get(counted.ticket) == digest_of(counted.value)

    def _newest(self, client: str) -> npt.NDArray[np.int32]:
        store = self._store(client)
        held = store.load(self.job)
        assert held is not None
        return store.value(self.job, held.tickets[-1])

    def _is_leaving(self, client: str) -> bool:
        content = self.devices[client].disk.get(f"{self.job}/state.json")
        try:
            return content is not None and bool(json.loads(content)["leaving"])
        except ValueError:
            return False


def _place(which: int, messages: Sequence[Any]) -> int:
    """Half of the time the newest message, else any."""
    return len(messages) - 1 if which % 2 else which // 2 % len(messages)


def _zeros() -> Vector:
    return np.zeros(SIZE, np.int32)


def play(world: World, acts: Sequence[tuple[str, int, int]]) -> None:
    """Play a history, look after every act, and let the world come to rest."""
    for name, which, how in acts:
        world.time += 1.0
        world.happened[f"act: {name}"] += 1
        getattr(world, f"do_{name}")(which, how)
        world.check()
    world.come_to_rest()
