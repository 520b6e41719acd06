"""Time and memory of a round of the LSTM on tweets: `python -m benchmarks.tweets_rounds --data DIR`.

FedLaAvg with N=1000, K=100, C=10, batch 2, on the device that JAX chooses, with the kernel for that device and with a
plain scan over words; each in a process of its own. Evaluation takes all training and test texts. Without a folder the
texts are random words, as long as those of Sentiment140.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import workloads
from fedlatest import Federation

CLIENTS, COHORT, STEPS = 1000, workloads.COHORT, workloads.STEPS
BATCH, RATE = workloads.TEXT_BATCH, workloads.TEXT_RATE
CASES = ("kernel", "plain scan")
BLOCK = 20


def tweets(folder: Path) -> Federation:
    """The accounts of Sentiment140."""
    from fedlatest import load_sentiment140, split_accounts, tweet_federation

    tweet_set = load_sentiment140(folder)
    return tweet_federation(tweet_set, split_accounts(tweet_set, num_clients=CLIENTS))


def measure(case: str, data: Path | None, repeats: int) -> dict[str, Any]:
    """Milliseconds a round after the first block, seconds of an evaluation, and the peak memory of this process."""
    import jax

    from fedlatest import always
    from fedlatest.algorithms import fedlaavg
    from fedlatest.kernels import lstm_native as native
    from fedlatest.kernels import lstm_pallas as pallas
    from fedlatest.models import lstm, sigmoid_cross_entropy
    from fedlatest.simulation import Engine, ExperimentSpec

    if case == "plain scan":
        native.is_usable, pallas.is_usable = lambda *_: False, lambda *_: False
    federation = tweets(data) if data else workloads.texts(CLIENTS)
    assert federation.table is not None, "texts have a table of word vectors"
    model = lstm(num_features=federation.table.shape[1])
    spec = ExperimentSpec(
        federation,
        model if case == "kernel" else model._replace(native_training=None),
        fedlaavg(),
        always(federation.num_clients),
        cohort_size=COHORT,
        num_local_steps=STEPS,
        batch_size=BATCH,
        learning_rate=RATE,
        loss=sigmoid_cross_entropy,
    )
    engine = Engine([spec])
    states = engine.start()
    rounds, evaluations = [], []
    for _ in range(repeats + 1):
        begun = time.perf_counter()
        states, _ = engine.advance(states, BLOCK)
        rounds.append(time.perf_counter() - begun)
    for _ in range(4):
        begun = time.perf_counter()
        engine.measure(states)
        evaluations.append(time.perf_counter() - begun)
    return {
        "device": jax.devices()[0].device_kind,
        "texts": len(federation.labels) + len(federation.test_labels),
        "median": float(np.median(rounds[1:])) / BLOCK * 1e3,
        "best": min(rounds[1:]) / BLOCK * 1e3,
        "first_block": rounds[0],
        "evaluation": float(np.median(evaluations[1:])),
        "gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with sentiment140/ and glove/ (default: random words)")
    parser.add_argument("--case", choices=CASES, help="measure one case in this process and print it as JSON")
    parser.add_argument("--repeats", type=int, default=10, help="blocks of rounds to time (default 10)")
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measure(options.case, options.data, options.repeats)))
        return
    print(
        f"{platform.machine()}, {os.cpu_count()} cores; N={CLIENTS}, K={COHORT}, C={STEPS}, batch {BATCH}, "
        f"{BLOCK} rounds a block\n"
    )
    print(
        "| device | case | ms a round (median) | best | rounds/s | first block, s | evaluation, s | peak memory, GiB |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for case in CASES:
        command = [sys.executable, "-m", "benchmarks.tweets_rounds", "--case", case, "--repeats", str(options.repeats)]
        command += ["--data", str(options.data)] if options.data else []
        environment = {"NPROC": "1", **os.environ}  # one thread, as in the older tables
        row = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout)
        print(
            f"| {row['device']} | {case} | {row['median']:.2f} | {row['best']:.2f} | {1000 / row['median']:.0f} "
            f"| {row['first_block']:.1f} | {row['evaluation']:.2f} | {row['gib']:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
