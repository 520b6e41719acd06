"""Time and memory of a round: `make bench`.

The default MNIST setting (K=100, C=10, batch 5, logistic regression 784 x 10) on generated pixels, without evaluation,
each case in a process of its own: the compiled simulator at N = 1000 and N = 100,000, and a plain NumPy loop over
clients.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

COHORT, STEPS, BATCH, PIXELS, CLASSES, RATE = 100, 10, 5, 784, 10, 0.01
CASES: dict[str, tuple[int, int]] = {  # name: (clients, samples a client)
    "fedlatest, N=1,000": (1_000, 60),
    "fedlatest, N=100,000": (100_000, 2),
    "fedavg in fedlatest, N=1,000": (1_000, 60),
    "NumPy loop over clients, N=1,000": (1_000, 60),
}
BLOCK = 50


def compiled(num_clients: int, samples: int, algorithm: str) -> Callable[[], None]:
    """A block of rounds of the simulator."""
    from fedlatest import Federation, diurnal, logistic
    from fedlatest.algorithms import ALGORITHMS
    from fedlatest.data.features import pixels
    from fedlatest.simulation import Engine, ExperimentSpec

    rng = np.random.default_rng(0)
    rows = num_clients * samples
    federation = Federation(
        name="generated",
        features=pixels(rng.integers(0, 256, (rows, PIXELS), dtype=np.uint8)),
        labels=rng.integers(0, CLASSES, rows, dtype=np.int32),
        test_features=rng.random((10, PIXELS), dtype=np.float32),
        test_labels=np.arange(10, dtype=np.int32),
        order=np.arange(rows, dtype=np.int32),
        offsets=np.arange(0, rows + 1, samples),
    )
    spec = ExperimentSpec(
        federation,
        logistic(num_features=PIXELS, num_classes=CLASSES),
        ALGORITHMS[algorithm](),
        diurnal(np.arange(num_clients) < num_clients // 10, period=100),
        cohort_size=COHORT,
        num_local_steps=STEPS,
        batch_size=BATCH,
        learning_rate=RATE,
    )
    engine = Engine([spec])
    states = engine.start()

    def play() -> None:
        nonlocal states
        states, _ = engine.advance(states, BLOCK)

    return play


def numpy_loop(num_clients: int, samples: int) -> Callable[[], None]:
    """FedLaAvg as one would first write it: a Python loop over the cohort, NumPy inside."""
    rng = np.random.default_rng(0)
    features = rng.random((num_clients, samples, PIXELS), dtype=np.float32)
    labels = rng.integers(0, CLASSES, (num_clients, samples))
    model = np.zeros((CLASSES, PIXELS), np.float32)
    average = np.zeros_like(model)
    stored = np.zeros((num_clients, CLASSES, PIXELS), np.float32)
    last = np.full(num_clients, -1)
    round = 0

    def train(client: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        local, order = model.copy(), rng.permutation(samples)
        for step in range(STEPS):
            rows = order[step * BATCH : (step + 1) * BATCH]
            batch = features[client, rows]
            logits = batch @ local.T
            chances = np.exp(logits - logits.max(axis=1, keepdims=True))
            chances /= chances.sum(axis=1, keepdims=True)
            chances[np.arange(BATCH), labels[client, rows]] -= 1
            local -= np.float32(RATE / BATCH) * (chances.T @ batch)
        return local - model

    def play() -> None:
        nonlocal model, average, round
        for _ in range(BLOCK):
            here = np.flatnonzero((np.arange(num_clients) < num_clients // 10) == (round % 200 < 100))
            cohort = here[np.lexsort((rng.random(here.size), last[here]))][:COHORT]
            for client in cohort:
                update = train(client)
                average += (update - stored[client]) / np.float32(num_clients)
                stored[client] = update
            last[cohort] = round
            model = model + average
            round += 1

    return play


def measure(case: str, repeats: int) -> dict[str, float]:
    """Median milliseconds a round after the first block, and the peak memory of this process."""
    clients, samples = CASES[case]
    if case.startswith("NumPy"):
        play = numpy_loop(clients, samples)
    else:
        play = compiled(clients, samples, "fedavg" if case.startswith("fedavg") else "fedlaavg")
    begun = time.perf_counter()
    play()
    first = time.perf_counter() - begun
    timings = []
    for _ in range(repeats):
        begun = time.perf_counter()
        play()
        timings.append((time.perf_counter() - begun) / BLOCK * 1e3)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"median": float(np.median(timings)), "best": min(timings), "first_block": first, "gib": peak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=CASES, help="measure one case in this process and print it as JSON")
    parser.add_argument("--repeats", type=int, default=10, help="blocks of rounds to time (default 10)")
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measure(options.case, options.repeats)))
        return
    print(
        f"{platform.machine()}, {os.cpu_count()} cores; K={COHORT}, C={STEPS}, batch {BATCH}, {BLOCK} rounds a block\n"
    )
    print("| case | ms a round (median) | best | rounds/s | first block, s | peak memory, GiB |")
    print("|---|---|---|---|---|---|")
    for case in CASES:
        command = [sys.executable, "-m", "benchmarks.rounds", "--case", case, "--repeats", str(options.repeats)]
        environment = {"NPROC": "1", **os.environ}  # as the command line does
        row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)
        print(
            f"| {case} | {row['median']:.2f} | {row['best']:.2f} | {1000 / row['median']:.0f} "
            f"| {row['first_block']:.1f} | {row['gib']:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
