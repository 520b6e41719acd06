"""What our own code costs a deployment: a round of five nodes, a hundred large uploads, and what the grid does.

python -m benchmarks.ledger
"""

import logging
import os
import platform
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from fedlatest import fedlaavg
from fedlatest.deployment.template.digits import task
from fedlatest.deployment.template.digits.client_app import app as client_app_of_digits
from fedlatest.flower import ClientResult, ClientTask, FedLaAvg, LocalGrid, Timeouts, client_app, from_record, to_record
from fedlatest.flower.server_algorithm import first_arrays, job_config, merge
from fedlatest.ledger import ClientStore, Folder, Layout, Ledger, Reply, Trained, answer
from fedlatest.ledger.hashing import checksum_of, digest_of
from fedlatest.ledger.job_folder import read_events

NUM_NODES, ROUNDS = 5, 30
NUM_UPLOADS, NUM_PARAMETERS = 100, 10_000_000


def a_round(folder: Path) -> tuple[float, float]:
    """Seconds of our own code in a round (median, largest): looking, choosing, issuing, merging, committing."""
    model = {"weight": np.zeros((64, 10), np.float32), "bias": np.zeros(10, np.float32)}

    def train(weights: dict[str, np.ndarray], task: ClientTask) -> ClientResult:
        rng = np.random.default_rng(task.round)
        noise = {name: rng.normal(size=part.shape).astype(part.dtype) for name, part in weights.items()}
        return ClientResult(300, {}, {name: part + noise[name] for name, part in weights.items()})

    grid = LocalGrid()
    for node in range(NUM_NODES):
        grid.add(client_app(train), {"state-dir": str(folder / f"node{node}"), "name": f"node{node}"})
    strategy = FedLaAvg(job=folder / "job", cohort_size=NUM_NODES, timeouts=Timeouts(poll=0.001), min_clients=NUM_NODES)
    strategy.start(grid, to_record(model), num_rounds=ROUNDS)
    events = [event for event in read_events(folder / "job" / "events.jsonl") if event["event"] == "merged"]
    seconds = [event["own_seconds"] for event in events[1:]]  # the first compiles
    return float(np.median(seconds)), max(seconds)


def large_uploads(folder: Path) -> tuple[float, float, float]:
    """Seconds to take, seconds to merge and commit, and GiB at the peak; uploads arrive one after the other."""
    model = {"all": np.zeros(NUM_PARAMETERS, np.float32)}
    algorithm, layout = fedlaavg(weighting="update", empty_round="hold"), Layout.of(model)
    ledger = Ledger.open(
        folder / "ledger.sqlite",
        config=job_config(algorithm),
        layout=layout,
        arrays=lambda: first_arrays(algorithm, layout, model),
    )
    clients = [f"client{number}" for number in range(NUM_UPLOADS)]
    for client in clients:
        store = ClientStore(Folder(folder / "stores" / client))
        ledger.greet(answer(store, ledger.instruction(client, "hello"), train=_not))
    value = np.random.default_rng(0).integers(-(2**20), 2**20, NUM_PARAMETERS).astype("<i4")
    digest, checksum, arrays = digest_of(value), checksum_of(value), ledger.arrays()
    for _ in range(2):  # the first round compiles, and its uploads are whole values
        taking = 0.0
        for client, asked in ledger.issue(clients).items():
            reply = Reply(
                "upload", asked.job, asked.epoch, asked.config, asked.layout, client, ticket=asked.ticket,
                base=asked.applied, weight=1.0, checksum=checksum, value=digest, vector=value,
            )  # fmt: skip
            began = time.perf_counter()
            assert ledger.take(reply).outcome == "taken"
            taking += time.perf_counter() - began
        began = time.perf_counter()
        arrays = merge(algorithm, ledger, arrays)
        ledger.close(arrays, here=clients)
        closing = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return taking, closing, peak


def grid_effect(folder: Path, unit: float) -> tuple[float, dict[str, np.ndarray]]:
    """Test accuracy and model after 30 rounds of the digits app, three of five clients a round, on a grid."""
    grid = LocalGrid()
    for number in range(NUM_NODES):
        about = {"state-dir": str(folder / f"node{number}"), "partition-id": number, "num-partitions": NUM_NODES}
        run_config = {"seed": 0, "local-steps": 50, "batch-size": 10, "learning-rate": 0.1}
        grid.add(client_app_of_digits, about, run_config=run_config)
    strategy = FedLaAvg(
        job=folder / "job", cohort_size=3, unit=unit, timeouts=Timeouts(poll=0.001), min_clients=NUM_NODES
    )
    model = from_record(strategy.start(grid, to_record(task.initial_model()), num_rounds=ROUNDS).arrays)
    return task.evaluate(model, *task.load_test())["accuracy"], model


def _not() -> Trained:
    raise AssertionError


def main() -> None:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory() as folder:
        taking, closing, peak = large_uploads(Path(folder))
        print(
            f"{NUM_UPLOADS} uploads of {NUM_PARAMETERS / 1e6:.0f} million parameters: {taking + closing:.2f} s "
            f"({taking:.2f} s to check and add, {closing:.2f} s to merge and commit), {peak:.2f} GiB at the peak"
        )
    with tempfile.TemporaryDirectory() as folder:
        median, largest = a_round(Path(folder))
        print(f"own code in a round of {NUM_NODES} nodes, digits: {median:.3f} s (largest {largest:.3f} s)")
    units = (2.0**-18, 2.0**-16, 2.0**-8, 2.0**-2, 1.0)
    found = {}
    for unit in units:
        with tempfile.TemporaryDirectory() as folder:
            found[unit] = grid_effect(Path(folder), unit)
        moved = max(float(np.abs(found[unit][1][name] - part).max()) for name, part in found[units[0]][1].items())
        print(f"unit {unit:9.3g}: accuracy {found[unit][0]:.4f}, model off by {moved:.2g} from that of the finest unit")


if __name__ == "__main__":
    main()
