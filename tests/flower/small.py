"""A small job in one process and on a clock of its own, so that deadlines pass in no time."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Message
from flwr.clientapp import ClientApp

from fedlatest.flower import Assignment, FedLaAvg, Fitted, LocalGrid, Pace, client_app, to_record
from fedlatest.flower.outstanding_messages import Switchboard
from fedlatest.flower.round_loop import RoundLoop
from fedlatest.flower.round_outcome import Journal, Tally
from fedlatest.ledger import ClientRow, ClientStore, FolderStorage
from fedlatest.ledger.audit import Audit, audit
from fedlatest.ledger.job_folder import read_events

Weights = dict[str, npt.NDArray[Any]]
Train = Callable[[Weights, Assignment], Fitted]
Mail = Callable[[int, Message], Message | None]
FIRST: Weights = {"w": np.zeros(3, np.float32)}


def towards(goal: float, *, num_examples: int = 2) -> Train:
    """A client that moves the model half the way to a number of its own."""

    def train(weights: Weights, task: Assignment) -> Fitted:
        moved = {name: part + (goal - part) / 2 for name, part in weights.items()}
        return Fitted(num_examples, {"train_loss": float(task.round)}, moved)

    return train


class Small:
    """Three clients, a, b and c, unless told otherwise; `play` plays rounds, and `reopen` is a new server."""

    def __init__(
        self, folder: Path, *, clients: str = "abc", cohort_size: int = 3, pace: Pace | None = None, **options: Any
    ) -> None:
        self.folder, self.grid, self.now, self.nodes = folder, LocalGrid(), 0.0, dict[str, int]()
        self.pace = pace or Pace(deadline=10, poll=1)
        self.strategy = FedLaAvg(job=folder / "job", cohort_size=cohort_size, **options)
        for number, name in enumerate(clients):
            self.add(name, client_app(towards(number + 1)))
        self.reopen()

    def add(self, name: str, app: ClientApp, *, key: bytes = b"", node_config: Mapping[str, Any] | None = None) -> int:
        """Start a client's node."""
        told = {"state-dir": str(self.folder / "nodes" / name / "state"), "name": name, **(node_config or {})}
        self.nodes[name] = self.grid.add(app, told, public_key=key, name=name if key else "")
        return self.nodes[name]

    def online(self, names: str) -> None:
        """These clients are online, and nobody else."""
        for name, node in self.nodes.items():
            self.grid.nodes[node].online = name in names

    def reopen(self) -> None:
        """A new server that knows nothing but the job's folder."""
        self.ledger = self.strategy.open_ledger(to_record(FIRST))
        self.ledger.clock = lambda: self.now
        self.board = Switchboard(self.grid, self.pace.give_up, 12, clock=lambda: self.now)
        self.loop = RoundLoop(
            self.board,
            self.ledger,
            self.strategy.algorithm,
            Journal(self.folder / "job/events.jsonl"),
            cohort_size=self.strategy.cohort_size,
            pace=self.pace,
            clock=lambda: self.now,
            sleep=self._sleep,
        )

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def play(self, online: str | None = None) -> Tally:
        """One round, with these clients online."""
        if online is not None:
            self.online(online)
        return self.loop.play_round()

    def events(self, *kinds: str) -> list[Mapping[str, Any]]:
        """What the journal says of some kinds."""
        return [event for event in read_events(self.folder / "job/events.jsonl") if event["event"] in kinds]

    def member(self, name: str) -> ClientRow:
        """What the ledger says of a client."""
        [found] = [member for member in self.ledger.clients() if member.id == name]
        return found

    def store(self, name: str) -> ClientStore:
        """A client's memory."""
        return ClientStore(FolderStorage(self.folder / "nodes" / name / "state"))

    def audit(self) -> Audit:
        """Compare the sum with what the clients hold."""
        stores = [ClientStore(FolderStorage(path)) for path in sorted((self.folder / "nodes").glob("*/state"))]
        return audit(self.folder / "job/ledger.sqlite", stores)

    def once(self, change: Mail, *, of: str) -> None:
        """The network does something to the next upload of a client, and to that alone."""

        def mail(node: int, message: Message) -> Message | None:
            if node != self.nodes[of] or message.has_error() or "vector" not in message.content:
                return message
            self.grid.mail = lambda node, message: message
            return change(node, message)

        self.grid.mail = mail


def lose(node: int, message: Message) -> None:
    """A message that gets lost."""
