"""The round loop of a deployment: whoever is here is asked, whoever answers in time counts, and nobody is waited for.

a round:  look who is here; hand the longest absent a ticket; gather what comes back before the deadline;
          merge and commit; evaluate
"""

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from fedlatest.algorithms import Algorithm
from fedlatest.errors import ConfigError, ProtocolError
from fedlatest.flower.message_records import (
    CONFIG,
    MODEL,
    NUM_EXAMPLES,
    ROUND,
    instruct,
    metrics_of,
    read_reply,
    to_record,
)
from fedlatest.flower.outstanding_messages import KEY, Call, Switchboard
from fedlatest.flower.round_outcome import Journal, Tally, mean_metrics
from fedlatest.flower.server_algorithm import merge, model_of, select
from fedlatest.ledger import Ledger, Verdict
from fedlatest.ledger.messages import LEAVING

log = logging.getLogger("flwr")


@dataclass(frozen=True)
class Pace:
    """How long things may take, in seconds."""

    deadline: float = 60.0
    """A round is closed after so long, whoever has answered."""
    patience: float | None = None
    """An answer is still taken, into a later round, for so long; twice the deadline if not said."""
    poll: float = 1.0
    expire: float | None = None
    """A client that was not heard of for so long is removed, and its update with it."""

    def __post_init__(self) -> None:
        for name in ("deadline", "patience", "poll", "expire"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ConfigError(f"{name}={value}: must be a number of seconds above 0")

    @property
    def give_up(self) -> float:
        """When a message is given up."""
        return 2 * self.deadline if self.patience is None else self.patience


class RoundLoop:
    """Plays rounds on a grid; the ledger says which one is next."""

    def __init__(
        self,
        board: Switchboard,
        ledger: Ledger,
        algorithm: Algorithm,
        journal: Journal,
        *,
        cohort_size: int,
        pace: Pace,
        train_config: ConfigRecord | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.board, self.ledger, self.algorithm, self.journal = board, ledger, algorithm, journal
        self.cohort_size, self.pace, self.train_config = cohort_size, pace, train_config
        self.clock, self.sleep = clock, sleep
        self.arrays = ledger.arrays()
        self.tally = Tally()  # of the round that is open
        self._began = clock()
        self._cannot_rebase: set[str] = set()
        self._leaving: set[str] = set()

    @property
    def model(self) -> dict[str, npt.NDArray[Any]]:
        """The model as it stands."""
        return model_of(self.ledger, self.arrays)

    def wait_for(self, num_clients: int, *, seconds: float) -> None:
        """Let clients come before the first round: until so many are here, or for so long."""
        end = self.clock() + seconds
        while True:
            self._look_around()
            found = len(self._members_here())
            if found >= num_clients:
                return
            if self.clock() >= end:
                log.warning("fedlatest: %s of %s clients are here after %.0f s; going on", found, num_clients, seconds)
                return
            self.sleep(self.pace.poll)

    def play_round(self) -> Tally:
        """One round, committed when this returns."""
        tally, began, round = self.tally, self.clock(), self.ledger.round
        self.journal.note("round", round=round)
        record = to_record(self.model)
        while True:
            self._look_around()
            with self._own():
                self._ask(record)
            # If all whom it asked failed or declined, a round waits for others: it must not rush on with nobody.
            if (tally.fruitful and not self.board.at_work(round)) or self.clock() - began >= self.pace.deadline:
                break
            self.sleep(self.pace.poll)
        self._close(began)
        self._expire()
        return tally

    def evaluate(self, config: ConfigRecord | None = None) -> dict[str, float]:
        """The model on the nodes that are here and not at work: means of their metrics by their numbers of examples."""
        record, round, began = to_record(self.model), self.ledger.round, self.clock()
        content = RecordDict({MODEL: record, CONFIG: ConfigRecord({**(config or {}), ROUND: round})})
        busy = self.board.busy()
        here = [(client, node) for client, node in self.board.here().items() if client not in busy]
        self.board.send([(Call("evaluate", node, client, round, began), content) for client, node in here])
        measured = []
        while any(call.kind == "evaluate" for call in self.board.out.values()):
            for call, message in self.board.fetch():
                if call.kind != "evaluate":
                    self._hear(call, message)
                elif not message.has_error():
                    metrics = metrics_of(message)
                    measured.append((metrics.pop(NUM_EXAMPLES, 0.0), metrics))
            if self.clock() - began >= self.pace.deadline:
                self.board.drop("evaluate")
            self.sleep(self.pace.poll)
        return mean_metrics(measured)

    # Looking and asking

    def _look_around(self) -> None:
        """Who is here, what has come back, and a hello to nodes that are new."""
        unknown = self.board.roll_call()
        hellos = [
            (Call("hello", node, key, self.ledger.round, self.clock()), instruct(self.ledger.instruction(key, "hello")))
            for node, key in unknown
        ]
        self.board.send(hellos)
        for call, message in self.board.fetch():
            with self._own():
                self._hear(call, message)
        for call in self.board.give_up():
            log.info("fedlatest: %s did not answer", self.board.name(call.client) or f"node {call.node}")

    @contextmanager
    def _own(self) -> Iterator[None]:
        """Count the seconds of our own code in a round, without those that Flower takes."""
        began, flower, tally = self.clock(), self.board.seconds, self.tally
        yield
        tally.own_seconds += self.clock() - began - (self.board.seconds - flower)

    def _members_here(self) -> set[str]:
        here = self.board.here()
        return {member.id for member in self.ledger.clients() if member.id in here}

    def _ask(self, model: ArrayRecord) -> None:
        """Hand out the places in the cohort that are free."""
        tally = self.tally
        here = self._members_here() - self.board.busy() - tally.settled
        working = [call for call in self.board.at_work(self.ledger.round) if call.kind == "train"]
        room = self.cohort_size - len(working) - len(tally.taken)
        chosen = select(self.algorithm, self.ledger, self.arrays, here, cohort_size=room) if room > 0 else []
        if chosen:
            self._send("train", chosen, model)
            tally.asked += chosen
            self.journal.note("asked", round=self.ledger.round, clients=[self.board.name(client) for client in chosen])
        again = self._to_recall(here - {*chosen, *tally.recalled})
        if again:
            self._send("rebase", again, None)
            tally.recalled += again

    def _to_recall(self, clients: set[str]) -> list[str]:
        """Clients of an earlier epoch, whose last values can be sent again without training, and those that leave."""
        leaving = clients & self._leaving
        if self.ledger.config.memory != "client" or self.ledger.epoch.number == 1:
            return sorted(leaving)
        known = {member.id for member in self.ledger.clients() if member.applied is None}
        return sorted(leaving | (clients & known) - self._cannot_rebase)

    def _send(self, ask: Any, clients: list[str], model: ArrayRecord | None) -> None:
        here, config = self.board.here(), ConfigRecord(dict(self.train_config or {}))
        config[ROUND] = self.ledger.round + 1  # Flower counts from 1
        instructions = self.ledger.issue(clients, ask)
        calls = [
            (
                Call(ask, here[client], client, self.ledger.round, self.clock()),
                instruct(instruction, model=model, config=config),
            )
            for client, instruction in instructions.items()
        ]
        for call in self.board.send(calls):
            log.warning("fedlatest: Flower did not take a message to %s", self.board.name(call.client))

    # Hearing

    def _hear(self, call: Call, message: Message) -> None:
        """Take a reply in; what came of it goes to the tally and, if somebody should know, to the journal."""
        if call.kind == "evaluate":  # of an evaluation that is over
            return
        verdict = self._judge(call, message)
        if call.kind == "hello":
            if call.node not in self.board.clients:
                self.board.snub(call.node, self.pace.deadline)
        elif call.kind == "rebase":
            self._count_rebase(call.client, verdict)
        else:
            self._count(call, verdict)
        if verdict.outcome not in ("accepted", "hello", "declined"):
            who = self.board.name(self.board.clients.get(call.node, call.client)) or f"node {call.node}"
            self.journal.note(verdict.outcome, round=self.ledger.round, client=who, why=verdict.why)

    def _count(self, call: Call, verdict: Verdict) -> None:
        tally = self.tally
        groups = {"accepted": tally.taken, "left": tally.left, "declined": tally.declined, "refused": tally.refused}
        groups.get(verdict.outcome, tally.failed).append(call.client)
        if verdict.outcome == "accepted" and call.round < self.ledger.round:
            tally.late.append(call.client)

    def _count_rebase(self, client: str, verdict: Verdict) -> None:
        if verdict.outcome == "accepted":
            self.tally.back.append(client)
        elif verdict.outcome == "left":
            self.tally.left.append(client)
        elif verdict.outcome == "declined":
            self._cannot_rebase.add(client)

    def _judge(self, call: Call, message: Message) -> Verdict:
        if message.has_error():
            if call.kind == "hello":
                return Verdict("failed", f"no hello: {message.error.reason}")
            return Verdict("failed", f"{message.error.reason} (code {message.error.code})")
        try:
            reply = read_reply(message, size=self.ledger.layout.size)
        except ProtocolError as error:
            return Verdict("refused", str(error))
        if reply.client != call.client and (call.client or reply.client.startswith(KEY)):
            return Verdict("refused", f"it says that it is {reply.client}{f' ({reply.why})' if reply.why else ''}")
        if call.kind == "hello":
            if reply.kind not in ("hello", "ahead"):
                return Verdict("failed", reply.why)
            self.board.meet(call.node, reply.client)
            verdict = self.ledger.handle_hello(reply)
            if verdict.outcome == "hello" and reply.why == LEAVING:
                self._leaving.add(reply.client)  # ask for its goodbye at once
            return verdict
        verdict = self.ledger.handle_reply(reply)
        if verdict.outcome == "accepted" and reply.trained:
            self.tally.measured.append((reply.weight, reply.metrics))
        return verdict

    # Closing

    def _close(self, began: float) -> None:
        tally, round, epoch = self.tally, self.ledger.round, self.ledger.epoch
        heard = self._members_here() - {*tally.missed, *tally.left}
        resting = {member.id for member in self.ledger.clients() if member.backoff_until > round}
        here = heard - {*tally.declined, *resting}  # who rests would not have worked: it is not known to be available
        why = self.ledger.needs_resync
        with self._own():
            self.arrays = merge(self.algorithm, self.ledger, self.arrays, tally.taken)
            self.ledger.close_round(
                self.arrays, available=here, reachable=heard, missed=tally.missed, declined=tally.declined
            )
        self.tally = Tally()
        self._note_merged(tally, round, here, self.clock() - began)
        if self.ledger.epoch != epoch:
            self._cannot_rebase.clear()
            self.journal.note("resync", round=round, epoch=self.ledger.epoch.number, why=why)

    def _note_merged(self, tally: Tally, round: int, here: set[str], seconds: float) -> None:
        def names(clients: Iterable[str]) -> list[str]:
            return sorted(map(self.board.name, clients))

        self.journal.note(
            "merged",
            round=round,
            here=names(here),
            applied=names(tally.taken),
            back=names(tally.back),
            left=names(tally.left),
            declined=names(tally.declined),
            late=names(tally.late),
            refused=names([*tally.refused, *tally.failed]),
            unanswered=names(set(tally.missed) - {*tally.failed, *tally.refused}),
            staleness={self.board.name(m.id): round - m.last_round for m in self.ledger.clients()},
            train_loss=tally.metrics.get("train_loss"),
            seconds=round_seconds(seconds),
            own_seconds=round_seconds(tally.own_seconds),
        )

    def _expire(self) -> None:
        """Remove who was silent for too long, right after a round; silence counts while this server listens."""
        if self.pace.expire is None or self.clock() - self._began < self.pace.expire:
            return
        epoch = self.ledger.epoch
        for client in self.ledger.expire(seconds=self.pace.expire):
            self.board.forget(client)
            self.journal.note("expired", client=self.board.name(client), why=f"silent for {self.pace.expire:g} s")
        if self.ledger.epoch != epoch:
            self._cannot_rebase.clear()
            self.journal.note("resync", round=self.ledger.round, epoch=self.ledger.epoch.number, why="clients expired")


def round_seconds(seconds: float) -> float:
    """Seconds to the millisecond."""
    return round(seconds, 3)
