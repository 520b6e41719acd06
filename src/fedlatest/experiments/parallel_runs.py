"""Running many experiments: side by side in one program on an accelerator, in several processes on a CPU."""

import json
import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

import jax

from fedlatest.errors import DivergedError, FedlatestError
from fedlatest.experiments.build_federation import Data, FederationBuilder
from fedlatest.experiments.experiment import Experiment
from fedlatest.simulation import Progress, simulate_together

MOST_WORKERS = 8
STOPS = (signal.SIGINT, signal.SIGTERM)


class Job(NamedTuple):
    """Experiments to run as one, and where they go."""

    experiments: tuple[Experiment, ...]
    folders: tuple[Path, ...]


class News(NamedTuple):
    """What is heard of a job: rounds done so far, and at its end which of its experiments diverged, with the reason."""

    job: int
    round: int
    done: bool = False
    diverged: Mapping[str, str] = {}


Hear = Callable[[News], None]
"""Hears news of a job; may raise KeyboardInterrupt, upon which everything is checkpointed and stopped."""


def run_side_by_side(jobs: Sequence[Job], builder: FederationBuilder, seeds: Sequence[int], hear: Hear) -> None:
    """Run jobs one after the other, the experiments of each in one program."""
    for number, job in enumerate(jobs):

        def tell(round: int, number: int = number) -> None:
            hear(News(number, round))

        hear(News(number, *_play(job, builder, seeds, tell)))


def run_in_processes(
    jobs: Sequence[Job], load: Callable[[], Data], seeds: Sequence[int], hear: Hear, *, num_workers: int
) -> None:
    """Run jobs in worker processes, which hand each other their compiled programs through a folder."""
    waiting = list(enumerate(jobs))
    with _workers(min(num_workers, len(jobs)), load, list(seeds)) as connections:
        busy = [connection for connection in connections if _hand_out(connection, waiting)]
        while busy:
            for connection in wait(busy):
                assert isinstance(connection, Connection)
                news = _news(connection)
                hear(news)
                if news.done and not _hand_out(connection, waiting):
                    busy.remove(connection)


def side_by_side(experiments: Sequence[Experiment], folders: Sequence[Path], builder: FederationBuilder) -> list[Job]:
    """Jobs of experiments that share a compiled program."""
    programs = {experiment.name: experiment.spec(builder).batch_key for experiment in experiments}
    numbers = {program: number for number, program in enumerate(dict.fromkeys(programs.values()))}
    pairs = sorted(zip(experiments, folders, strict=True), key=lambda pair: numbers[programs[pair[0].name]])
    return [
        Job(*(tuple(column) for column in zip(*group, strict=True)))
        for _, group in groupby(pairs, key=lambda pair: numbers[programs[pair[0].name]])
    ]


def default_workers() -> int:
    """One worker a core, and not too many."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST_WORKERS)


def _play(
    job: Job, builder: FederationBuilder, seeds: Sequence[int], tell: Callable[[int], None]
) -> tuple[int, bool, dict[str, str]]:
    """Run what is missing of a job; yields (rounds, True, what diverged)."""
    specs = [experiment.spec(builder, seeds) for experiment in job.experiments]

    def listen(progress: Progress) -> None:
        tell(progress.round)

    results = simulate_together(specs, job.folders, resume=True, on_progress=listen)
    diverged = {
        experiment.name: str(result)
        for experiment, result in zip(job.experiments, results, strict=True)
        if isinstance(result, DivergedError)
    }
    return specs[0].rounds, True, diverged


@contextmanager
def _workers(number: int, load: Callable[[], Data], seeds: list[int]) -> Iterator[list[Connection]]:
    """Processes that each wait for jobs; at the end they have stopped, checkpointed if they were at work."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="fedlatest-programs-") as programs:
        pairs = [context.Pipe() for _ in range(number)]
        processes = [context.Process(target=_work, args=(theirs, load, seeds, programs)) for _, theirs in pairs]
        try:
            with _held_back(STOPS):  # workers are told when to stop by their parent alone
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
            finally:  # interrupted once more: at once
                for process in processes:
                    if process.is_alive():
                        process.kill()
                        process.join()


def _work(connection: Connection, load: Callable[[], Data], seeds: list[int], programs: str) -> None:
    """A worker: takes jobs until it is told to stop, or until nobody listens any more."""
    jax.config.update("jax_platforms", "cpu")
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):  # a user's own stands
        jax.config.update("jax_compilation_cache_dir", programs)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    try:
        builder = FederationBuilder(load())
        while "job" in (order := _receive(connection)):
            _take(connection, order, builder, seeds)
    except (KeyboardInterrupt, EOFError, ConnectionError):
        return
    except (FedlatestError, OSError) as error:
        _send(connection, {"error": str(error)})


@contextmanager
def _held_back(signals: tuple[signal.Signals, ...]) -> Iterator[None]:
    """Signals that come meanwhile are delivered afterwards; a process that is started here never hears them."""
    resource_tracker.ensure_running()  # starting the first process would start it, and let signals through again
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)


def _take(connection: Connection, order: Mapping[str, Any], builder: FederationBuilder, seeds: list[int]) -> None:
    experiments = tuple(Experiment(name, values) for name, values in order["experiments"])
    job = Job(experiments, tuple(map(Path, order["folders"])))

    def tell(round: int) -> None:
        _send(connection, News(order["job"], round)._asdict())
        if connection.poll():  # anything said to a worker at work is to stop
            raise KeyboardInterrupt

    _send(connection, News(order["job"], *_play(job, builder, seeds, tell))._asdict())


def _news(connection: Connection) -> News:
    try:
        message = _receive(connection)
    except (EOFError, ConnectionError):
        raise FedlatestError("a worker process died (out of memory?); the same command goes on from there") from None
    if "error" in message:
        raise FedlatestError(message["error"])
    return News(**message)


def _hand_out(connection: Connection, waiting: list[tuple[int, Job]]) -> bool:
    """Give a worker the next job, if there is one."""
    if not waiting:
        return False
    number, job = waiting.pop(0)
    experiments = [(experiment.name, dict(experiment.values)) for experiment in job.experiments]
    _send(connection, {"job": number, "experiments": experiments, "folders": [str(path) for path in job.folders]})
    return True


def _send(connection: Connection, message: Mapping[str, Any]) -> None:
    try:
        connection.send_bytes(json.dumps(message).encode())
    except (BrokenPipeError, OSError):
        return  # the other side is gone; what it had to say has been read or shows in the folders


def _receive(connection: Connection) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(connection.recv_bytes())
    return message
