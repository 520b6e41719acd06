"""Time and memory of a round for each way of storing client states: `python -m benchmarks.client_rows`.

The default MNIST setting (K=100, C=10, batch 5, logistic regression 784 x 10, FedLaAvg) on generated pixels with one
million clients, without evaluation, each case in a process of its own. With 11,000 rounds every client takes part.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

COHORT, PIXELS, CLASSES, BLOCK = 100, 784, 10, 50
CASES: dict[str, dict[str, Any]] = {
    "all, float32": {"client_rows": "all"},
    "all, bfloat16": {"client_rows": "all", "remembered_dtype": "bfloat16"},
    "all, float16": {"client_rows": "all", "remembered_dtype": "float16"},
    "seen, float32": {"client_rows": "seen"},
    "seen, bfloat16": {"client_rows": "seen", "remembered_dtype": "bfloat16"},
    "host, float32": {"client_rows": "host"},
    "host, bfloat16": {"client_rows": "host", "remembered_dtype": "bfloat16"},
    "disk, float32": {"client_rows": "disk"},
    "disk, bfloat16": {"client_rows": "disk", "remembered_dtype": "bfloat16"},
}


def measure(case: str, *, num_clients: int, rounds: int, blocks: int) -> dict[str, float]:
    """Return median milliseconds per round after the first block, and the peak memory of this process."""
    from fedlatest import Federation, diurnal, fedlaavg, logistic
    from fedlatest.data.features import pixels
    from fedlatest.simulation import Engine, ExperimentSpec

    rng = np.random.default_rng(0)
    levels = rng.integers(0, 256, (num_clients, PIXELS), dtype=np.uint8)
    federation = Federation(
        name="generated",
        features=pixels(levels),
        labels=rng.integers(0, CLASSES, num_clients, dtype=np.int32),
        test_features=pixels(levels[:10]),
        test_labels=np.arange(10, dtype=np.int32),
        order=np.arange(num_clients, dtype=np.int32),
        offsets=np.arange(num_clients + 1),
    )
    del levels
    spec = ExperimentSpec(
        federation,
        logistic(num_features=PIXELS, num_classes=CLASSES),
        fedlaavg(),
        diurnal(np.arange(num_clients) < num_clients // 10, period=100),
        cohort_size=COHORT,
        rounds=rounds,
        **CASES[case],
    )
    engine = Engine([spec])
    engine.check_memory()
    object.__setattr__(federation, "features", np.zeros((0, PIXELS), np.float32))  # it is on the device now
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.perf_counter()
    states = engine.start()
    timings, used = [], time.process_time()
    for number in range(blocks + 1):
        if number == 1:
            used = time.process_time()
        started = time.perf_counter()
        states, _ = engine.advance(states, BLOCK)
        timings.append((time.perf_counter() - started) / BLOCK * 1e3)
    used = time.process_time() - used
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    now = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "RssFile"))}
    return {
        "ms": float(np.median(timings[1:])),
        "best_ms": min(timings[1:]),
        "cpu_ms": used / (BLOCK * blocks) * 1e3,
        "first_block_s": timings[0] * BLOCK / 1e3,
        "seconds": time.perf_counter() - begun,
        "anonymous_gib": now["RssAnon"] / 2**20,
        "mapped_gib": now["RssFile"] / 2**20,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "peak_before_gib": before / 2**20,
        "needed_gib": engine.bytes_needed / 2**30,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=CASES, help="measure one case in this process and print it as JSON")
    parser.add_argument("--clients", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=1_000, help="rounds of the run, which bound the number of rows")
    parser.add_argument("--blocks", type=int, default=4, help=f"blocks of {BLOCK} rounds to time after the first")
    options = parser.parse_args()
    if options.case:
        sizes = {"num_clients": options.clients, "rounds": options.rounds, "blocks": options.blocks}
        print(json.dumps(measure(options.case, **sizes)))
        return
    print(
        f"N={options.clients}, K={COHORT}, {options.rounds} rounds, of which {BLOCK * (options.blocks + 1)} were run\n"
    )
    print("| client_rows, type | ms a round (median) | best | CPU ms | memory, GiB | of it mapped files, GiB |")
    print("|---|---|---|---|---|---|")
    for case in CASES:
        command = [sys.executable, "-m", "benchmarks.client_rows", "--case", case]
        command += [f"--clients={options.clients}", f"--rounds={options.rounds}", f"--blocks={options.blocks}"]
        environment = {"NPROC": "1", **os.environ}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            print(f"| {case} | {done.stderr.strip().splitlines()[-1]} | | | | |", flush=True)
            continue
        row = json.loads(done.stdout)
        memory = row["anonymous_gib"] + row["mapped_gib"]
        times = f"{row['ms']:.1f} | {row['best_ms']:.1f} | {row['cpu_ms']:.1f}"
        print(f"| {case} | {times} | {memory:.1f} | {row['mapped_gib']:.1f} |", flush=True)


if __name__ == "__main__":
    main()
