"""Cost of the server's own code with many clients: start-up, a round, memory and files.

python -m benchmarks.ledger_scale [--clients 10000 100000 1000000] [--rounds 10] [--available 0.5] [--cohort 100]

The clients are in this process and store their updates in memory. For a tenth of them it is drawn anew after each
round whether they are available. Times are CPU seconds, so that other work on the machine counts little. Each number of
clients is measured in a process of its own.
"""

import argparse
import logging
import multiprocessing
import os
import platform
import resource
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from flwr.app import Message
from flwr.proto.node_pb2 import NodeInfo

from benchmarks.ledger import MemoryStorage
from fedlatest.flower import FedLaAvg, LocalGrid, Timeouts, to_record
from fedlatest.flower.message_records import read_instruction, reply_message
from fedlatest.flower.outstanding_messages import OutstandingMessages
from fedlatest.flower.round_loop import RoundLoop
from fedlatest.flower.round_outcome import EventLog
from fedlatest.ledger import ClientStore, Ledger, Limits, LocalUpdate, handle_instruction

SIZE = 650


class ManyNodes(LocalGrid):
    """Nodes of which a share is online; their states are created when they are asked."""

    def __init__(self, num_nodes: int, share: float) -> None:
        super().__init__()
        self.infos = [NodeInfo(node_id=number) for number in range(num_nodes)]
        self.stores: dict[int, ClientStore] = {}
        self.random = np.random.default_rng(0)
        self.online = self.random.random(num_nodes) < share
        self.share, self.pending = share, dict[str, Message]()
        self.update = self.random.integers(-(2**20), 2**20, SIZE).astype("<i4")

    def change_availability(self) -> None:
        """Draw anew for a tenth of the nodes who is online."""
        drawn = self.random.random(len(self.infos)) < 0.1
        self.online[drawn] = self.random.random(int(drawn.sum())) < self.share

    def get_nodes(self) -> Iterable[NodeInfo]:
        """Return the nodes that are online."""
        return [self.infos[number] for number in np.flatnonzero(self.online)]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Keep the messages until they are pulled."""
        identifiers = []
        for message in messages:
            identifiers.append(f"m{len(self.pending)}-{message.metadata.dst_node_id}")
            message.metadata.__dict__["_message_id"] = identifiers[-1]
            self.pending[identifiers[-1]] = message
        return identifiers

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Let the clients reply."""
        return [self._reply(self.pending.pop(identifier)) for identifier in message_ids if identifier in self.pending]

    def _reply(self, message: Message) -> Message:
        instruction = read_instruction(message)
        assert instruction is not None
        number = message.metadata.dst_node_id
        store = self.stores.setdefault(number, ClientStore(MemoryStorage()))
        instruction = replace(instruction, client=_name(number))
        return reply_message(handle_instruction(store, instruction, train=self._train), message)

    def _train(self) -> LocalUpdate:
        return LocalUpdate(np.roll(self.update, len(self.stores)), 300.0, {})


def _name(number: int) -> str:
    return f"client{number:08d}"


def _size(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20


def _memory() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def measure(num_clients: int, rounds: int, share: float, every: int, cohort: int) -> None:
    """Run a job and print what it costs."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        strategy = FedLaAvg(job=folder / "job", cohort_size=cohort, limits=Limits(max_clients=2 * num_clients))
        model = to_record({"all": np.zeros(SIZE, np.float32)})
        with strategy.open_ledger(model) as ledger:
            began = time.process_time()
            _join(ledger, num_clients)
            joining = time.process_time() - began
        before, began = _memory(), time.process_time()
        ledger = strategy.open_ledger(model)
        opening, memory = time.process_time() - began, _memory() - before
        print(
            f"{num_clients:,} clients: joining {joining:.2f} s, opening the ledger {opening:.2f} s and {memory:.0f} "
            f"MiB (ledger {_size(folder):.1f} MiB)",
            flush=True,
        )
        grid = ManyNodes(num_clients, share)
        events = EventLog(folder / "job/events.jsonl")
        messages = OutstandingMessages(grid, 600.0, 4 * SIZE, clock=time.process_time)
        for number in range(num_clients):
            messages.identify(number, _name(number))
        timeouts = Timeouts(deadline=3000, poll=0.001)
        loop = RoundLoop(
            messages, ledger, strategy.algorithm, events, cohort_size=cohort, timeouts=timeouts,
            clock=time.process_time,
        )  # fmt: skip
        _run(loop, grid, ledger, folder, rounds, every)
        ledger.close()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"  peak memory with the clients {peak:.2f} GiB", flush=True)


def _join(ledger: Ledger, num_clients: int) -> None:
    """Add the clients in transactions of 10,000."""
    for start in range(0, num_clients, 10_000):
        with ledger.batch():
            for number in range(start, min(start + 10_000, num_clients)):
                ledger.table.add(_name(number), 300.0, 0.0)


def _run(loop: RoundLoop, grid: ManyNodes, ledger: Ledger, folder: Path, rounds: int, every: int) -> None:
    own: list[float] = []
    wall: list[float] = []
    size, log = _size(folder), folder / "job/ledger.sqlite-wal"
    for round in range(1, rounds + 1):
        began = time.process_time()
        outcome = loop.run_round()
        wall.append(time.process_time() - began)
        own.append(outcome.own_seconds)
        grid.change_availability()
        if round % every == 0:
            grown = (_size(folder) - size) * 2**20 / every
            print(
                f"  rounds {round - every}-{round - 1}: own code {_describe(own[-every:])} a round, all "
                f"{_describe(wall[-every:])}; {grown / 1e3:.1f} kB on disk a round; log "
                f"{log.stat().st_size / 2**20:.1f} MiB; memory {_memory():.0f} MiB",
                flush=True,
            )
            size = _size(folder)


def _describe(seconds: Sequence[float]) -> str:
    return f"{np.median(seconds):.3f} s (90%: {np.quantile(seconds, 0.9):.3f} s)"


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost of the server with many clients")
    parser.add_argument("--clients", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--every", type=int, default=5, help="print after so many rounds")
    parser.add_argument("--cohort", type=int, default=100)
    parser.add_argument("--available", type=float, default=0.5)
    options = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}", flush=True)
    for num_clients in options.clients:
        arguments = (num_clients, options.rounds, options.available, options.every, options.cohort)
        process = multiprocessing.get_context("spawn").Process(target=measure, args=arguments)
        process.start()
        process.join()


if __name__ == "__main__":
    main()
