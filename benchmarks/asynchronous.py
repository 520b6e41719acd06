"""Arrivals per second of asynchronous algorithms, beside a plain Python event loop that does the same work.

    python -m benchmarks.asynchronous              N = 1000 clients, 100 of them at work, logistic regression
    python -m benchmarks.asynchronous --seconds 3  a longer measurement of each

Both run in this process, pinned to one core, and take turns, so that both see the same machine. The event loop is a
heap of arrivals with one NumPy call per operation: it selects a client, draws its delay and batches, trains it, and
applies the update. Rates are given per second of wall time and of CPU time, which depends less on other processes.
"""

import argparse
import heapq
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.machine import describe_machine, use_one_core
from benchmarks.workloads import CLASSES, COHORT, IMAGE_BATCH, IMAGE_RATE, PIXELS, STEPS, images

NUM_CLIENTS, SAMPLES, MEDIAN, SIGMA, BUFFER = 1000, 60, 10.0, 0.5, 10
METHODS = ("fedasync", "fedbuff", "ca2fl", "fedlaavg_async", "ace")
BLOCK = 50  # server steps per call of the compiled program


class Rate(NamedTuple):
    """Arrivals per second."""

    wall: float
    cpu: float


class EventLoop:
    """A plain Python event loop for one asynchronous method, with NumPy arrays of single precision."""

    def __init__(self, method: str) -> None:
        federation = images(NUM_CLIENTS, SAMPLES)
        self.method, self.rng = method, np.random.default_rng(0)
        self.features = np.asarray(federation.features, np.float32)
        self.labels = federation.labels
        self.x = np.zeros((CLASSES, PIXELS + 1), np.float32)
        self.latest = np.zeros((NUM_CLIENTS, CLASSES, PIXELS + 1), np.float32)
        self.total = np.zeros_like(self.x)
        self.buffer: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
        self.seen: set[int] = set()
        self.version, self.queue, self.at_work = 0, [], set[int]()  # type: ignore[var-annotated]
        for _ in range(COHORT):
            self.start(0.0)

    def start(self, now: float) -> None:
        """Start a client that is not at work."""
        client = int(self.rng.integers(NUM_CLIENTS))
        while client in self.at_work:
            client = int(self.rng.integers(NUM_CLIENTS))
        self.at_work.add(client)
        delay = MEDIAN * np.exp(SIGMA * self.rng.standard_normal())
        heapq.heappush(self.queue, (now + delay, client, self.version, self.x))

    def train(self, client: int, start: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return a client's update."""
        order = SAMPLES * client + self.rng.permutation(SAMPLES)[: STEPS * IMAGE_BATCH]
        x = start.copy()
        for rows in order.reshape(STEPS, IMAGE_BATCH):
            features = self.features[rows]
            logits = features @ x[:, :-1].T + x[:, -1]
            chances = np.exp(logits - logits.max(axis=1, keepdims=True))
            chances /= chances.sum(axis=1, keepdims=True)
            chances[np.arange(IMAGE_BATCH), self.labels[rows]] -= 1
            chances *= np.float32(IMAGE_RATE / IMAGE_BATCH)
            x[:, :-1] -= chances.T @ features
            x[:, -1] -= chances.sum(axis=0)
        return x - start

    def arrive(self) -> None:
        """Process one arrival and start another client."""
        now, client, version, start = heapq.heappop(self.queue)
        self.at_work.remove(client)
        update = self.train(client, start)
        discount = np.float32((1 + self.version - version) ** -0.5)
        if self.method == "fedasync":
            self.step(np.float32(0.6) * discount * (start + update - self.x))
        elif self.method == "fedbuff":
            self.buffer.append((discount * update, update))
            if len(self.buffer) == BUFFER:
                self.step(np.sum([entry for entry, _ in self.buffer], axis=0) / BUFFER)
                self.buffer = []
        else:
            difference = update - self.latest[client]
            self.latest[client] = update
            self.seen.add(client)
            if self.method == "ca2fl":
                self.buffer.append((difference, update))
                if len(self.buffer) == BUFFER:
                    added = np.sum([entry for entry, _ in self.buffer], axis=0)
                    self.step(self.total / NUM_CLIENTS + added / BUFFER)
                    self.total += added
                    self.buffer = []
            else:
                self.total += difference
                self.step(self.total / np.float32(len(self.seen) if self.method == "ace" else NUM_CLIENTS))
        self.start(now)

    def step(self, direction: np.ndarray[Any, Any]) -> None:
        """Move the model; clients at work keep the old one."""
        self.x = self.x + direction
        self.version += 1


def compiled(method: str) -> Callable[[], int]:
    """Return a function that runs a block of server steps of the compiled simulator and returns its arrivals."""
    import fedlatest
    from fedlatest import always, logistic
    from fedlatest.delays import Delays, Timing, lognormal
    from fedlatest.simulation import Engine, ExperimentSpec

    factory = getattr(fedlatest, method)
    algorithm = factory(buffer=BUFFER) if method in ("fedbuff", "ca2fl") else factory()
    spec = ExperimentSpec(
        images(NUM_CLIENTS, SAMPLES), logistic(num_features=PIXELS, num_classes=CLASSES), algorithm,
        always(NUM_CLIENTS), COHORT, num_local_steps=STEPS, batch_size=IMAGE_BATCH, learning_rate=IMAGE_RATE,
        timing=Timing(Delays(training=lognormal(MEDIAN, sigma=SIGMA)), seconds_per_round=60),
    )  # fmt: skip
    engine = Engine([spec])
    states = engine.start()

    def run() -> int:
        nonlocal states
        states, _ = engine.advance(states, BLOCK)
        return BLOCK * (algorithm.buffer or 1)

    return run


def measure(run: Callable[[], int], seconds: float) -> Rate:
    """Return how many arrivals a function processes per second."""
    done, wall, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - wall < seconds:
        done += run()
    return Rate(done / (time.perf_counter() - wall), done / (time.process_time() - cpu))


def main() -> None:
    """Print a table with one row per method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one measurement")
    parser.add_argument("--turns", type=int, default=5, help="measurements of each; the median is shown")
    parser.add_argument("--only", nargs="*", default=METHODS, choices=METHODS, help="methods")
    options = parser.parse_args()
    use_one_core()
    print(describe_machine(), "one core")
    print("| method | arrivals/s | event loop | ratio | arrivals/CPU s | event loop | ratio |")
    print("|---|---|---|---|---|---|---|")
    for method in options.only:
        ours, loop = compiled(method), EventLoop(method)

        def plain(loop: EventLoop = loop) -> int:
            for _ in range(BLOCK):
                loop.arrive()
            return BLOCK

        ours()  # compiles, and starts the first clients
        rates = [(measure(ours, options.seconds), measure(plain, options.seconds)) for _ in range(options.turns)]
        cells = []
        for kind in Rate._fields:
            fast, slow = (
                float(np.median([getattr(rate, kind) for rate in column])) for column in zip(*rates, strict=True)
            )
            cells += [f"{fast:.0f}", f"{slow:.0f}", f"{fast / slow:.1f}"]
        print(f"| {method} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
