"""A slow, obvious reference for asynchronous algorithms: a Python event queue, in plain NumPy and whole milliseconds.

Events are processed one by one in the order of (time, dispatch, slot). Each class is one algorithm and follows its
update rule literally, with a dictionary of the clients' latest updates where it remembers them.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.data import Federation
from tests.reference import SELECTION, Floats, batches, bits, gradient


class Event(NamedTuple):
    """A client that arrives or fails; events are ordered by the first three fields."""

    time: int
    dispatch: int
    slot: int
    client: int
    version: int
    fails: bool
    update: Floats
    start: Floats  # the model with which the client started


@dataclass
class EventQueue:
    """Lets clients start and arrive; subclasses say what the server does with arrivals."""

    federation: Federation
    available: Callable[[int], npt.NDArray[np.bool_]]
    delay: Callable[[int, int], int]  # (client, dispatch) -> milliseconds
    x: Floats
    in_flight: int
    steps: int
    batch: int
    rate: float
    seed: int = 0
    seconds_per_round: int = 60
    interruption: str = "finish"
    buffer: int = 1
    server_step: float = 1.0
    staleness_power: float = 0.5
    mixing: float = 0.6
    mu: float = 0.0
    max_age: int = 100
    first_step: str = "arrival"
    now: int = 0
    version: int = 0
    dispatches: int = 0
    num_started: int = 0
    waiting: list[tuple[Event, int]] = field(default_factory=list)  # arrivals in the buffer, with their staleness
    latest: dict[int, tuple[Floats, int]] = field(default_factory=dict)  # client -> update, version of its start
    last_start: dict[int, int] = field(default_factory=dict)
    arrived: list[int] = field(default_factory=list)

    def run(self, num_steps: int) -> None:
        queue: list[tuple[tuple[int, int, int], Event]] = []
        free = set(range(self.in_flight))
        while self.version < num_steps:
            if queue and queue[0][0][0] == self.now:
                _, event = heapq.heappop(queue)
                free.add(event.slot)
                if not event.fails:
                    self.receive(event)
                continue
            for event in self.start_clients(sorted(free), {event.client for _, event in queue}):
                free.remove(event.slot)
                heapq.heappush(queue, (event[:3], event))
            times = [queue[0][0][0]] if queue else []
            if free:
                length = 1000 * self.seconds_per_round
                times.append((self.now // length + 1) * length)
            self.now = min(times)

    def start_clients(self, slots: list[int], at_work: set[int]) -> list[Event]:
        if not slots:
            return []
        present = np.flatnonzero(self.available(self.now // (1000 * self.seconds_per_round))).tolist()
        chosen = self.order([client for client in present if client not in at_work])[: len(slots)]
        events = []
        for slot, client in zip(slots, chosen, strict=False):
            time, fails = self.finish(client)
            local = self.train(client)
            events.append(
                Event(time, self.dispatches, slot, client, self.version, fails, local - self.x, self.x.copy())
            )
        for client in chosen:
            self.last_start[client] = self.dispatches
        self.num_started += len(events)
        self.dispatches += 1
        return events

    def order(self, clients: list[int]) -> list[int]:
        """Return the clients in the order in which they should start: at random."""
        return sorted(clients, key=lambda c: -(bits(self.seed, SELECTION, int(self.ids[c]), self.dispatches) >> 2))

    def finish(self, client: int) -> tuple[int, bool]:
        """Return when a client that starts now arrives or fails, millisecond by millisecond of its work."""
        left, time, length = self.delay(client, self.dispatches), self.now, 1000 * self.seconds_per_round
        if self.interruption == "finish":
            return time + left, False
        while left:
            if self.available(time // length)[client]:
                worked = min(left, length - time % length)
                left, time = left - worked, time + worked
            elif self.interruption == "fail":
                return time, True
            else:
                time = (time // length + 1) * length
        return time, False

    def train(self, client: int) -> Floats:
        federation, x = self.federation, self.x.copy()
        weight = len(federation.labels) and self.weight(client)
        rows = batches(federation, client, round=self.dispatches, seed=self.seed, steps=self.steps, size=self.batch)
        for batch in rows:
            features = np.asarray(federation.features, np.float64)[batch]
            pull = self.mu * (x - self.x)  # the gradient of (mu/2) ||x - x_start||^2
            x = x - self.rate * (weight * gradient(x, features, federation.labels[batch]) + pull)
        return x

    def weight(self, client: int) -> float:
        sizes = self.federation.sizes
        return float(sizes[client] * len(sizes) / sizes.sum())

    @property
    def ids(self) -> Any:
        return self.federation.ids

    def receive(self, event: Event) -> None:
        self.arrived.append(event.client)
        self.waiting.append((event, self.version - event.version))
        if len(self.waiting) == self.buffer:
            self.merge()
            self.waiting = []
            self.version += 1

    def merge(self) -> None:
        raise NotImplementedError


class FedBuff(EventQueue):
    def merge(self) -> None:
        total = sum((1 + age) ** -self.staleness_power * event.update for event, age in self.waiting)
        self.x = self.x + self.server_step * total / self.buffer


class FedAsync(EventQueue):
    def merge(self) -> None:
        [(event, age)] = self.waiting
        alpha = self.mixing * (1 + age) ** -self.staleness_power
        self.x = (1 - alpha) * self.x + alpha * (event.start + event.update)


class Ca2fl(EventQueue):
    def merge(self) -> None:
        mean = sum((update for update, _ in self.latest.values()), np.zeros_like(self.x)) / self.federation.num_clients
        correction = np.zeros_like(self.x)
        for event, _ in self.waiting:
            old = self.latest[event.client][0] if event.client in self.latest else 0.0
            correction += event.update - old
            self.latest[event.client] = event.update, event.version
        self.x = self.x + self.server_step * (mean + correction / self.buffer)


class Ace(EventQueue):
    def collects(self) -> bool:
        """Return whether the server still collects one update of everyone before its first step."""
        return self.first_step == "everyone" and len(self.latest) < self.federation.num_clients

    def order(self, clients: list[int]) -> list[int]:
        return super().order([c for c in clients if c not in self.latest] if self.collects() else clients)

    def merge(self) -> None:
        for event, _ in self.waiting:
            self.latest[event.client] = event.update, event.version
        self.forget()
        if self.latest and not self.collects():
            average = sum((update for update, _ in self.latest.values()), np.zeros_like(self.x)) / self.divisor()
            self.x = self.x + self.server_step * average

    def forget(self) -> None:
        """ACE keeps everything."""

    def divisor(self) -> int:
        return len(self.latest)


class Aced(Ace):
    def forget(self) -> None:
        self.latest = {c: kept for c, kept in self.latest.items() if self.version - kept[1] <= self.max_age}


class FedLaAvgAsync(Ace):
    def divisor(self) -> int:
        return self.federation.num_clients

    def order(self, clients: list[int]) -> list[int]:
        """Those that started longest ago first, at random among equal ones."""

        def key(client: int) -> tuple[int, int]:
            last = self.last_start.get(client, -1)
            return last, -(bits(self.seed, SELECTION, int(self.ids[client]), last) >> 2)

        return sorted(clients, key=key)


REFERENCES: dict[str, type[EventQueue]] = {
    "ace": Ace,
    "aced": Aced,
    "ca2fl": Ca2fl,
    "fedasync": FedAsync,
    "fedbuff": FedBuff,
    "fedlaavg_async": FedLaAvgAsync,
}
