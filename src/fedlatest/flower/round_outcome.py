"""What happened in a round: the outcome for each client, the metrics they measured, and the event log."""

import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedlatest.ledger.event_log import append_lines, event_line

Measurement = tuple[float, Mapping[str, float]]  # weight of a client, its metrics
MAX_TEXT = 300  # characters; some texts come from clients
IMPORTANT = {
    *("refused", "lost", "restored", "resync", "expired", "expelled", "failed", "left", "joined", "stopped"),
    "session_failed",
}
log = logging.getLogger("flwr")


@dataclass
class RoundOutcome:
    """Lists the clients by what they did in the open round.

    An upload that arrives between two rounds belongs to the later one.
    """

    asked: list[str] = field(default_factory=list)  # asked to train
    rebase_asked: list[str] = field(default_factory=list)  # asked to send their stored update again
    collected: list[str] = field(default_factory=list)  # sent a masked upload, which counts if its sum is unmasked
    accepted: list[str] = field(default_factory=list)  # trained, and the upload was accepted
    rebased: list[str] = field(default_factory=list)  # sent their stored update again
    left: list[str] = field(default_factory=list)  # left the job
    declined: list[str] = field(default_factory=list)
    reported: list[str] = field(default_factory=list)  # reported a new key instead of an upload
    failed: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)  # accepted, but asked in an earlier round
    measurements: list[Measurement] = field(default_factory=list)
    num_available: int = 0  # clients that were available, including those that took part
    own_seconds: float = 0.0  # time spent in fedlatest, without the time spent waiting for Flower

    @property
    def has_upload(self) -> bool:
        """Whether at least one upload was accepted."""
        return bool(self.accepted or self.rebased or self.left)

    @property
    def not_to_ask(self) -> set[str]:
        """Clients that must not be asked to train again in this round.

        A client whose upload was accepted must keep that update on its disk until the round is closed.
        """
        return {*self.asked, *self.accepted, *self.rebased, *self.left}

    @property
    def missed(self) -> list[str]:
        """Clients that were asked to train and neither did so nor declined nor left nor reported a new key."""
        done = {*self.accepted, *self.collected, *self.left, *self.declined, *self.reported}
        return [client for client in self.asked if client not in done]

    @property
    def metrics(self) -> dict[str, float]:
        """Weighted means of the training metrics of the cohort."""
        return mean_metrics(self.measurements)


class EventLog:
    """Appends events to a JSON-lines file; events that matter to an operator also go to Flower's log."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pending: list[str] | None = None

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Append the events of this context at its end, in one write."""
        self._pending = []
        try:
            yield
        finally:
            lines, self._pending = self._pending, None
            if lines:
                self._append(lines)

    def _append(self, lines: list[str]) -> None:
        try:
            append_lines(self.path, lines, rotate=True)
        except OSError as error:  # such as a full disk; the ledger does not need the event log
            log.warning(
                "fedlatest: %s cannot be written (%s): %s events are lost", self.path, error.strerror, len(lines)
            )

    def write(self, event: str, **facts: Any) -> None:
        """Append one event. Long texts are cut."""
        facts = {name: fact[:MAX_TEXT] if isinstance(fact, str) else fact for name, fact in facts.items()}
        line = event_line(event, **facts)
        if self._pending is not None:
            self._pending.append(line)
        else:
            self._append([line])
        if event in IMPORTANT:
            words = " ".join(f"{name}={value}" for name, value in facts.items() if value != "")
            (log.warning if event != "joined" else log.info)("fedlatest: %s %s", event, words)


def mean_metrics(measurements: Iterable[Measurement]) -> dict[str, float]:
    """Return the weighted mean of each metric over the clients that measured it.

    Metrics and weights that are not finite are ignored.

    >>> mean_metrics([(1, {"loss": 4.0}), (3, {"loss": 0.0, "accuracy": 1.0})])
    {'loss': 1.0, 'accuracy': 1.0}
    """
    sums: dict[str, float] = {}
    weights: dict[str, float] = {}
    for weight, metrics in measurements:
        for name, value in metrics.items() if 0 < weight < math.inf else ():
            if not math.isfinite(value):
                continue
            sums[name] = sums.get(name, 0.0) + weight * value
            weights[name] = weights.get(name, 0.0) + weight
    return {name: value / weights[name] for name, value in sums.items()}
