"""The actions of a random history: messages that arrive, get lost or are repeated, crashes, lost and restored data."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing, nullcontext, suppress
from typing import Any
from unittest import mock

import numpy as np
import pytest

from fedlatest.errors import LedgerError
from fedlatest.ledger import ClientRow, Ledger, handle_instruction
from fedlatest.ledger.backup import restore
from fedlatest.ledger.cohort_choice import choose_cohort
from fedlatest.ledger.database import Database
from fedlatest.ledger.durations import RoundTasks, Task
from fedlatest.ledger.hashing import checksum_of, digest_of
from fedlatest.ledger.messages import Epoch, Reply, encode
from tests.ledger.faults import CrashError
from tests.ledger.history_state import LAYOUT, SIZE, Backup, HistoryState, faulty_connection

ROUNDS_UNTIL_PROGRESS = 6  # in a deployment, two more: until messages that are still unanswered expire
ROUNDS_TO_RECOVER = 8  # a client that has reported several losses is ignored for two rounds
Action = tuple[str, int, int]  # name and two numbers that select what it applies to


def run_history(history: "History", actions: Sequence[Action]) -> None:
    """Run actions, check the invariants after each one, check that the job recovers, and close its ledger."""
    try:
        for name, which, how in actions:
            history.time += 1.0
            history.statistics[f"action: {name}"] += 1
            getattr(history, f"do_{name}")(which, how)
            history.check()
        history.recover()
    finally:
        history.connection.close()


class History(HistoryState):
    """The actions are the methods `do_NAME(which, how)`; the two numbers select among what is possible."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.do_backup()

    def do_wait(self, *_: int) -> None:
        """Let time pass."""

    def do_send_hello(self, which: int, _: int = 0) -> None:
        """Send a hello to a client."""
        self.instructions.append(encode(self.ledger.instruction(self._client(which), "hello")))

    def do_exchange_hello(self, which: int, how: int) -> None:
        """Send a hello to a client and deliver its reply at once; copies may stay in transit."""
        self.do_send_hello(which)
        self._exchange(1, copies=how & 6)

    def do_issue(self, which: int, how: int) -> None:
        """Issue tickets to some clients; where clients do not count their uploads, also to those over their limits."""
        clients = [client.id for bit, client in enumerate(self._honest_clients()) if which >> bit & 1]
        everyone = mock.patch.object(self.ledger, "may_take_part", return_value=True)
        with nullcontext() if self.client_handler is handle_instruction else everyone:
            issued = self._run_server(lambda: self.ledger.issue(clients, "rebase" if how % 4 == 0 else "train"))
        self.instructions += [encode(instruction) for instruction in (issued or {}).values()]

    def do_close_round(self, which: int, how: int) -> None:
        """Close the round; some of the clients without an accepted reply are marked as missed."""
        clients = [client.id for client in self._honest_clients()]
        missed = [c for bit, c in enumerate(clients) if which >> bit & 1 and c not in self.accepted]
        available = [c for bit, c in enumerate(clients) if how >> bit & 1]
        arrays = {"x": np.full(SIZE, self.ledger.round + 1, np.float32)}
        self.may_resync = bool(self.ledger.needs_resync)
        asked = [Task(self.ledger.round, client, self.ledger.uptime) for client in missed]
        tasks = RoundTasks(self.ledger.uptime, len(clients), 60.0, (), asked)
        may_remove = bool(self.ledger._leaving)
        self._run_server(
            lambda: self.ledger.close_round(arrays, available=available, missed=missed, tasks=tasks),
            may_remove=may_remove,
        )

    def do_outage(self, _: int, how: int) -> None:
        """Close one to four rounds in which all clients were asked and none was heard of."""
        for _ in range(1 + how % 4):
            self.do_close_round(-1, how // 4)
        self.statistics["outage"] += 1

    def do_whole_round(self, which: int, how: int) -> None:
        """Run a round without faults for some clients; copies of its messages may stay in transit."""
        before = len(self.instructions)
        self.do_issue(which, how | 1)
        self._exchange(len(self.instructions) - before, copies=how & 6)
        self.do_close_round(0, 0)

    def do_deliver_instruction(self, which: int, how: int) -> None:
        """Deliver an instruction to its client; a copy may stay in transit."""
        if self.instructions:
            position = _position(which, self.instructions)
            self._deliver_instruction(position, keep_copy=how % 2 == 0, how=how // 2)

    def do_deliver_reply(self, which: int, how: int) -> None:
        """Deliver a reply to the server; a copy may stay in transit."""
        if self.replies:
            position = _position(which, self.replies)
            keep_copy = how % 2 == 0
            self.statistics["reply delivered twice"] += keep_copy
            self._deliver_reply(self.replies[position] if keep_copy else self.replies.pop(position))

    def do_lose_instruction(self, which: int, _: int = 0) -> None:
        """Lose an instruction in transit."""
        if self.instructions:
            self.instructions.pop(which % len(self.instructions))
            self.statistics["instruction lost"] += 1

    def do_lose_reply(self, which: int, _: int = 0) -> None:
        """Lose a reply in transit."""
        if self.replies:
            self.replies.pop(which % len(self.replies))
            self.statistics["reply lost"] += 1

    def do_expire(self, _: int, how: int) -> None:
        """Remove clients without recent contact, if no round is open."""
        if not self.accepted:
            self.may_resync = True
            self._run_server(lambda: self.ledger.expire(seconds=1.0 + how % 8), may_remove=True)

    def do_resync(self, *_: int) -> None:
        """Start a new epoch."""
        self.may_resync = True
        self._run_server(self.ledger.resync)
        self.statistics["resync requested"] += 1

    def do_leave(self, which: int, how: int) -> None:
        """Let a client ask to leave, or cancel that."""
        store = self._store(self._client(which))
        request, name = (store.leave, "leave") if how % 3 else (store.cancel_leave, "cancel leave")
        with suppress(CrashError):
            self.statistics[f"request: {name}"] += request(self.job)

    def do_kill_server(self, _: int = 0, how: int = 0) -> None:
        """Kill the server between two actions and restart it, at once or after a long pause."""
        self.statistics["server killed between actions"] += 1
        uptime = self.ledger.uptime
        if how % 2:
            self.time += 1e6
            self.statistics["pause without a server"] += 1
        self._restart_server()
        assert self.ledger.uptime <= uptime, "the time without a server counts"

    def do_step_clock(self, which: int, how: int) -> None:
        """Set the wall clock, which the ledger must only record, forward or back by hours."""
        self.wall_clock_offset += (1 + which) * (3600.0 if how % 2 else -3600.0)
        self.statistics["step of the wall clock"] += 1

    def do_arm_server_crash(self, writes: int, how: int) -> None:
        """Let the server crash at a later write."""
        self.connection.trigger.arm(writes % 24, after=bool(how % 2))

    def do_arm_client_crash(self, which: int, how: int) -> None:
        """Let a client crash at a later write."""
        self.devices[self._client(which)].storage.trigger.arm(how // 2 % 4, after=bool(how % 2))

    def do_second_server(self, *_: int) -> None:
        """Open the ledger with a second server; the first one must not be able to write any more."""
        first = self.ledger
        self.connection.trigger.disarm()
        self.ledger = self._open(Database(self._connect()) if self.path else None)
        self.accepted = {}
        state = self._state_row()
        for write in (
            first.resync,
            lambda: first.close_round({}),
            lambda: first.issue([client.id for client in first.clients()]),
        ):
            try:
                write()
            except LedgerError:
                pass
            else:
                raise AssertionError("a server wrote after another one had opened the ledger")
        assert self._state_row() == state
        if self.path:
            self.connection.close()
            self.connection = faulty_connection(self.ledger.database)
        self.statistics["second server"] += 1

    def do_copy_disk(self, which: int, _: int = 0) -> None:
        """Copy a client's disk."""
        device = self.devices[self._client(which)]
        device.copies.append(dict(device.storage.files))

    def do_lose_disk(self, which: int, _: int = 0) -> None:
        """Empty a client's disk; the client keeps its id."""
        self._replace_disk(which, {})
        self.statistics["disk lost"] += 1

    def do_lose_all_disks(self, _: int, how: int) -> None:
        """Empty the disks of all clients in several rounds; they report the losses again and again."""
        for _ in range(2 + how % 4 * 2):
            for client in range(len(self.devices)):
                self.do_lose_disk(client)
                if how & 4:
                    self.do_exchange_hello(client, 0)
            self.do_whole_round(63, 1)

    def do_restore_disk(self, which: int, how: int) -> None:
        """Restore a client's disk from a copy."""
        copies = self.devices[self._client(which)].copies
        self._replace_disk(which, copies[_position(how, copies)])
        self.statistics["disk restored"] += 1

    def do_damage_disk(self, which: int, how: int) -> None:
        """Flip a bit in a file on a client's disk."""
        files = dict(self.devices[self._client(which)].storage.files)
        if files:
            name = sorted(files)[how % len(files)]
            self._replace_disk(which, {**files, name: _with_flipped_bit(files[name], 7919 * (how + which))})
            self.statistics["disk damaged"] += 1

    def do_hostile_hello(self, which: int, how: int) -> None:
        """Send the hello of a stranger with a huge weight that claims tickets or epochs that do not exist."""
        ledger = self.ledger
        epoch = Epoch(ledger.epoch.number + which % 3, "bad" if which % 3 else ledger.epoch.token)
        identity = (ledger.job, epoch, self.config.hash, LAYOUT.hash, f"stranger{how % 4}")
        hello = Reply("hello", *identity, round=ledger.round, weight=2.0**30, highest_ticket=[0, 9, 2**62 - 1][how % 3])
        self._run_server(lambda: ledger.handle_hello(hello))

    def do_hostile_goodbye(self, which: int, how: int) -> None:
        """Send the goodbye of a client with a difference that leaves a part of the client in the sum."""
        client = self._client(which)
        if self.ledger_class is not Ledger or client not in self.in_sum or client in self.accepted:
            return
        instruction = (self._run_server(lambda: self.ledger.issue([client], "rebase")) or {}).get(client)
        if instruction is None:
            return
        wrong = -self.in_sum[client].update
        wrong[how % SIZE] += 1 + how // SIZE
        base = instruction.applied if self.config.memory == "client" else None
        goodbye = Reply(
            "goodbye",
            *(instruction.job, instruction.epoch, instruction.config, instruction.layout, client),
            round=instruction.round,
            ticket=instruction.ticket,
            base=base,
            update_digest=digest_of(np.zeros(SIZE, np.int32)),
            checksum=checksum_of(wrong),
            upload=wrong,
        )
        before = self.ledger.sums().delta.copy()
        verdict = self._run_server(lambda: self.ledger.handle_reply(goodbye))
        if verdict is not None:
            expected = {"lost", "refused"} if self.config.memory == "client" else {"refused"}
            assert verdict.outcome in expected, "a goodbye left a part of the client in the sum"
            assert self.ledger.sums().delta.tolist() == before.tolist()
            self.statistics[f"hostile goodbye: {verdict.outcome}"] += 1

    def do_backup(self, *_: int) -> None:
        """Back up the ledger."""
        with closing(sqlite3.connect(":memory:")) as copy:
            self.connection.backup(copy)
            content = copy.serialize()
        self.backups.append(
            Backup(content, dict(self.in_sum), dict(self.weights), set(self.used), self._participations())
        )

    def do_restore(self, which: int, _: int = 0) -> None:
        """Restore the ledger from a backup."""
        backup = self.backups[_position(which, self.backups)]
        self.connection.close()
        self.connection = self._connect(backup.content)
        self.in_sum, self.weights, self.used = dict(backup.in_sum), dict(backup.weights), set(backup.used)
        self.participations = {client: list(rounds) for client, rounds in backup.participations.items()}
        self.ledger_restores += 1
        self.outdated_instructions.update(self.instructions)
        self.data_was_lost = True
        self.ledger = self._open()
        before = self.epoch
        self.round, self.epoch, self.accepted = self.ledger.round, self.ledger.epoch, {}
        self.statistics["ledger restored" + (", other epoch" if before != self.epoch else "")] += 1

    def do_restore_while_running(self, which: int, _: int = 0) -> None:
        """Try to restore a backup while the server runs, which must be refused; only for a ledger in a file."""
        if self.path is not None:
            copy = self.path.with_suffix(".copy")
            copy.write_bytes(self.backups[_position(which, self.backups)].content)
            state = self._state_row()
            with pytest.raises(LedgerError, match="a server is using it"):
                restore(self.path, copy)
            assert self._state_row() == state
            self.statistics["restore refused"] += 1

    def recover(self) -> None:
        """Stop all faults: after a few rounds every client's newest update is in the sum, and losses were reported."""
        self.instructions, self.replies = [], []
        self.connection.trigger.disarm()
        for device in self.devices.values():
            device.storage.trigger.disarm()
        if self.accepted:
            self.do_close_round(0, 0)
            self.check()
        without_base = self.clients_without_base()
        num_reports = self.num_reports
        self.check_progress()
        if self.limits.max_loss_backoff > ROUNDS_TO_RECOVER:
            return  # a client that has reported several losses may be ignored as long as others take part
        for _ in range(ROUNDS_TO_RECOVER):
            self._faultless_round()
            self.check()
        if self.participation is not None:
            self._check_recovery_of_private_job()
            return
        assert not without_base or self.num_reports > num_reports, "an update was lost and the loss was not reported"
        staying = {client for client in self.devices if not self._is_leaving(client)}
        assert {client.id for client in self.ledger.clients()} == staying, "a client is missing"
        assert set(self.in_sum) == staying, "a client's update is not in the sum"
        newest = sum((self._newest_update(client) for client in staying), np.zeros(SIZE, np.int64))
        assert self.ledger.total.tolist() == newest.tolist()

    def check_progress(self) -> None:
        """Check that an upload counts within `ROUNDS_UNTIL_PROGRESS` rounds, if any client may take part."""
        if not self._may_progress():
            self.statistics["progress: too few clients"] += 1
            return
        counted = self.statistics["upload counted"]
        for number in range(1, ROUNDS_UNTIL_PROGRESS + 1):
            self.time += 1.0
            for client in range(len(self.devices)):
                if self.ledger.table.get(self._client(client)) is None:
                    self.do_exchange_hello(client, 0)
            self._chosen_round([client.id for client in self._honest_clients()])
            self.check()
            if self.statistics["upload counted"] > counted:
                self.statistics[f"progress in round {number}"] += 1
                return
        raise AssertionError("no round counts although there are no faults any more")

    def _may_progress(self) -> bool:
        """Return whether some client stays, and may take part in a private job in the next rounds."""
        staying = [client for client in self.devices if not self._is_leaving(client)]
        if self.participation is None:
            return bool(staying)
        if self.ledger_restores:  # a client's own count may be ahead of the ledger's
            return False
        for client in staying:
            state, (_, most) = self._store(client).load(self.job), self.participation
            count = max(state.participations if state else 0, len(self.participations[client]))
            if count < most and not self.devices[client].lost_data:
                return True
        return False

    def _chosen_round(self, available: list[str]) -> None:
        """Run a round with the clients that a server chooses; it asks one less than there are."""
        cohort = choose_cohort(self.ledger, available, size=max(1, len(available) - 1), select=self._oldest_first)
        self.instructions = [encode(instruction) for instruction in self.ledger.issue(cohort).values()]
        while self.instructions:
            self._deliver_instruction(0, keep_copy=False)
            self._deliver_reply(self.replies.pop())
        self._close_round_without([client for client in cohort if client not in self.accepted])

    def _close_round_without(self, missed: list[str]) -> None:
        self.do_close_round(sum(1 << bit for bit, row in enumerate(self._honest_clients()) if row.id in missed), 0)

    def _oldest_first(self, clients: list[str], size: int) -> list[str]:
        rows = [row for row in self.ledger.clients() if row.id in clients]
        return [row.id for row in sorted(rows, key=lambda row: (row.last_round, row.number))][: max(size, 0)]

    def _check_recovery_of_private_job(self) -> None:
        """Check that each client whose limits are not reached is in the sum, unless the ledger was restored."""
        for client, device in self.devices.items():
            state = self._store(client).load(self.job)
            assert self.participation is not None
            if self.ledger_restores or device.lost_data or state is None or state.leaving:
                continue
            count = max(state.participations, len(self.participations[client]))
            assert client in self.in_sum or count >= self.participation[1]

    def _participations(self) -> dict[str, list[int]]:
        return {client: list(rounds) for client, rounds in self.participations.items()}

    def _faultless_round(self) -> None:
        self.time += 1.0
        for client in range(len(self.devices)):
            self.do_send_hello(client)
            self._deliver_instruction(0, keep_copy=False)
            self._deliver_reply(self.replies.pop())
        asked = [client.id for client in self._honest_clients() if client.id not in self.inconsistent]
        self.instructions += [encode(instruction) for instruction in self.ledger.issue(asked).values()]
        while self.instructions:
            self._deliver_instruction(0, keep_copy=False)
            self._deliver_reply(self.replies.pop())
        self.do_close_round(0, 0)

    def _honest_clients(self) -> list[ClientRow]:
        return [client for client in self.ledger.clients() if client.id in self.devices]

    def _exchange(self, num: int, *, copies: int) -> None:
        """Deliver the last instructions and the replies to them; the bits of `copies` say which stay in transit too."""
        for header in self.instructions[len(self.instructions) - num :]:
            before = len(self.replies)
            self.instructions.append(header)
            self._deliver_instruction(len(self.instructions) - 1, keep_copy=False)
            for sent in self.replies[before:]:
                self._deliver_reply(sent)
            if not copies & 2:
                del self.replies[before:]
        if not copies & 4:
            del self.instructions[len(self.instructions) - num :]


def _with_flipped_bit(content: bytes, position: int) -> bytes:
    changed = bytearray(content)
    changed[position // 8 % len(content)] ^= 1 << position % 8
    return bytes(changed)


def _position(which: int, items: Sequence[Any]) -> int:
    """Return the position of the newest item for odd numbers, of any item for even ones."""
    return len(items) - 1 if which % 2 else which // 2 % len(items)
