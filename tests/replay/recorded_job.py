"""A deployed job in one process with a simulated clock, whose clients come, go, decline, fail and answer late."""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message
from flwr.clientapp import ClientApp

import fedlatest
from fedlatest.algorithms import Algorithm
from fedlatest.errors import DeclinedError
from fedlatest.flower import ClientResult, ClientTask, FedLaAvg, LocalGrid, Timeouts, client_app, to_record
from fedlatest.flower.outstanding_messages import OutstandingMessages
from fedlatest.flower.round_loop import RoundLoop
from fedlatest.flower.round_outcome import EventLog
from fedlatest.ledger.job_folder import LEDGER
from tests.after_test import after_test
from tests.flower.small_job import Weights
from tests.ledger.faults import CrashError

MODEL = {"weight": np.zeros((64, 10), np.float32), "bias": np.zeros(10, np.float32)}


class SlowGrid(LocalGrid):
    """A grid on which each reply arrives some seconds after its request, and some never."""

    def __init__(self, job: "RecordedJob") -> None:
        super().__init__()
        self.job = job
        self.held: dict[str, tuple[float, Message]] = {}  # by message id: when it arrives

    def pull_messages(self, message_ids: list[str]) -> list[Message]:  # type: ignore[override]
        for reply in super().pull_messages(message_ids):
            delay = 0.0 if "vector" not in reply.content else self.job.delay()
            if delay is not None:
                self.held[reply.metadata.reply_to_message_id] = (self.job.now + delay, reply)
        due = [key for key in message_ids if key in self.held and self.held[key][0] <= self.job.now]
        return [self.held.pop(key)[1] for key in due]


class RecordedJob:
    """Runs rounds of a job whose model has the shapes of the digits app; faults are drawn by a seed.

    Args:
        folder: The job's folder.
        num_clients: Number of clients; the last one joins in the third round.
        cohort_size: Clients asked in a round.
        algorithm: The algorithm; FedLaAvg by default.
        chances: The chances of a client to be offline in a round, of a reply to be declined, lost, or slow.
        seed: Seed of the faults and of the job.
        options: Further options of `FedLaAvg`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        num_clients: int = 8,
        cohort_size: int = 3,
        algorithm: Algorithm | None = None,
        chances: Mapping[str, float] | None = None,
        seed: int = 5,
        **options: Any,
    ) -> None:
        self.folder, self.now, self.random, self.stops = folder, 0.0, random.Random(seed), False
        self.chances = {"offline": 0.25, "declined": 0.1, "lost": 0.05, "slow": 0.1, **(chances or {})}
        self.grid = SlowGrid(self)
        self.timeouts = Timeouts(deadline=10, poll=0.5, late_reply=40)
        self.strategy = FedLaAvg(algorithm=algorithm, job=folder, cohort_size=cohort_size, seed=seed, **options)
        sizes = np.diff(fedlatest.dirichlet(fedlatest.load_digits().labels, num_clients=8, alpha=0.5, seed=0).offsets)
        self.nodes = [
            self.grid.add(self._app(int(sizes[number % 8])), self._node_config(number)) for number in range(num_clients)
        ]
        self.open()

    def open(self) -> None:
        """Start a server, after the one that is running."""
        self.ledger = after_test.enter_context(self.strategy.open_ledger(to_record(MODEL), clock=lambda: self.now))
        messages = OutstandingMessages(self.grid, self.timeouts.message_ttl, 12, clock=lambda: self.now)
        self.loop = RoundLoop(
            messages, self.ledger, self.strategy.algorithm, EventLog(self.folder / "events.jsonl"),
            cohort_size=self.strategy.cohort_size, timeouts=self.timeouts, clock=lambda: self.now, sleep=self._sleep,
        )  # fmt: skip

    def run(self, rounds: int) -> Path:
        """Run some rounds, close the ledger, and return its file."""
        self.run_rounds(rounds)
        self.ledger.close()
        return self.folder / LEDGER

    def run_rounds(self, rounds: int) -> None:
        """Run some rounds."""
        for _ in range(rounds):
            for number, node in enumerate(self.nodes):
                has_joined = number < len(self.nodes) - 1 or self.ledger.round >= 2
                self.grid.nodes[node].online = has_joined and self.random.random() >= self.chances["offline"]
            self.loop.run_round()

    def crash(self) -> None:
        """Stop the server in the middle of a round, after it has asked clients, and start another one."""
        self.stops = True
        with pytest.raises(CrashError):
            self.run_rounds(1)
        self.stops = False
        self.open()

    def delay(self) -> float | None:
        """Return after how many seconds an upload arrives; None if it is lost."""
        if self.random.random() < self.chances["lost"]:
            return None
        return self.random.uniform(11, 25) if self.random.random() < self.chances["slow"] else self.random.uniform(1, 6)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.stops:
            raise CrashError
        if self.random.random() < 0.02:  # a node goes offline or comes back within a round
            node = self.grid.nodes[self.random.choice(self.nodes[:-1])]
            node.online = not node.online

    def _app(self, num_examples: int) -> ClientApp:
        def train(weights: Weights, task: ClientTask) -> ClientResult:
            del task
            if self.random.random() < self.chances["declined"]:
                raise DeclinedError("on battery")
            return ClientResult(num_examples, {"train_loss": 1.0}, {name: part + 1 for name, part in weights.items()})

        return client_app(train)

    def _node_config(self, number: int) -> dict[str, str]:
        return {"state-dir": str(self.folder.parent / f"state{number}"), "name": f"client{number}"}
