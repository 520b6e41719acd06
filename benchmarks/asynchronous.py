"""Arrivals per second of asynchronous algorithms, beside Python event loops that do the same work.

    python -m benchmarks.asynchronous                       N = 1000 clients, 100 of them at work, logistic regression
    python -m benchmarks.asynchronous --seconds 3           a longer measurement of each
    python -m benchmarks.asynchronous --device gpu --trials 1 16 64

All run in this process, pinned to one core on a CPU, and take turns, so that all see the same machine. An event loop is
a heap of arrivals in Python: it selects a client, draws its delay and batches, trains it, and applies the update. There
are three, which train a client in different ways: with NumPy and gradients written by hand, with a function compiled by
JAX, and with PyTorch's autograd where PyTorch is installed. Rates are given per second of wall time and, on a CPU, of
CPU time, which depends less on other processes.
"""

import argparse
import heapq
import importlib.util
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
    """A plain Python event loop for one asynchronous method, with NumPy arrays and gradients written by hand."""

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

    def batches(self, client: int) -> np.ndarray[Any, Any]:
        """Return the rows of a client's batches, [steps, batch]."""
        order = SAMPLES * client + self.rng.permutation(SAMPLES)[: STEPS * IMAGE_BATCH]
        return order.reshape(STEPS, IMAGE_BATCH)

    def train(self, client: int, start: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return a client's update."""
        x = start.copy()
        for rows in self.batches(client):
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


class JaxEventLoop(EventLoop):
    """The same loop, in which JAX compiles the training of one client and runs it on the CPU."""

    def __init__(self, method: str) -> None:
        import jax

        super().__init__(method)
        self.cpu = jax.devices("cpu")[0]
        self.samples = jax.device_put((self.features, np.asarray(self.labels)), self.cpu)
        self.compiled = jax.jit(_update_in_jax)

    def train(self, client: int, start: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return a client's update."""
        import jax

        with jax.default_device(self.cpu):
            return np.asarray(self.compiled(start, self.batches(client).astype(np.int32), *self.samples))


def _update_in_jax(start: Any, rows: Any, features: Any, labels: Any) -> Any:
    import jax
    import jax.numpy as jnp

    def loss(x: Any, features: Any, labels: Any) -> Any:
        scores = jax.nn.log_softmax(features @ x[:, :-1].T + x[:, -1])
        return -jnp.mean(scores[jnp.arange(IMAGE_BATCH), labels])

    def step(x: Any, rows: Any) -> tuple[Any, None]:
        return x - IMAGE_RATE * jax.grad(loss)(x, features[rows], labels[rows]), None

    return jax.lax.scan(step, start, rows)[0] - start


class TorchEventLoop(EventLoop):
    """The same loop with PyTorch's autograd and optimizer, and one thread."""

    def __init__(self, method: str) -> None:
        import torch

        super().__init__(method)
        torch.set_num_threads(1)
        self.samples = torch.from_numpy(self.features), torch.from_numpy(np.asarray(self.labels, np.int64))

    def train(self, client: int, start: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return a client's update."""
        import torch

        x = torch.from_numpy(start.copy()).requires_grad_()
        optimizer, (features, labels) = torch.optim.SGD([x], lr=IMAGE_RATE), self.samples
        for rows in torch.from_numpy(self.batches(client)):
            optimizer.zero_grad()
            logits = torch.nn.functional.linear(features[rows], x[:, :-1], x[:, -1])
            torch.nn.functional.cross_entropy(logits, labels[rows]).backward()
            optimizer.step()
        return x.detach().numpy() - start


LOOPS = {"NumPy": EventLoop, "JAX": JaxEventLoop, "PyTorch": TorchEventLoop}


def compiled(method: str, num_trials: int) -> Callable[[], int]:
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
        seeds=tuple(range(num_trials)),
    )  # fmt: skip
    engine = Engine([spec])
    states = engine.start()

    def run() -> int:
        nonlocal states
        states, _ = engine.advance(states, BLOCK)
        return num_trials * BLOCK * (algorithm.buffer or 1)

    return run


def measure(run: Callable[[], int], seconds: float) -> Rate:
    """Return how many arrivals a function processes per second."""
    done, wall, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - wall < seconds:
        done += run()
    return Rate(done / (time.perf_counter() - wall), done / (time.process_time() - cpu))


def main() -> None:
    """Print a table with one row per method and number of trials."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one measurement")
    parser.add_argument("--turns", type=int, default=5, help="measurements of each; the median is shown")
    parser.add_argument("--only", nargs="*", default=METHODS, choices=METHODS, help="methods")
    parser.add_argument("--device", default="cpu", choices=("cpu", "gpu"), help="where the simulator runs")
    parser.add_argument("--trials", type=int, nargs="*", default=[1], help="trials side by side")
    options = parser.parse_args()
    if options.device == "cpu":
        use_one_core()
    import jax

    jax.config.update("jax_platforms", "cuda,cpu" if options.device == "gpu" else "cpu")
    kind = "wall" if options.device == "gpu" else "cpu"
    loops = {name: loop for name, loop in LOOPS.items() if name != "PyTorch" or importlib.util.find_spec("torch")}
    print(describe_machine(), jax.devices()[0].device_kind)
    unit = "arrivals/s" if kind == "wall" else "arrivals/CPU s"
    columns = [f"| {name} loop | ratio " for name in loops]
    print(f"| method | trials | arrivals/s | {unit} {''.join(columns)}|")
    print("|---" * (4 + 2 * len(loops)) + "|")
    for method in options.only:
        plain = [_as_run(loop(method)) for loop in loops.values()]
        for num_trials in options.trials:
            runs = [compiled(method, num_trials), *plain]
            for run in runs:
                run()  # compiles, and starts the first clients
            rates = [[measure(run, options.seconds) for run in runs] for _ in range(options.turns)]
            ours, *others = (float(np.median([getattr(rate, kind) for rate in c])) for c in zip(*rates, strict=True))
            wall = float(np.median([rate[0].wall for rate in rates]))
            cells = [f"{each:.0f} | {ours / each:.1f}" for each in others]
            print(f"| {method} | {num_trials} | {wall:.0f} | {ours:.0f} | {' | '.join(cells)} |", flush=True)


def _as_run(loop: EventLoop) -> Callable[[], int]:
    """Return a function that processes a block of arrivals and returns their number."""

    def run() -> int:
        for _ in range(BLOCK):
            loop.arrive()
        return BLOCK

    return run


if __name__ == "__main__":
    main()
