"""A small job in one process with a simulated clock, so deadlines pass without waiting."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Message
from flwr.clientapp import ClientApp

from fedlatest.flower import ClientResult, ClientTask, FedLaAvg, LocalGrid, Timeouts, client_app, to_record
from fedlatest.flower.local_grid import ReplyHook
from fedlatest.flower.outstanding_messages import OutstandingMessages
from fedlatest.flower.round_loop import RoundLoop
from fedlatest.flower.round_outcome import EventLog, RoundOutcome
from fedlatest.ledger import ClientRow, ClientStore, FolderStorage
from fedlatest.ledger.audit import Audit, audit
from fedlatest.ledger.event_log import read_events
from tests.after_test import after_test

Weights = dict[str, npt.NDArray[Any]]
Train = Callable[[Weights, ClientTask], ClientResult]
INITIAL: Weights = {"w": np.zeros(3, np.float32)}


def towards(goal: float, *, num_examples: int = 2) -> Train:
    """Make a training function that moves the model half of the distance to `goal`."""

    def train(weights: Weights, task: ClientTask) -> ClientResult:
        moved = {name: part + (goal - part) / 2 for name, part in weights.items()}
        return ClientResult(num_examples, {"train_loss": float(task.round)}, moved)

    return train


class SmallJob:
    """A job with clients a, b and c by default, which train towards 1, 2 and 3."""

    def __init__(
        self,
        folder: Path,
        *,
        clients: str = "abc",
        cohort_size: int = 3,
        timeouts: Timeouts | None = None,
        **options: Any,
    ) -> None:
        self.folder, self.grid, self.now, self.nodes = folder, LocalGrid(), 0.0, dict[str, int]()
        self.timeouts = timeouts or Timeouts(deadline=10, poll=1)
        self.strategy = FedLaAvg(job=folder / "job", cohort_size=cohort_size, **options)
        for number, name in enumerate(clients):
            self.add(name, client_app(towards(number + 1)))
        self.reopen()

    def add(self, name: str, app: ClientApp, *, key: bytes = b"", node_config: Mapping[str, Any] | None = None) -> int:
        """Start the node of a client and return its id."""
        config = {"state-dir": str(self.folder / "nodes" / name / "state"), "name": name, **(node_config or {})}
        self.nodes[name] = self.grid.add(app, config, public_key=key, name=name if key else "")
        return self.nodes[name]

    def online(self, names: str) -> None:
        """Set these clients online, and all others offline."""
        for name, node in self.nodes.items():
            self.grid.nodes[node].online = name in names

    def reopen(self) -> None:
        """Start a new server on the same job folder."""
        self.ledger = after_test.enter_context(self.strategy.open_ledger(to_record(INITIAL), clock=lambda: self.now))
        self.messages = OutstandingMessages(self.grid, self.timeouts.message_ttl, 12, clock=lambda: self.now)
        self.loop = RoundLoop(
            self.messages,
            self.ledger,
            self.strategy.algorithm,
            EventLog(self.folder / "job/events.jsonl"),
            cohort_size=self.strategy.cohort_size,
            timeouts=self.timeouts,
            clock=lambda: self.now,
            sleep=self._sleep,
        )

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def run_round(self, online: str | None = None) -> RoundOutcome:
        """Run one round with these clients online."""
        if online is not None:
            self.online(online)
        return self.loop.run_round()

    def events(self, *kinds: str) -> list[Mapping[str, Any]]:
        """Return the events of some kinds from the event log."""
        return [event for event in read_events(self.folder / "job/events.jsonl") if event["event"] in kinds]

    def member(self, name: str) -> ClientRow:
        """Return the ledger's entry of a client."""
        [found] = [member for member in self.ledger.clients() if member.id == name]
        return found

    def store(self, name: str) -> ClientStore:
        """Return the store of a client."""
        return ClientStore(FolderStorage(self.folder / "nodes" / name / "state"))

    def audit(self) -> Audit:
        """Compare the sum with the updates in the clients' stores."""
        stores = [ClientStore(FolderStorage(path)) for path in sorted((self.folder / "nodes").glob("*/state"))]
        return audit(self.folder / "job/ledger.sqlite", stores)

    def change_next_upload(self, change: ReplyHook, *, of: str) -> None:
        """Apply `change` to the next upload of a client, and to no other reply."""

        def on_reply(node: int, message: Message) -> Message | None:
            if node != self.nodes[of] or message.has_error() or "vector" not in message.content:
                return message
            self.grid.on_reply = lambda node, message: message
            return change(node, message)

        self.grid.on_reply = on_reply


def lose(node: int, message: Message) -> None:
    """Drop a message."""
