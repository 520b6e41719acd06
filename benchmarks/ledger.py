"""Cost of the ledger in a deployment: large uploads, the overhead of a round, and the effect of fixed-point rounding.

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
from fedlatest.flower.server_algorithm import initial_server_arrays, job_config, merge
from fedlatest.ledger import ClientStore, FolderStorage, Layout, Ledger, LocalUpdate, Reply, handle_instruction
from fedlatest.ledger.event_log import read_events
from fedlatest.ledger.hashing import checksum_of, digest_of

NUM_NODES, ROUNDS = 5, 30
NUM_UPLOADS, NUM_PARAMETERS = 100, 10_000_000


def round_overhead(folder: Path) -> tuple[float, float]:
    """Return the seconds (median, maximum) that a round spends in fedlatest: selection, tickets, merge and commit."""
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
    seconds = [event["own_seconds"] for event in events[1:]]  # the first round compiles
    return float(np.median(seconds)), max(seconds)


def large_uploads(folder: Path) -> tuple[float, float, float]:
    """Return the seconds to check and add the uploads, the seconds to merge and commit, and the peak memory in GiB."""
    model = {"all": np.zeros(NUM_PARAMETERS, np.float32)}
    algorithm, layout = fedlaavg(weighting="update", empty_round="hold"), Layout.of(model)
    ledger = Ledger.open(
        folder / "ledger.sqlite",
        config=job_config(algorithm),
        layout=layout,
        arrays=lambda: initial_server_arrays(algorithm, layout, model),
    )
    clients = [f"client{number}" for number in range(NUM_UPLOADS)]
    for client in clients:
        store = ClientStore(FolderStorage(folder / "stores" / client))
        hello = ledger.instruction(client, "hello")
        ledger.handle_hello(handle_instruction(store, hello, train=_must_not_train))
    update = np.random.default_rng(0).integers(-(2**20), 2**20, NUM_PARAMETERS).astype("<i4")
    digest, checksum, arrays = digest_of(update), checksum_of(update), ledger.arrays()
    for _ in range(2):  # the first round compiles, and its uploads are whole updates
        handling = 0.0
        for client, instruction in ledger.issue(clients).items():
            reply = Reply(
                "upload",
                instruction.job,
                instruction.epoch,
                instruction.config,
                instruction.layout,
                client,
                ticket=instruction.ticket,
                base=instruction.applied,
                weight=1.0,
                checksum=checksum,
                update_digest=digest,
                upload=update,
            )
            start = time.perf_counter()
            assert ledger.handle_reply(reply).outcome == "accepted"
            handling += time.perf_counter() - start
        start = time.perf_counter()
        arrays = merge(algorithm, ledger, arrays)
        ledger.close_round(arrays, available=clients)
        closing = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return handling, closing, peak


def rounding_effect(folder: Path, unit: float) -> tuple[float, dict[str, np.ndarray]]:
    """Return test accuracy and model after 30 rounds of the digits app, with three of five clients per round."""
    grid = LocalGrid()
    for number in range(NUM_NODES):
        node_config = {"state-dir": str(folder / f"node{number}"), "partition-id": number, "num-partitions": NUM_NODES}
        run_config = {"seed": 0, "local-steps": 50, "batch-size": 10, "learning-rate": 0.1}
        grid.add(client_app_of_digits, node_config, run_config=run_config)
    strategy = FedLaAvg(
        job=folder / "job", cohort_size=3, unit=unit, timeouts=Timeouts(poll=0.001), min_clients=NUM_NODES
    )
    model = from_record(strategy.start(grid, to_record(task.initial_model()), num_rounds=ROUNDS).arrays)
    return task.evaluate(model, *task.load_test())["accuracy"], model


def _must_not_train() -> LocalUpdate:
    raise AssertionError("a hello does not ask for training")


def main() -> None:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory() as folder:
        handling, closing, peak = large_uploads(Path(folder))
        print(
            f"{NUM_UPLOADS} uploads of {NUM_PARAMETERS / 1e6:.0f} million parameters: {handling + closing:.2f} s "
            f"({handling:.2f} s to check and add, {closing:.2f} s to merge and commit), {peak:.2f} GiB peak memory"
        )
    with tempfile.TemporaryDirectory() as folder:
        median, maximum = round_overhead(Path(folder))
        print(f"fedlatest's own time in a round of {NUM_NODES} nodes: {median:.3f} s (maximum {maximum:.3f} s)")
    units = (2.0**-18, 2.0**-16, 2.0**-8, 2.0**-2, 1.0)
    found = {}
    for unit in units:
        with tempfile.TemporaryDirectory() as folder:
            found[unit] = rounding_effect(Path(folder), unit)
        difference = max(float(np.abs(found[unit][1][name] - part).max()) for name, part in found[units[0]][1].items())
        print(f"unit {unit:9.3g}: accuracy {found[unit][0]:.4f}, difference to the first model {difference:.2g}")


if __name__ == "__main__":
    main()
