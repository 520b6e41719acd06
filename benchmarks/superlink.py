"""A real SuperLink with many nodes on this machine: time to connect, cost of idle nodes, and seconds per round.

python -m benchmarks.superlink --nodes 200

A `flower-supernode` with its executor takes about 270 MB of memory, so 200 of them do not fit a small machine. Here a
node is a thread: it uses Flower's own functions for the connection (registration, heartbeats, polling every 3 seconds,
messages and objects over HTTP), but calls the ClientApp in the thread instead of starting a process. The SuperLink,
the ServerApp and the requests are real; clients reply faster than in a deployment.
"""

import argparse
import logging
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import c_int
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from statistics import median
from typing import NamedTuple

from flwr.app import Message, UserConfig
from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supernode import start_client_internal as supernode
from flwr.supernode.nodestate import NodeStateFactory

from fedlatest.deployment.process import free_ports, running_programs, stop_all
from fedlatest.deployment.scaffold import write_app
from fedlatest.deployment.superlink import Run, SuperLink
from fedlatest.deployment.template.digits.client_app import app as client_app
from fedlatest.ledger.event_log import read_events

POLL_SECONDS = 3.0  # as in Flower
NUM_PARTS = 20  # of the digits; several nodes share one
NUM_PROCESSES = 4
TIMEOUT = 240.0  # for all nodes to connect, and for all rounds


class Usage(NamedTuple):
    """CPU seconds and resident memory of processes."""

    cpu: float
    megabytes: float


def main() -> None:
    """Run the benchmark and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--cohort", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--idle", type=float, default=60.0, help="seconds for which idle nodes are measured")
    options = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as name:
        measure(Path(name), options.nodes, options.cohort, options.rounds, options.idle)


def measure(folder: Path, num_nodes: int, cohort_size: int, rounds: int, idle: float) -> None:
    """Start a SuperLink and nodes, measure, and stop them."""
    superlink = SuperLink(folder / "superlink", port=free_ports(1)[0], secrets=None, log=folder / "superlink.log")
    try:
        superlink.wait_until_ready()
        begin = time.monotonic()
        with nodes(folder, superlink.address, num_nodes) as (connected, processes):
            wait_until(lambda: connected.value == num_nodes)
            connect_seconds = time.monotonic() - begin
            print(f"{num_nodes} nodes online after {connect_seconds:.0f} s", flush=True)
            before = usage(superlink)
            time.sleep(idle)
            idle_cpu = (usage(superlink).cpu - before.cpu) * 60 / idle
            print(f"SuperLink with idle nodes: {idle_cpu:.1f} CPU s per minute", flush=True)
            seconds, round_cpu = run_rounds(folder, superlink, cohort_size, rounds)
            memory = sum(usage_of(process.pid or 0).megabytes for process in processes)
            print("| nodes | all online | SuperLink, idle nodes | round | SuperLink per round | SuperLink's memory |")
            print("|---|---|---|---|---|---|")
            print(
                f"| {num_nodes} | {connect_seconds:.0f} s | {idle_cpu:.1f} CPU s per minute | {seconds:.1f} s | "
                f"{round_cpu:.1f} CPU s | {usage(superlink).megabytes:.0f} MB |"
            )
            print(f"memory of the {len(processes)} processes with the nodes: {memory:.0f} MB")
    finally:
        if superlink.process is not None:
            stop_all([superlink.process])


def run_rounds(folder: Path, superlink: SuperLink, cohort_size: int, rounds: int) -> tuple[float, float]:
    """Run a job; return the median seconds of a round and the CPU seconds of the SuperLink per round."""
    write_app(folder / "app")
    (folder / "job").mkdir()
    config = {
        "job": str(folder / "job"), "rounds": rounds, "cohort-size": cohort_size, "deadline": 60.0,
        "min-clients": cohort_size,
    }  # fmt: skip
    run = Run(superlink, folder / "app", config=config, log=folder / "run.log")
    events = folder / "job" / "events.jsonl"
    try:
        wait_until(lambda: merged(events) >= 1)
        before = usage(superlink)
        wait_until(lambda: merged(events) >= rounds)
        after = usage(superlink)
    except TimeoutError:
        print(run.process.output()[-2000:])
        raise
    finally:
        run.process.kill()
    seconds = [event["seconds"] for event in read_events(events) if event["event"] == "merged"]
    return median(seconds[1:]), (after.cpu - before.cpu) / (rounds - 1)


@contextmanager
def nodes(
    folder: Path, address: str, num_nodes: int
) -> Iterator[tuple["Synchronized[int]", list[multiprocessing.process.BaseProcess]]]:
    """Run nodes in threads of forked processes; yield the number of connected ones and the processes."""
    context = multiprocessing.get_context("fork")  # the processes share the imported modules
    connected = context.Value(c_int, 0)
    processes: list[multiprocessing.process.BaseProcess] = [
        context.Process(
            target=run_nodes, args=(folder, address, range(first, num_nodes, NUM_PROCESSES), connected), daemon=True
        )
        for first in range(min(NUM_PROCESSES, num_nodes))
    ]
    for process in processes:
        process.start()
    try:
        yield connected, processes
    finally:
        for process in processes:
            process.kill()
            process.join()


def run_nodes(folder: Path, address: str, numbers: range, connected: "Synchronized[int]") -> None:
    """Run nodes as threads of this process until it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in numbers:
        threading.Thread(target=run_node, args=(folder, address, number, connected), daemon=True).start()
    threading.Event().wait()


