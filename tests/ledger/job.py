"""A job in memory with a few clients and a model of two numbers, controlled step by step by a test."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedlatest.ledger import (
    ClientStore,
    Instruction,
    JobConfig,
    Layout,
    Ledger,
    Limits,
    LocalUpdate,
    Reply,
    Verdict,
    handle_instruction,
)
from fedlatest.ledger.database import Database
from tests.after_test import after_test
from tests.ledger.faults import FaultyStorage

LAYOUT = Layout.of({"x": np.zeros(2, np.float32)})
ARRAYS = {"x": np.zeros(2, np.float32)}


class Job:
    """A ledger, closed after the test, and the storage of its clients; `unit` is 1, so updates are small integers."""

    def __init__(
        self, *clients: str, database: Database | None = None, limits: Limits | None = None, **settings: Any
    ) -> None:
        self.config, self.limits = JobConfig(settings.pop("algorithm", "fedlaavg"), unit=1.0, **settings), limits
        self.database = database or Database.open(":memory:")
        after_test.callback(lambda: self.database.close())
        self.time = 0.0
        self.num_tokens = 0
        self.ledger = self.open()
        self.storages = {client: FaultyStorage() for client in clients}
        for client in clients:
            self.exchange_hello(client)

    def open(self) -> Ledger:
        """Open the ledger, as a server does when it starts."""
        options: Any = {"clock": lambda: self.time, "token": self._token, "limits": self.limits}
        return Ledger.open(self.database, config=self.config, layout=LAYOUT, arrays=lambda: ARRAYS, **options)

    def store(self, client: str) -> ClientStore:
        return ClientStore(self.storages[client])

    def hello(self, client: str) -> Reply:
        """Return a client's reply to a hello."""
        hello = self.ledger.instruction(client, "hello")
        return handle_instruction(self.store(client), hello, train=_must_not_train, weight=1.0)

    def exchange_hello(self, client: str) -> Verdict:
        """Send a hello to a client and hand its reply to the ledger."""
        return self.ledger.handle_hello(self.hello(client))

    def issue(self, client: str, kind: Any = "train") -> Instruction:
        """Issue a ticket to one client."""
        return self.ledger.issue([client], kind)[client]

    def reply(self, instruction: Instruction, *update: int, weight: float = 1.0, metrics: Any = None) -> Reply:
        """Return the client's reply if training results in `update`."""
        result = LocalUpdate(np.array(update, np.int32), weight, metrics or {})
        return handle_instruction(self.store(instruction.client), instruction, train=lambda: result, weight=weight)

    def upload(self, client: str, *update: int) -> Verdict:
        """Let a client train and upload; the round stays open."""
        return self.ledger.handle_reply(self.reply(self.issue(client), *update))

    def close_round(self, **more: Any) -> None:
        self.ledger.close_round(ARRAYS, **more)

    def round(self, updates: dict[str, Sequence[int]]) -> list[str]:
        """Run a whole round and return the outcome of each upload."""
        outcomes: list[str] = [self.upload(client, *update).outcome for client, update in updates.items()]
        self.close_round()
        return outcomes

    @property
    def total(self) -> list[int]:
        """The sum in memory, after checking that the file has the same."""
        assert self.ledger.total.tolist() == self.database.get_arrays("sum")["total"].tolist()
        return [int(number) for number in self.ledger.total]

    def _token(self) -> str:
        self.num_tokens += 1
        return f"{self.num_tokens:x}"


def _must_not_train() -> LocalUpdate:
    raise AssertionError("the instruction does not ask for training")
