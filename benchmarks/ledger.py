"""Cost of the ledger in a deployment: many clients and rounds, large models and uploads, copies, fixed-point rounding.

python -m benchmarks.ledger [--only NAME]
"""

import argparse
import itertools
import logging
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Message
from flwr.clientapp import ClientApp

from fedlatest import fedlaavg
from fedlatest.deployment.template.digits import task
from fedlatest.deployment.template.digits.client_app import app as client_app_of_digits
from fedlatest.flower import ClientResult, ClientTask, FedLaAvg, LocalGrid, Timeouts, client_app, from_record, to_record
from fedlatest.flower.job_record import JobRecord
from fedlatest.flower.local_grid import LocalNode
from fedlatest.flower.message_records import read_instruction, reply_message
from fedlatest.flower.outstanding_messages import OutstandingMessages
from fedlatest.flower.round_loop import RoundLoop
from fedlatest.flower.round_outcome import EventLog
from fedlatest.flower.server_algorithm import initial_server_arrays, job_config, merge
from fedlatest.ledger import ClientStore, FolderStorage, Layout, Ledger, LocalUpdate, Reply, handle_instruction
from fedlatest.ledger.audit import audit
from fedlatest.ledger.cohort_choice import choose_cohort, choose_decryptors
from fedlatest.ledger.event_log import read_events
from fedlatest.ledger.hashing import checksum_of, digest_of
from fedlatest.ledger.secure_settings import SecureAggregation

NUM_NODES, ROUNDS = 5, 30
MODEL = {"w": np.zeros(8, np.float32)}
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


class MemoryStorage:
    """A client's storage in memory: the benchmark measures the server."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def get(self, name: str) -> bytes | None:
        return self.files.get(name)

    def put(self, name: str, content: bytes | memoryview) -> None:
        self.files[name] = bytes(content)

    def delete(self, name: str) -> None:
        self.files.pop(name, None)

    def names(self, folder: str) -> list[str]:
        return [name for name in self.files if name.startswith(f"{folder}/")]

    def folders(self) -> list[str]:
        return []

    def lock(self) -> AbstractContextManager[None]:
        return nullcontext()


class Fleet(LocalGrid):
    """Clients that train by adding random numbers; their work counts as Flower's time."""

    def __init__(self, num_clients: int, size: int, folder: Path | None = None) -> None:
        super().__init__()
        for number in range(num_clients):
            self.add(ClientApp(), {"partition-id": number})
        storages: Any = (FolderStorage(folder / f"{node}") if folder else MemoryStorage() for node in self.nodes)
        self.stores = dict(zip(self.nodes, map(ClientStore, storages), strict=True))
        self.block = np.random.default_rng(0).integers(-(2**20), 2**20, min(size, 2**20)).astype("<i4")
        self.size, self.num_trained = size, 0

    def _handle(self, node: LocalNode, message: Message) -> Message:
        number = message.metadata.dst_node_id
        instruction = read_instruction(message)
        assert instruction is not None
        instruction = replace(instruction, client=f"client{number}")
        return reply_message(handle_instruction(self.stores[number], instruction, train=self._train), message)

    def _train(self) -> LocalUpdate:
        self.num_trained += 1
        return LocalUpdate(np.resize(np.roll(self.block, self.num_trained), self.size), 300.0, {})


class Costs(NamedTuple):
    """Medians over rounds, after the first two."""

    joining: float  # seconds of own code
    round: float  # seconds of own code per round
    cpu: float  # CPU seconds of own code, Flower's and the clients' per round
    events: float  # bytes per round
    log: float  # bytes of the write-ahead log per round
    peak: float  # GiB, with the clients


def run_fleet(folder: Path, *, num_clients: int, cohort_size: int, size: int, rounds: int, on_disk: bool) -> Costs:
    """Run a job in this process and return what the server's own code costs."""
    grid = Fleet(num_clients, size, folder / "clients" if on_disk else None)
    strategy = FedLaAvg(job=folder / "job", cohort_size=cohort_size)
    ledger = strategy.open_ledger(to_record({"all": np.zeros(size, np.float32)}))
    events = EventLog(folder / "job/events.jsonl")
    loop = RoundLoop(
        OutstandingMessages(grid, 600.0, 4 * size),
        ledger,
        strategy.algorithm,
        events,
        cohort_size=cohort_size,
        timeouts=Timeouts(deadline=300, poll=0.001),
    )
    loop.wait_for_clients(num_clients, timeout=300)
    joining = loop.outcome.own_seconds
    loop.outcome.own_seconds = 0.0
    found = []
    for _ in range(rounds):
        ledger.database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        before, cpu = events.path.stat().st_size, time.process_time()
        outcome = loop.run_round()
        assert len(outcome.accepted) == cohort_size
        log = (folder / "job/ledger.sqlite-wal").stat().st_size
        found.append((outcome.own_seconds, time.process_time() - cpu, events.path.stat().st_size - before, log))
    ledger.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    own, cpu, growth, log = np.median(found[2:], axis=0).tolist()
    return Costs(joining, own, cpu, growth, log, peak)


