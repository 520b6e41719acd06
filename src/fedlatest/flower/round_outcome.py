"""Who did what in a round, and what was measured on the way."""

import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from fedlatest.ledger.job_folder import append_event

Measured = tuple[float, Mapping[str, float]]  # weight, metrics


@dataclass
class Tally:
    """The round that is open; an upload that comes between two rounds belongs to the next one."""

    asked: list[str] = field(default_factory=list)  # to train
    recalled: list[str] = field(default_factory=list)  # asked to send again what they hold
    taken: list[str] = field(default_factory=list)
    back: list[str] = field(default_factory=list)  # whose earlier value is in the sum again
    left: list[str] = field(default_factory=list)
    declined: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)  # taken, though asked in an earlier round
    measured: list[Measured] = field(default_factory=list)
    own_seconds: float = 0.0

    @property
    def fruitful(self) -> bool:
        """Whether anything came of it yet."""
        return bool(self.taken or self.back or self.left)

    @property
    def settled(self) -> set[str]:
        """Clients that are not to be asked any more: a value that was taken must stay on the client's disk."""
        return {*self.asked, *self.taken, *self.back, *self.left}

    @property
    def missed(self) -> list[str]:
        """Clients that were asked, did not work, and did not say that they may not."""
        fine = {*self.taken, *self.left, *self.declined}
        return [client for client in self.asked if client not in fine]

    @property
    def metrics(self) -> dict[str, float]:
        """What those measured that took part, by their weights."""
        return mean_metrics(self.measured)


def mean_metrics(measured: Iterable[Measured]) -> dict[str, float]:
    """The mean of each metric by the weights of those that have it.

    >>> mean_metrics([(1, {"loss": 4.0}), (3, {"loss": 0.0, "accuracy": 1.0})])
    {'loss': 1.0, 'accuracy': 1.0}
    """
    sums: dict[str, float] = {}
    weights: dict[str, float] = {}
    for weight, metrics in measured:
        for name, value in metrics.items() if 0 < weight < math.inf else ():
            if not math.isfinite(value):
                continue
            sums[name] = sums.get(name, 0.0) + weight * value
            weights[name] = weights.get(name, 0.0) + weight
    return {name: value / weights[name] for name, value in sums.items()}


log = logging.getLogger("flwr")
MOST = 300  # characters of a text: some come from clients
LOUD = {"refused", "lost", "restored", "resync", "expired", "failed", "left", "joined", "stopped"}


class Journal:
    """Appends events; those that an operator should know of go to Flower's log as well."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, event: str, **facts: Any) -> None:
        """Write an event; what is not a finite number has no place in JSON, and is null."""
        facts = {name: fact[:MOST] if isinstance(fact, str) else fact for name, fact in facts.items()}
        facts = {name: None if isinstance(fact, float) and not isfinite(fact) else fact for name, fact in facts.items()}
        append_event(self.path, event, **facts)
        if event in LOUD:
            words = " ".join(f"{name}={value}" for name, value in facts.items() if value != "")
            (log.warning if event != "joined" else log.info)("fedlatest: %s %s", event, words)
