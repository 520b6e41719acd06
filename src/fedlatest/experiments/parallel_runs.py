"""Running many experiments: batched in one compiled program on an accelerator, in worker processes on a CPU."""

import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import groupby
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

import jax

from fedlatest.errors import DivergedError, FedlatestError
from fedlatest.experiments.experiment import Data, Experiment, FederationBuilder
from fedlatest.simulation import Progress, needed_compilations, simulate_together
from fedlatest.simulation.compile_ahead import Compilation, CompileAhead

MAX_WORKERS = 8
MAX_COMPILERS = 8
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Batch(NamedTuple):
    """Experiments that run together in one compiled program, and the run folder of each."""

    experiments: tuple[Experiment, ...]
    folders: tuple[Path, ...]


class BatchProgress(NamedTuple):
    """Progress of one batch; the last report has `done` set and gives the reason for each experiment that diverged."""

    batch: int  # position in the list of batches
    round: int  # rounds done so far
    done: bool = False
    diverged: Mapping[str, str] = {}  # name of the experiment -> reason


BatchCallback = Callable[[BatchProgress], None]
"""Receives the progress of batches; may raise KeyboardInterrupt, which checkpoints all runs and stops them."""


def run_batches(
    batches: Sequence[Batch],
    builder: FederationBuilder,
    seeds: Sequence[int],
    on_progress: BatchCallback,
    *,
    compile_threads: int | None = None,
) -> None:
    """Run batches one after the other in this process; runs that already have a checkpoint are resumed.

    Args:
        batches: what to run; each batch is one compiled program.
        builder: holds the data and builds the federations.
        seeds: the seeds of every experiment.
        on_progress: called after every block of rounds and at the end of every batch.
        compile_threads: number of threads that compile the programs of later batches while a batch runs; 0 compiles
            each program when it is needed. By default the cores that are left beside an accelerator, and 0 on a CPU,
            whose cores are busy with the rounds.
    """
    threads = default_compile_threads() if compile_threads is None else compile_threads
    with CompileAhead(threads) if threads else nullcontext() as ahead:
        planned = [ahead.plan(partial(_compilations, batch, builder, seeds)) for batch in batches] if ahead else []
        for number, batch in enumerate(batches):

            def report(round: int, number: int = number) -> None:
                on_progress(BatchProgress(number, round))

            if planned:
                planned[number].wait()
            rounds, diverged = _run_batch(batch, builder, seeds, report)
            on_progress(BatchProgress(number, rounds, True, diverged))


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


def group_by_program(
    experiments: Sequence[Experiment], folders: Sequence[Path], builder: FederationBuilder
) -> list[Batch]:
    """Group experiments that share a compiled program into batches.

    Args:
        experiments: experiments with distinct names.
        folders: the run folder of each experiment.
        builder: holds the data and builds the federations.

    Returns:
        One batch per program, in the order in which the programs first appear.
    """
    programs = {experiment.name: experiment.spec(builder).batch_key for experiment in experiments}
    numbers = {program: number for number, program in enumerate(dict.fromkeys(programs.values()))}
    pairs = sorted(zip(experiments, folders, strict=True), key=lambda pair: numbers[programs[pair[0].name]])
    return [
        Batch(*(tuple(column) for column in zip(*group, strict=True)))
        for _, group in groupby(pairs, key=lambda pair: numbers[programs[pair[0].name]])
    ]


def default_workers() -> int:
    """Return the number of CPU cores that this process may use, at most MAX_WORKERS."""
    return min(_num_cores(), MAX_WORKERS)


def default_compile_threads() -> int:
    """Return how many threads compile ahead: none on a CPU, else a core for each but one, at most MAX_COMPILERS."""
    return 0 if jax.default_backend() == "cpu" else min(_num_cores() - 1, MAX_COMPILERS)


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _compilations(batch: Batch, builder: FederationBuilder, seeds: Sequence[int]) -> list[Compilation]:
    return needed_compilations([experiment.spec(builder, seeds) for experiment in batch.experiments], batch.folders)


def _run_batch(
    batch: Batch, builder: FederationBuilder, seeds: Sequence[int], report: Callable[[int], None]
) -> tuple[int, dict[str, str]]:
    """Run what is missing of a batch; return its number of rounds and the reason for each diverged experiment."""
    specs = [experiment.spec(builder, seeds) for experiment in batch.experiments]

    def on_progress(progress: Progress) -> None:
        report(progress.round)

    results = simulate_together(specs, batch.folders, resume=True, on_progress=on_progress)
    diverged = {
        experiment.name: str(result)
        for experiment, result in zip(batch.experiments, results, strict=True)
        if isinstance(result, DivergedError)
    }
    return specs[0].rounds, diverged


@contextmanager
def _workers(number: int, load: Callable[[], Data], seeds: list[int]) -> Iterator[list[Connection]]:
    """Start worker processes; on exit ask each to checkpoint and stop, and wait until it has."""
    context = multiprocessing.get_context("spawn")
    pairs = [context.Pipe() for _ in range(number)]
    processes = [context.Process(target=_worker_main, args=(theirs, load, seeds)) for _, theirs in pairs]
    try:
        with _signals_blocked(STOP_SIGNALS):  # only the parent asks workers to stop
            for process, (_, theirs) in zip(processes, pairs, strict=True):
                process.start()
                theirs.close()
        yield [ours for ours, _ in pairs]
    finally:
        for ours, _ in pairs:
            _send(ours, {"stop": True})
        try:
            for process in processes:
                process.join()
        finally:  # a second interrupt: do not wait for checkpoints
            for process in processes:
                if process.is_alive():
                    process.kill()
                    process.join()


def _worker_main(connection: Connection, load: Callable[[], Data], seeds: list[int]) -> None:
    """Run batches in a worker process until the parent asks it to stop or closes the connection."""
    jax.config.update("jax_platforms", "cpu")
    try:
        builder = FederationBuilder(load())
        while "batch" in (request := _receive(connection)):
            _serve(connection, request, builder, seeds)
    except (KeyboardInterrupt, EOFError, ConnectionError):
        return
    except (FedlatestError, OSError) as error:
        _send(connection, {"error": str(error)})


@contextmanager
def _signals_blocked(signals: tuple[signal.Signals, ...]) -> Iterator[None]:
    """Deliver signals only afterwards; processes that are started meanwhile keep them blocked for their lifetime."""
    resource_tracker.ensure_running()  # starting the first process would start it, which unblocks the signals
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)


def _serve(connection: Connection, request: Mapping[str, Any], builder: FederationBuilder, seeds: list[int]) -> None:
    """Run the batch of a request and send its progress to the parent."""
    experiments = tuple(Experiment(name, values) for name, values in request["experiments"])
    batch = Batch(experiments, tuple(map(Path, request["folders"])))

    def report(round: int) -> None:
        _send(connection, BatchProgress(request["batch"], round)._asdict())
        if connection.poll():  # the only message to a busy worker is the request to stop
            raise KeyboardInterrupt

    rounds, diverged = _run_batch(batch, builder, seeds, report)
    _send(connection, BatchProgress(request["batch"], rounds, True, diverged)._asdict())


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
    experiments = [(experiment.name, dict(experiment.values)) for experiment in batch.experiments]
    _send(connection, {"batch": number, "experiments": experiments, "folders": [str(path) for path in batch.folders]})
    return True


def _send(connection: Connection, message: Mapping[str, Any]) -> None:
    try:
        connection.send_bytes(json.dumps(message).encode())
    except OSError:
        return  # the other process has ended; its earlier messages and its run folders remain


def _receive(connection: Connection) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(connection.recv_bytes())
    return message
