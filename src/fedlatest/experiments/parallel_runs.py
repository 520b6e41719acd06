"""Batches of experiments, their progress, and running batches one after the other in this process.

`process_runs` runs batches in worker processes, `cluster_runs` on a Dask cluster.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax

from fedlatest.errors import DivergedError
from fedlatest.experiments.experiment import Experiment, FederationBuilder
from fedlatest.experiments.settings import arrivals_per_step
from fedlatest.machine import num_cores
from fedlatest.simulation import Progress, needed_compilations, simulate_together
from fedlatest.simulation.compile_ahead import Compilation, CompileAhead

MAX_WORKERS = 8
MAX_COMPILERS = 8


class Batch(NamedTuple):
    """Experiments that run together in one compiled program, and the run folder of each."""

    experiments: tuple[Experiment, ...]
    folders: tuple[Path, ...]

    def to_plain(self) -> dict[str, Any]:
        """Return the batch as numbers and texts, to send it to another process."""
        experiments = [[each.name, dict(each.values), each.tabulated] for each in self.experiments]
        return {"experiments": experiments, "folders": [str(path) for path in self.folders]}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Batch":
        """Return the batch that `to_plain` was called on."""
        experiments = tuple(Experiment(*fields) for fields in plain["experiments"])
        return cls(experiments, tuple(map(Path, plain["folders"])))


class BatchProgress(NamedTuple):
    """Progress of one batch; the last report has `done` set and gives the reason for each experiment that diverged."""

    batch: int  # position in the list of batches
    round: int  # rounds done so far
    done: bool = False
    diverged: Mapping[str, str] = {}  # name of the experiment -> reason
    note: str = ""  # a message for the user


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
            each program when it is needed. By default the number of cores minus 1 (at most MAX_COMPILERS) with an
            accelerator, and 0 on a CPU, whose cores are busy with the rounds.
    """
    threads = default_compile_threads() if compile_threads is None else compile_threads
    with CompileAhead(threads) if threads else nullcontext() as ahead:
        planned = [ahead.plan(partial(_compilations, batch, builder, seeds)) for batch in batches] if ahead else []
        for number, batch in enumerate(batches):

            def report(round: int, number: int = number) -> None:
                on_progress(BatchProgress(number, round))

            if planned:
                planned[number].wait()
            rounds, diverged = run_batch(batch, builder, seeds, report)
            on_progress(BatchProgress(number, rounds, True, diverged))


def group_by_program(
    experiments: Sequence[Experiment],
    folders: Sequence[Path],
    builder: FederationBuilder,
    seeds: Sequence[int] = (0,),
) -> list[Batch]:
    """Group experiments that share a compiled program into batches.

    Args:
        experiments: the experiments.
        folders: the run folder of each experiment.
        builder: holds the data and builds the federations.
        seeds: the seeds of every experiment.

    Returns:
        One batch per program, in the order in which the programs first appear.
    """
    groups: dict[Hashable, list[tuple[Experiment, Path]]] = {}
    for experiment, folder in zip(experiments, folders, strict=True):
        groups.setdefault(experiment.spec(builder, seeds).batch_key, []).append((experiment, folder))
    return [Batch(*(tuple(column) for column in zip(*group, strict=True))) for group in groups.values()]


def single_batches(experiments: Sequence[Experiment], folders: Sequence[Path]) -> list[Batch]:
    """Return a batch for each experiment."""
    return [Batch((experiment,), (folder,)) for experiment, folder in zip(experiments, folders, strict=True)]


def work(experiment: Experiment) -> float:
    """Return a rough cost of an experiment in trained samples; one evaluation counts as 30,000 samples."""
    values = experiment.values
    steps = 1 if values["algorithm"] == "fedsgd" else values["local_steps"]
    clients = arrivals_per_step(values) or values["participation"] * values["num_clients"]
    trained = clients * steps * values["batch_size"]
    return float(values["rounds"] * (trained + 30_000 / values["evaluate_every"]))


def default_workers() -> int:
    """Return the number of CPU cores that this process may use, at most MAX_WORKERS."""
    return min(num_cores(), MAX_WORKERS)


def default_compile_threads() -> int:
    """Return how many threads compile ahead: 0 on a CPU, else the number of cores minus 1, at most MAX_COMPILERS."""
    return 0 if jax.default_backend() == "cpu" else min(num_cores() - 1, MAX_COMPILERS)


def run_batch(
    batch: Batch,
    builder: FederationBuilder,
    seeds: Sequence[int],
    report: Callable[[int], None],
    *,
    log: Sequence[str] = (),
) -> tuple[int, dict[str, str]]:
    """Run the experiments of a batch that are not finished.

    Args:
        batch: the experiments and their folders.
        builder: holds the data and builds the federations.
        seeds: the seeds of every experiment.
        report: called with the number of rounds done after every block, or, if the runs end at a virtual time, with
            the same share of their rounds; may raise KeyboardInterrupt.
        log: names of loggers; see `fedlatest.runs.loggers`.

    Returns:
        The number of rounds, and the reason for each experiment that diverged, by its name.
    """
    specs = [experiment.spec(builder, seeds) for experiment in batch.experiments]

    def on_progress(progress: Progress) -> None:
        # of a run that ends at a virtual time, the share that is done, in rounds
        report(specs[0].rounds * progress.round // max(1, progress.rounds))

    results = simulate_together(specs, batch.folders, resume=True, on_progress=on_progress, log=log)
    diverged = {
        experiment.name: str(result)
        for experiment, result in zip(batch.experiments, results, strict=True)
        if isinstance(result, DivergedError)
    }
    return specs[0].rounds, diverged


def _compilations(batch: Batch, builder: FederationBuilder, seeds: Sequence[int]) -> list[Compilation]:
    return needed_compilations([experiment.spec(builder, seeds) for experiment in batch.experiments], batch.folders)