def run_node(folder: Path, address: str, number: int, connected: "Synchronized[int]") -> None:
    """Run one node: Flower's loop, except that the ClientApp is called here."""
    factory = ObjectStoreFactory()
    state, store = NodeStateFactory(objectstore_factory=factory).state(), factory.store()
    node_state = folder / "nodes" / str(number)
    node_state.mkdir(parents=True)
    node_config: UserConfig = {
        "partition-id": number % NUM_PARTS, "num-partitions": NUM_PARTS, "name": f"node{number}",
        "state-dir": str(node_state),
    }  # fmt: skip
    with supernode._init_connection(address, insecure=True) as connection:
        node_id, receive, send, get_run, get_fab, pull_object, push_object, confirm = connection
        state.set_node_id(node_id)
        with connected.get_lock():
            connected.value += 1
        while True:
            run_id = supernode._pull_and_store_message(
                state, store, node_config, receive, get_run, get_fab, pull_object, confirm, None
            )
            if run_id is None:
                time.sleep(POLL_SECONDS)
                continue
            for received in state.get_messages_legacy(is_reply=False):
                tree = store.get_object_tree(received.metadata.message_id)
                message = pull_and_inflate_object_from_tree(
                    tree, lambda key: store.get(key) or b"", lambda _: None, return_type=Message
                )
                message.metadata.__dict__["_message_id"] = received.metadata.message_id
                run = state.get_run(run_id)
                assert run is not None
                context = state.get_run_series_context(run.series_id)
                assert context is not None
                state.record_message_processing_start(received.metadata.message_id)
                reply = client_app(message, context)
                state.record_message_processing_end(received.metadata.message_id)
                supernode._insert_message(reply, state, store)
            supernode._push_messages(state, store, send, push_object)


def merged(events: Path) -> int:
    """Return the number of merged rounds."""
    return sum(event["event"] == "merged" for event in read_events(events))


def usage(superlink: SuperLink) -> Usage:
    """Return the usage of the SuperLink's own process, without its executor and the ServerApp."""
    assert superlink.process is not None
    [programs] = running_programs([superlink.process])
    [pid] = [pid for pid, name in programs.items() if name == "flower-superlink"]
    return usage_of(pid)


def usage_of(pid: int) -> Usage:
    """Return the usage of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    return Usage((int(fields[11]) + int(fields[12])) / ticks, int(fields[21]) * page / 1e6)


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds; raise TimeoutError after some minutes."""
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {TIMEOUT:.0f} s")
        time.sleep(0.1)


if __name__ == "__main__":
    main()
