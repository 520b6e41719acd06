"""The round loop of a deployment.

A round:
1. find the available clients, and send a "hello" to nodes that are not identified yet;
2. let the algorithm select the cohort, issue a ticket to each of its clients, and send them the model;
3. collect replies until all have answered or the deadline has passed;
4. merge, and commit the round to the ledger.

In a secure job, `fedlatest.flower.secure_cohort` does steps 2 and 3.
"""

import itertools
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy.typing as npt
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from fedlatest.algorithms import Algorithm
from fedlatest.errors import ConfigError, ProtocolError
from fedlatest.flower.message_records import (
    CONFIG,
    MODEL,
    NUM_EXAMPLES,
    ROUND,
    instruction_records,
    metrics_of,
    read_reply,
    to_record,
)
from fedlatest.flower.outstanding_messages import KEY_PREFIX, OutstandingMessage, OutstandingMessages
from fedlatest.flower.round_outcome import EventLog, RoundOutcome, mean_metrics
from fedlatest.flower.secure_cohort import LAST_ASK, SecureCohort
from fedlatest.flower.server_algorithm import merge, model_of, select
from fedlatest.flower.task_recorder import TaskRecorder
from fedlatest.ledger import Instruction, Ledger, Reply, Verdict
from fedlatest.ledger.cohort_choice import choose_cohort
from fedlatest.ledger.durations import OUTCOMES
from fedlatest.ledger.fixed_point import UPLOAD_DTYPE
from fedlatest.ledger.messages import LEAVING
from fedlatest.ledger.participation import shares_metrics
from fedlatest.ledger.secure_settings import MASKED_DTYPE

log = logging.getLogger("flwr")
MISSES_TO_WAIT = 2  # rounds are not kept open for a client that has not replied so many times in a row


