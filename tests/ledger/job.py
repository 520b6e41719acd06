"""A job in memory with a few clients, to be led by hand: numbers that a reader can check."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedlatest.ledger import ClientStore, Instruction, JobConfig, Layout, Ledger, Reply, Trained, Verdict, answer
from fedlatest.ledger.database import Database
from tests.ledger.faults import FlakyDisk

LAYOUT = Layout.of({"x": np.zeros(2, np.float32)})
ARRAYS = {"x": np.zeros(2, np.float32)}


class Job:
    """A ledger over a model of two numbers, and clients' disks."""

    def __init__(self, *clients: str, database: Database | None = None, **settings: Any) -> None:
        self.config = JobConfig("fedlaavg", unit=1.0, **settings)
        self.database = database or Database.open(":memory:")
        self.time = 0.0
        self.num_tokens = 0
        self.ledger = self.open()
        self.disks = {client: FlakyDisk() for client in clients}
        for client in clients:
            self.greet(client)

    def open(self) -> Ledger:
        """Open the ledger, as a server does when it starts."""
        options: Any = {"clock": lambda: self.time, "token": self._token}
        return Ledger.open(self.database, config=self.config, layout=LAYOUT, arrays=lambda: ARRAYS, **options)

    def store(self, client: str) -> ClientStore:
        return ClientStore(self.disks[client])

    def hello(self, client: str) -> Reply:
        """What a client answers to a hello."""
        return answer(self.store(client), self.ledger.instruction(client, "hello"), train=_never, weight=1.0)

    def greet(self, client: str) -> Verdict:
        return self.ledger.greet(self.hello(client))

    def ask(self, client: str, ask: Any = "train") -> Instruction:
        return self.ledger.issue([client], ask)[client]

    def obey(self, instruction: Instruction, *value: int, weight: float = 1.0, metrics: Any = None) -> Reply:
        """What a client answers if training yields `value`."""
        done = Trained(np.array(value, np.int32), weight, metrics or {})
        return answer(self.store(instruction.client), instruction, train=lambda: done, weight=weight)

    def upload(self, client: str, *value: int) -> Verdict:
        """A client is asked and answers; the round stays open."""
        return self.ledger.take(self.obey(self.ask(client), *value))

    def close(self, **more: Any) -> None:
        self.ledger.close(ARRAYS, **more)

    def round(self, values: dict[str, Sequence[int]]) -> list[str]:
        """A whole round; what became of each upload."""
        outcomes: list[str] = [self.upload(client, *value).outcome for client, value in values.items()]
        self.close()
        return outcomes

    @property
    def total(self) -> list[int]:
        """The sum in memory, which must be that in the file."""
        assert self.ledger.total.tolist() == self.database.get_arrays("sum")["total"].tolist()
        return [int(number) for number in self.ledger.total]

    def _token(self) -> str:
        self.num_tokens += 1
        return f"{self.num_tokens:x}"


def _never() -> Trained:
    raise AssertionError("nobody was asked to train")
