"""Running batches in worker processes on this machine, without further packages.

`concurrent.futures` reports no progress, cannot ask a process to write a checkpoint and stop, and ends all processes
when one of them dies. Here each worker has a connection of its own, over which both sides send JSON.
"""

import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

import jax

from fedlatest.errors import FedlatestError
from fedlatest.experiments.experiment import Data, FederationBuilder
from fedlatest.experiments.parallel_runs import Batch, BatchCallback, BatchProgress, run_batch
from fedlatest.machine import num_cores

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_batches_in_processes(
    batches: Sequence[Batch],
    load: Callable[[], Data],
    seeds: Sequence[int],
    on_progress: BatchCallback,
    *,
    num_workers: int,
) -> None:
    """Run batches in worker processes, which share their compiled programs through the cache on disk.

    Args:
        batches: what to run; each worker runs one batch at a time.
        load: loads the data; called once in every worker, so it must be importable by name.
        seeds: the seeds of every experiment.
        on_progress: called in this process after every block of rounds and at the end of every batch.
        num_workers: largest number of worker processes.

    Raises:
        FedlatestError: a worker reported an error or died.
    """
    waiting = list(enumerate(batches))
    with _workers(min(num_workers, len(batches)), load, list(seeds)) as connections:
        busy = [connection for connection in connections if _dispatch(connection, waiting)]
        while busy:
            for connection in wait(busy):
                assert isinstance(connection, Connection)
                progress = _receive_progress(connection)
                on_progress(progress)
                if progress.done and not _dispatch(connection, waiting):
                    busy.remove(connection)


@contextmanager
def stop_signals_blocked() -> Iterator[None]:
    """Block SIGINT and SIGTERM within the context; processes that are started in it never receive them."""
    resource_tracker.ensure_running()  # starting the first process would start it, which unblocks the signals
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


@contextmanager
def _workers(number: int, load: Callable[[], Data], seeds: list[int]) -> Iterator[list[Connection]]:
    """Start worker processes; on exit ask each to checkpoint and stop, and wait until it has."""
    context = multiprocessing.get_context("spawn")
    pairs = [context.Pipe() for _ in range(number)]
    num_threads = max(1, num_cores() // number)
    processes = [context.Process(target=_worker_main, args=(theirs, load, seeds, num_threads)) for _, theirs in pairs]
    try:
        with stop_signals_blocked():  # only the parent asks workers to stop
            for process, (_, theirs) in zip(processes, pairs, strict=True):
                process.start()
                theirs.close()
        yield [ours for ours, _ in pairs]
    finally:
        for ours, _ in pairs:
            _send(ours, {"stop": True})
        started = [process for process in processes if process.pid is not None]
        try:
            for process in started:
                process.join()
        finally:  # a second interrupt: do not wait for checkpoints
            for process in started:
                if process.is_alive():
                    process.kill()
                    process.join()


def _worker_main(connection: Connection, load: Callable[[], Data], seeds: list[int], num_threads: int) -> None:
    """Run batches in a worker process until the parent asks it to stop or closes the connection."""
    os.environ.setdefault("NPROC", str(num_threads))  # JAX reads it when its first array is made
    jax.config.update("jax_platforms", "cpu")
    try:
        builder = FederationBuilder(load())
        while "batch" in (request := _receive(connection)):
            _serve(connection, request, builder, seeds)
    except (KeyboardInterrupt, EOFError, ConnectionError):
        return
    except (FedlatestError, OSError) as error:
        _send(connection, {"error": str(error)})


def _serve(connection: Connection, request: Mapping[str, Any], builder: FederationBuilder, seeds: list[int]) -> None:
    """Run the batch of a request and send its progress to the parent."""

    def report(round: int) -> None:
        _send(connection, BatchProgress(request["number"], round)._asdict())
        if connection.poll():  # the only message to a busy worker is the request to stop
            raise KeyboardInterrupt

    rounds, diverged = run_batch(Batch.from_plain(request["batch"]), builder, seeds, report)
    _send(connection, BatchProgress(request["number"], rounds, True, diverged)._asdict())


def _receive_progress(connection: Connection) -> BatchProgress:
    try:
        message = _receive(connection)
    except (EOFError, ConnectionError):
        raise FedlatestError(
            "a worker process died (out of memory?); run the same command again to resume from the last checkpoints"
        ) from None
    if "error" in message:
        raise FedlatestError(message["error"])
    return BatchProgress(**message)


def _dispatch(connection: Connection, waiting: list[tuple[int, Batch]]) -> bool:
    """Send the next waiting batch to a worker; return False if none is left."""
    if not waiting:
        return False
    number, batch = waiting.pop(0)
    _send(connection, {"number": number, "batch": batch.to_plain()})
    return True


def _send(connection: Connection, message: Mapping[str, Any]) -> None:
    try:
        connection.send_bytes(json.dumps(message).encode())
    except OSError:
        return  # the other process has ended; its earlier messages and its run folders remain


def _receive(connection: Connection) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(connection.recv_bytes())
    return message