@dataclass(frozen=True)
class Timeouts:
    """Timeouts of a deployment, in seconds.

    Args:
        deadline: A round is closed after this time, with the replies that have arrived.
        late_reply: A reply is accepted into a later round if it arrives within this time; 2 * deadline by default.
        poll: Time between two checks for replies.
        expire: A client that has not been online for this time is removed from the job, together with its update;
            never by default. Only the time in which a server was running counts.
    """

    deadline: float = 60.0
    late_reply: float | None = None
    poll: float = 1.0
    expire: float | None = None

    def __post_init__(self) -> None:
        for name in ("deadline", "late_reply", "poll", "expire"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ConfigError(f"{name}={value}: must be a number of seconds above 0")

    @property
    def message_ttl(self) -> float:
        """Time after which the server stops waiting for the reply to a message."""
        return 2 * self.deadline if self.late_reply is None else self.late_reply


class RoundLoop:
    """Runs rounds; the ledger knows the number of the next one.

    Args:
        messages: The connection to the nodes.
        ledger: The ledger of the job.
        algorithm: Selects the cohort and merges the updates.
        events: The event log of the job.
        cohort_size: Number of clients asked to train in a round (K in the paper).
        timeouts: Deadline of a round and other timeouts.
        train_config: Values for the clients' training functions.
        clock: Returns the time in seconds.
        sleep: Waits for some seconds.
    """

    def __init__(
        self,
        messages: OutstandingMessages,
        ledger: Ledger,
        algorithm: Algorithm,
        events: EventLog,
        *,
        cohort_size: int,
        timeouts: Timeouts,
        train_config: ConfigRecord | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.messages, self.ledger, self.algorithm, self.events = messages, ledger, algorithm, events
        self.cohort_size, self.timeouts, self.train_config = cohort_size, timeouts, train_config
        self.clock, self.sleep = clock, sleep
        self.arrays = ledger.arrays()
        self.outcome = RoundOutcome()  # of the open round
        self.tasks = TaskRecorder(cohort_size=cohort_size, deadline=timeouts.deadline)
        self._cannot_rebase: set[str] = set()
        self._silences: Counter[str] = Counter()  # rounds that a client has missed since its last reply of any kind
        self.leaving: set[str] = set()
        self._secure_cohort = SecureCohort(self)

    @property
    def model(self) -> dict[str, npt.NDArray[Any]]:
        """The current model, by the names of its arrays."""
        return model_of(self.ledger, self.arrays)

    def wait_for_clients(self, num_clients: int, *, timeout: float) -> None:
        """Wait until `num_clients` clients are available; log a warning if they are not before the timeout."""
        end = self.clock() + timeout
        while True:
            self.poll_nodes()
            found = len(self.available_clients())
            if found >= num_clients:
                return
            if self.clock() >= end:
                log.warning(
                    "fedlatest: only %s of %s clients are available after %.0f s; starting with them",
                    found, num_clients, timeout,
                )  # fmt: skip
                return
            self.sleep(self.timeouts.poll)

    def run_round(self) -> RoundOutcome:
        """Run one round and commit it to the ledger.

        Raises:
            BudgetError: The privacy budget does not allow the round; it was not started.
        """
        if not self.outcome.has_upload:  # a late upload may be waiting for this round
            self._remove_expelled()
        self.ledger.check_budget()
        outcome, began = self.outcome, self.clock()
        self.tasks.begin(self.ledger.uptime)
        self.events.write("round", round=self.ledger.round, job=self.ledger.job)
        record = to_record(self.model)
        if self.ledger.secure is None:
            self._collect_uploads(record, began)
        else:
            self._secure_cohort.run(record, began)
        del record
        self._close_round(began)
        self._expire_clients()
        self._remove_expelled()
        return outcome

    def _collect_uploads(self, record: ArrayRecord, began: float) -> None:
        outcome, round = self.outcome, self.ledger.round
        while True:
            self.poll_nodes()
            if self.clock() - began < LAST_ASK * self.timeouts.deadline:
                with self.measuring_own_time():
                    self._fill_cohort(record)
            # If all clients that were asked failed or declined, the round waits for others until its deadline.
            complete = outcome.has_upload and not any(map(self.waits_for, self.messages.awaited(round)))
            if complete or self.clock() - began >= self.timeouts.deadline:
                return
            self.sleep(self.timeouts.poll)

    def evaluate(self, config: ConfigRecord | None = None) -> dict[str, float]:
        """Evaluate the model on the available clients that are not busy.

        Returns:
            The mean of each metric, weighted by the clients' numbers of examples.
        """
        round, began, busy = self.ledger.round, self.clock(), self.messages.busy()
        config = ConfigRecord({**(config or {}), ROUND: round})
        content = RecordDict({MODEL: to_record(self.model), CONFIG: config})
        idle = [(client, node) for client, node in self.messages.available().items() if client not in busy]
        self.messages.send(
            [(OutstandingMessage("evaluate", node, client, round, began), content) for client, node in idle]
        )
        measurements = []
        while any(message.kind == "evaluate" for message in self.messages.outstanding.values()):
            for message, reply in itertools.chain.from_iterable(self.messages.receive()):
                if message.kind != "evaluate":
                    self._handle_reply(message, reply)
                elif not reply.has_error():
                    metrics = metrics_of(reply)
                    measurements.append((metrics.pop(NUM_EXAMPLES, 0.0), metrics))
            if self.clock() - began >= self.timeouts.deadline:
                self.messages.drop("evaluate")
            self.sleep(self.timeouts.poll)
        return mean_metrics(measurements)

    # Step 1: available clients

    def poll_nodes(self) -> None:
        """Update which nodes are online, send a "hello" to new ones, and handle the replies that have arrived."""
        with self.measuring_own_time():
            now, round = self.clock(), self.ledger.round
            self.messages.send(
                [
                    (
                        OutstandingMessage("hello", node, client, round, now),
                        instruction_records(self.ledger.instruction(client, "hello")),
                    )
                    for node, client in self.messages.refresh_nodes()
                ]
            )
            for replies in self.messages.receive():
                replies.reverse()
                with self.events.batch(), self.ledger.batch():
                    while replies:  # each is released before the next one is handled, because it may be large
                        self._handle_reply(*replies.pop())
        for message in self.messages.drop_expired():
            name = self.display_name(message.client) or f"node {message.node}"
            log.info("fedlatest: %s did not reply in time", name)

    def display_name(self, client: str) -> str:
        """Return the name of a client for people: that of its registered key, or its id."""
        row = self.ledger.table.get_former(client)
        return (row.name if row is not None else "") or self.messages.display_name(client)

    def waits_for(self, message: OutstandingMessage) -> bool:
        """Whether the round is kept open for the reply to a message."""
        return self._silences[message.client] < MISSES_TO_WAIT

    def available_clients(self) -> set[str]:
        """Return the clients of the job whose nodes are online."""
        available = self.messages.available()
        return {client.id for client in self.ledger.clients() if client.id in available}

    # Step 2: the cohort

    def _fill_cohort(self, model: ArrayRecord) -> None:
        """Ask clients to train until the cohort is full, and others to send their stored update again."""
        outcome = self.outcome
        available = self.available_clients() - self.messages.busy() - outcome.not_to_ask
        training = [message for message in self.messages.awaited(self.ledger.round) if message.kind == "train"]
        room = self.cohort_size - len(training) - len(outcome.accepted)
        cohort, selections = self.choose_cohort(available, room) if room > 0 else ([], [])
        if cohort:
            self.record_selections(selections)
            self._send_instructions("train", cohort, model)
            outcome.asked += cohort
            names = [self.display_name(client) for client in cohort]
            self.events.write("asked", round=self.ledger.round, clients=names)
        rebasing = self._clients_to_rebase(available - {*cohort, *outcome.rebase_asked})
        if rebasing:
            self._send_instructions("rebase", rebasing, None)
            outcome.rebase_asked += rebasing

    def choose_cohort(self, available: Collection[str], size: int) -> tuple[list[str], list[tuple[list[str], int]]]:
        """Return the clients to ask, and among which clients the algorithm selected how many of them at most."""
        selections = []

        def among(clients: list[str], room: int) -> list[str]:
            selected = select(self.algorithm, self.ledger, self.arrays, clients, cohort_size=room)
            if selected:
                selections.append((clients, room))
            return selected

        return choose_cohort(self.ledger, available, size=size, select=among), selections

    def record_selections(self, selections: Iterable[tuple[list[str], int]]) -> None:
        """Record the selections of a cohort that is asked."""
        for clients, room in selections:
            self.tasks.select(clients, room=room, now=self.ledger.uptime)

    def _clients_to_rebase(self, clients: set[str]) -> list[str]:
        """Return clients that can upload without training: those of an earlier epoch, and those that want to leave."""
        leaving = clients & self.leaving
        round, may_take_part = self.ledger.round, self.ledger.may_take_part
        if self.ledger.config.memory != "client" or self.ledger.epoch.number == 1:
            return sorted(leaving)
        not_in_sum = {
            client.id
            for client in self.ledger.clients()
            if client.applied is None and client.backoff_until <= round and may_take_part(client)
        }
        return sorted(leaving | (clients & not_in_sum) - self._cannot_rebase)

    def _send_instructions(
        self, ask: Literal["train", "rebase"], clients: list[str], model: ArrayRecord | None
    ) -> None:
        """Issue tickets durably, then send the instructions."""
        self.send(ask, self.ledger.issue(clients, ask), model)

    def send(
        self,
        ask: Literal["train", "rebase", "unmask"],
        instructions: Mapping[str, Instruction],
        model: ArrayRecord | None = None,
    ) -> None:
        """Send instructions to available clients.

        Args:
            ask: The kind of the instructions.
            instructions: The instructions by client; their tickets are durable.
            model: The model, if the clients are asked to train.
        """
        nodes, round, now = self.messages.available(), self.ledger.round, self.clock()
        config = ConfigRecord(dict(self.train_config or {}))
        config[ROUND] = round + 1  # Flower counts rounds from 1
        rejected = self.messages.send(
            [
                (
                    OutstandingMessage(ask, nodes[client], client, round, now),
                    instruction_records(instruction, model=model, config=config),
                )
                for client, instruction in instructions.items()
            ]
        )
        if ask == "train":
            self.tasks.ask(instructions, round=round, now=self.ledger.uptime)
        for message in rejected:
            log.warning("fedlatest: Flower rejected a message to %s", self.display_name(message.client))

    # Step 3: replies

    @property
    def shares_metrics(self) -> bool:
        """Whether metrics and training seconds may be recorded, whatever clients send."""
        return shares_metrics(self.ledger.config.privacy, self.ledger.config.secure)

    def _handle_reply(self, message: OutstandingMessage, reply: Message) -> None:
        """Pass a reply to the ledger, add the result to the outcome of the round, and log what an operator needs."""
        if message.kind == "evaluate":  # of an evaluation that has ended
            return
        verdict = self._judge(message, reply)
        if not reply.has_error():
            del self._silences[message.client]
        if message.kind == "rebase":
            self._count_rebase(message.client, verdict)
        elif message.kind == "train":
            self._count_training(message, verdict)
        elif message.kind == "unmask":
            self._secure_cohort.count_answer(message.client, answered=verdict.outcome in ("unmasked", "hello"))
        if verdict.outcome not in ("accepted", "collected", "unmasked", "hello", "declined"):
            client = self.messages.clients.get(message.node, message.client)
            name = self.display_name(client) or f"node {message.node}"
            self.events.write(verdict.outcome, round=self.ledger.round, client=name, why=verdict.why)
        if message.kind == "hello" and verdict.outcome in ("refused", "failed"):
            self._forget_stranger(message.node)  # and try again later: the reason may no longer apply

    def _judge(self, message: OutstandingMessage, reply: Message) -> Verdict:
        """Decode a reply, check that it comes from the client that was asked, and pass it to the ledger."""
        if reply.has_error():
            if message.kind == "hello":
                return Verdict("failed", f"no answer to a hello: {reply.error.reason}")
            return Verdict("failed", f"{reply.error.reason} (code {reply.error.code})")
        try:
            decoded = self._decode(reply)
        except ProtocolError as error:
            return Verdict("refused", str(error))
        if decoded.client != message.client and (message.client or decoded.client.startswith(KEY_PREFIX)):
            reason = f" ({decoded.why})" if decoded.why else ""
            return Verdict("refused", f"it claims to be {decoded.client}{reason}")
        if message.kind == "hello":
            if decoded.kind not in ("hello", "ahead"):
                return Verdict("failed", decoded.why)
            self.messages.identify(message.node, decoded.client)
            name = self.messages.display_names.get(decoded.client, "")
            verdict = self.ledger.handle_hello(decoded, name=name)
            self.leaving.discard(decoded.client)
            if verdict.outcome == "hello" and decoded.why == LEAVING:
                self.leaving.add(decoded.client)  # ask for its goodbye in this round
            return verdict
        if message.kind == "unmask":
            return self.ledger.handle_shares(decoded)
        if message.kind == "train" and self.shares_metrics:
            self.tasks.report(message.client, decoded.training_seconds)
        verdict = self.ledger.handle_reply(decoded)
        if decoded.kind == "goodbye":
            self.leaving.add(message.client)  # ask it for nothing else until it has left
        elif decoded.kind in ("upload", "declined"):  # a client that leaves says goodbye, whatever it is asked
            self.leaving.discard(message.client)
        if verdict.outcome == "accepted" and decoded.trained and self.shares_metrics:
            self.outcome.measurements.append((decoded.weight, decoded.metrics))
        return verdict

    def _decode(self, reply: Message) -> Reply:
        dtype = UPLOAD_DTYPE if self.ledger.secure is None else MASKED_DTYPE
        return read_reply(reply, size=self.ledger.layout.size, dtype=dtype)

    def _forget_stranger(self, node: int) -> None:
        """Send no hello to a node for one deadline and a new one then, unless it is a client of the job."""
        client = self.messages.clients.get(node)
        if client is None or self.ledger.table.get(client) is None:
            self.messages.ignore(node, self.timeouts.deadline)
            self.messages.forget_node(node)

    def _count_training(self, message: OutstandingMessage, verdict: Verdict) -> None:
        outcome = self.outcome
        lists = {
            "accepted": outcome.accepted,
            "collected": outcome.collected,
            "left": outcome.left,
            "declined": outcome.declined,
            "hello": outcome.reported,
            "refused": outcome.refused,
        }
        if verdict.outcome != "collected" or message.client not in self.leaving:  # a goodbye counts as "left", or not
            lists.get(verdict.outcome, outcome.failed).append(message.client)
        is_late = verdict.outcome == "accepted" and message.round < self.ledger.round
        if is_late:
            outcome.late.append(message.client)
        found = "late" if is_late else verdict.outcome if verdict.outcome in OUTCOMES else "failed"
        self.tasks.answer(message.client, found, round=message.round, now=self.ledger.uptime)

    def _count_rebase(self, client: str, verdict: Verdict) -> None:
        if verdict.outcome == "accepted":
            self.outcome.rebased.append(client)
        elif verdict.outcome == "left":
            self.outcome.left.append(client)
        elif verdict.outcome == "declined":
            self._cannot_rebase.add(client)

    # Step 4: merge and commit

    def _close_round(self, began: float) -> None:
        outcome, round, epoch = self.outcome, self.ledger.round, self.ledger.epoch
        online = self.available_clients() - {*outcome.missed, *outcome.left}
        resting = {client.id for client in self.ledger.clients() if client.backoff_until > round}
        # A resting client was not asked, so it is not known whether it could have taken part.
        available = online - {*outcome.declined, *resting}
        why = self.ledger.needs_resync
        with self.measuring_own_time():
            self.arrays = merge(self.algorithm, self.ledger, self.arrays, outcome.accepted)
            forgotten = self.ledger.close_round(
                self.arrays, available=available, reachable=online, missed=outcome.missed, declined=outcome.declined,
                tasks=self.tasks.of_round(round, outcome.accepted),
            )  # fmt: skip
        self.tasks.clear()
        self._silences.update(outcome.missed)
        for client in forgotten:
            self.messages.forget(client)  # it is sent a hello when it returns
        self.leaving -= set(outcome.left)
        outcome.num_available = len({*available, *outcome.accepted, *outcome.rebased, *outcome.left})
        self.outcome = RoundOutcome()
        self._log_merged(outcome, round, available, self.clock() - began)
        self._log_new_epoch(epoch.number, round, why)

    def _expire_clients(self) -> None:
        """Remove clients that were offline for too long."""
        limit, epoch = self.timeouts.expire, self.ledger.epoch
        if limit is not None:
            self._log_removed(self.ledger.expire(seconds=limit), "expired", f"not online for {limit:g} s")
            self._log_new_epoch(epoch.number, self.ledger.round, "clients expired")

    def _remove_expelled(self) -> None:
        """Remove clients that an operator has expelled."""
        epoch = self.ledger.epoch
        self._log_removed(self.ledger.remove_expelled(), "expelled", "by the operator")
        self._log_new_epoch(epoch.number, self.ledger.round, "clients were expelled")

    def _log_removed(self, clients: Iterable[str], event: str, why: str) -> None:
        for client in clients:
            self.messages.forget(client)
            self.events.write(event, client=self.display_name(client), why=why)

    def _log_merged(self, outcome: RoundOutcome, round: int, available: set[str], seconds: float) -> None:
        def names(clients: Iterable[str]) -> list[str]:
            return sorted(map(self.display_name, clients))

        self.events.write(
            "merged",
            round=round,
            num_available=len(available),
            applied=names(outcome.accepted),
            back=names(outcome.rebased),
            left=names(outcome.left),
            declined=names(outcome.declined),
            late=names(outcome.late),
            refused=names([*outcome.refused, *outcome.failed]),
            unanswered=names(set(outcome.missed) - {*outcome.failed, *outcome.refused}),
            train_loss=outcome.metrics.get("train_loss"),
            seconds=_milliseconds(seconds),
            own_seconds=_milliseconds(outcome.own_seconds),
            releases=self.ledger.releases,
        )

    def _log_new_epoch(self, before: int, round: int, why: str) -> None:
        number = self.ledger.epoch.number
        if number != before:
            self._cannot_rebase.clear()
            self.events.write("resync", round=round, epoch=number, why=why)

    @contextmanager
    def measuring_own_time(self) -> Iterator[None]:
        """Add the time spent in this block to the outcome, without the time spent in Flower."""
        began, flower, outcome = self.clock(), self.messages.flower_seconds, self.outcome
        yield
        outcome.own_seconds += self.clock() - began - (self.messages.flower_seconds - flower)


def _milliseconds(seconds: float) -> float:
    """Round seconds to milliseconds."""
    return round(seconds, 3)