def print_fleet(name: str, **options: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        costs = run_fleet(Path(folder), **options)
    print(
        f"{name}: own code {costs.round:.3f} s per round, {costs.joining:.2f} s to join, "
        f"events.jsonl {costs.events / 1e3:.1f} kB and write-ahead log {costs.log / 1e3:.0f} kB per round, "
        f"{costs.cpu:.2f} CPU s per round and {costs.peak:.2f} GiB peak memory with the clients",
        flush=True,
    )


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
    ledger.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return handling, closing, peak


def many_rounds(folder: Path, *, num_clients: int, cohort_size: int, rounds: int) -> None:
    """Print what a round with an evaluation costs early and late in a job, and the end of the job."""
    grid = Fleet(num_clients, 650)
    strategy = FedLaAvg(job=folder / "job", cohort_size=cohort_size)
    with strategy.open_ledger(to_record({"all": np.zeros(650, np.float32)})) as ledger:
        events = EventLog(folder / "job/events.jsonl")
        loop = RoundLoop(
            OutstandingMessages(grid, 600.0, 2600), ledger, strategy.algorithm, events, cohort_size=cohort_size,
            timeouts=Timeouts(deadline=300, poll=0.001),
        )  # fmt: skip
        record = JobRecord(folder / "job/run", ledger, strategy.algorithm, rounds=rounds, config={})
        loop.wait_for_clients(num_clients, timeout=300)
        seconds, sizes = np.zeros((rounds, 2)), []
        for number in range(rounds):
            outcome = loop.run_round()
            began = time.perf_counter()
            record.add(outcome, {"loss": 0.5, "accuracy": 0.5}, {})
            seconds[number] = outcome.own_seconds, time.perf_counter() - began
            if number in (rounds // 10, rounds - 1):
                sizes.append((folder / "job/ledger.sqlite").stat().st_size / 1e6)
        for name, part in (("first", seconds[2 : rounds // 10]), ("last", seconds[-rounds // 10 :])):
            own, adding = np.median(part, axis=0)
            print(
                f"{name} {len(part)} of {rounds} rounds, {num_clients} clients, cohort {cohort_size}: "
                f"own code {1e3 * own:.1f} ms, recording the evaluation {1e3 * adding:.1f} ms (medians)",
                flush=True,
            )
        began = time.perf_counter()
        record.finish(loop.model)
        print(
            f"run folder at the end: {time.perf_counter() - began:.2f} s; "
            f"ledger after a tenth of the rounds and at the end: {sizes[0]:.1f} MB, {sizes[1]:.1f} MB; "
            f"metrics.csv {(folder / 'job/run/metrics.csv').stat().st_size / 1e3:.0f} kB",
            flush=True,
        )


def copies(folder: Path, *, num_clients: int, memory: str, size: int = 650) -> None:
    """Let all clients contribute, and print what `backup`, `restore` and `audit` then cost as commands."""
    model = {"all": np.zeros(size, np.float32)}
    algorithm, layout, job = fedlaavg(weighting="update", empty_round="hold"), Layout.of(model), folder / "job"
    job.mkdir()
    ledger = Ledger.open(
        job / "ledger.sqlite", config=job_config(algorithm, memory=memory), layout=layout,
        arrays=lambda: initial_server_arrays(algorithm, layout, model),
    )  # fmt: skip
    stores = {f"client{number}": ClientStore(MemoryStorage()) for number in range(num_clients)}
    rng = np.random.default_rng(0)

    def train() -> LocalUpdate:
        return LocalUpdate(rng.integers(-(2**20), 2**20, size).astype("<i4"), 1.0, {})

    with ledger.batch():
        for client, store in stores.items():
            hello = ledger.instruction(client, "hello")
            ledger.handle_hello(handle_instruction(store, hello, train=_must_not_train))
    for client, instruction in ledger.issue(list(stores)).items():
        verdict = ledger.handle_reply(handle_instruction(stores[client], instruction, train=train))
        assert verdict.outcome == "accepted", verdict
    ledger.close_round(ledger.arrays(), available=list(stores))
    ledger.close()
    found = {command: _run_command(folder, command, "job", "copy") for command in ("backup", "restore")}
    if memory == "server":
        found["audit"] = _run_command(folder, "audit", "job")
    else:
        began = time.perf_counter()
        assert audit(job / "ledger.sqlite", stores.values()).holds
        found["audit"] = f"{time.perf_counter() - began:.1f} s"
    print(
        f"{num_clients:,} clients, memory={memory}, {size} parameters: copy "
        f"{(folder / 'copy').stat().st_size / 1e6:.1f} MB; "
        f"{', '.join(f'{name} {costs}' for name, costs in found.items())}",
        flush=True,
    )


def _run_command(folder: Path, *arguments: str) -> str:
    """Run a command; return its seconds, start included, and its peak memory, in words."""
    program = (
        "import sys\nfrom pathlib import Path\nfrom fedlatest.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "print(next(line.split()[1] for line in Path('/proc/self/status').open() if line.startswith('VmHWM')))"
    )
    began = time.perf_counter()
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    peak = int(done.stdout.splitlines()[-1]) / 2**20
    return f"{time.perf_counter() - began:.1f} s and {peak:.2f} GiB"


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
    parser = argparse.ArgumentParser(description="Cost of the ledger in a deployment")
    parser.add_argument("--only", choices=["clients", "rounds", "copies", "model", "uploads", "rounding", "choice"])
    only = parser.parse_args().only
    logging.getLogger("flwr").setLevel(logging.ERROR)
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}", flush=True)
    if only in (None, "clients"):
        small: Any = {"size": 650, "rounds": 12, "on_disk": False}
        print_fleet("20 clients, cohort 5, 650 parameters", num_clients=20, cohort_size=5, **small)
        print_fleet("10,000 clients, cohort 100, 650 parameters", num_clients=10_000, cohort_size=100, **small)
    if only in (None, "rounds"):
        with tempfile.TemporaryDirectory() as folder:
            many_rounds(Path(folder), num_clients=100, cohort_size=10, rounds=5000)
    if only in (None, "copies"):
        for num_clients, memory in itertools.product((10_000, 100_000), ("client", "server")):
            with tempfile.TemporaryDirectory() as folder:
                copies(Path(folder), num_clients=num_clients, memory=memory)
    if only in (None, "model"):
        large: Any = {"size": 50_000_000, "rounds": 4, "on_disk": True}
        print_fleet("10 clients, cohort 10, 50 million parameters", num_clients=10, cohort_size=10, **large)
    if only in (None, "uploads"):
        measure_uploads()
    if only in (None, "rounding"):
        measure_rounding()
    if only in (None, "choice"):
        for num_clients in (1_000, 10_000, 100_000):
            measure_choice(num_clients)


def measure_choice(num_clients: int) -> None:
    """Print how long it takes to choose a cohort and its decryptors, without the algorithm's own selection."""
    algorithm, layout = fedlaavg(weighting="update", empty_round="hold"), Layout.of(MODEL)
    with Ledger.open(
        ":memory:",
        config=job_config(algorithm, secure=SecureAggregation(min_cohort=10)),
        layout=layout,
        arrays=lambda: initial_server_arrays(algorithm, layout, MODEL),
    ) as ledger:
        with ledger.batch():
            for number in range(num_clients):
                ledger.table.add(f"c{number}", 1.0, 0.0)
        available = {client.id for client in ledger.clients()}
        times = []
        for _ in range(10):
            began = time.perf_counter()
            choose_cohort(ledger, available, size=10, select=lambda clients, size: clients[:size])
            choose_decryptors(ledger, available, number=10, busy=())
            times.append(time.perf_counter() - began)
    print(f"{num_clients} clients: {1e3 * min(times):.2f} ms to choose the cohort and the decryptors of a session")


def measure_uploads() -> None:
    with tempfile.TemporaryDirectory() as folder:
        handling, closing, peak = large_uploads(Path(folder))
        print(
            f"{NUM_UPLOADS} uploads of {NUM_PARAMETERS / 1e6:.0f} million parameters: {handling + closing:.2f} s "
            f"({handling:.2f} s to check and add, {closing:.2f} s to merge and commit), {peak:.2f} GiB peak memory"
        )
    with tempfile.TemporaryDirectory() as folder:
        median, maximum = round_overhead(Path(folder))
        print(f"fedlatest's own time in a round of {NUM_NODES} nodes: {median:.3f} s (maximum {maximum:.3f} s)")


def measure_rounding() -> None:
    units = (2.0**-18, 2.0**-16, 2.0**-8, 2.0**-2, 1.0)
    found = {}
    for unit in units:
        with tempfile.TemporaryDirectory() as folder:
            found[unit] = rounding_effect(Path(folder), unit)
        difference = max(float(np.abs(found[unit][1][name] - part).max()) for name, part in found[units[0]][1].items())
        print(f"unit {unit:9.3g}: accuracy {found[unit][0]:.4f}, difference to the first model {difference:.2g}")


if __name__ == "__main__":
    main()
