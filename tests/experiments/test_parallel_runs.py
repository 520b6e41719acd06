"""Many experiments at once: batched and in worker processes they equal single runs, and they can be resumed."""

import errno
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedlatest import FedlatestError, RunFolder, Samples, load_digits
from fedlatest.experiments import Experiment, FederationBuilder
from fedlatest.experiments.parallel_runs import Batch, BatchProgress, group_by_program, run_batches
from fedlatest.experiments.process_runs import run_batches_in_processes
from fedlatest.reproduction.mnist_figures import mnist_experiment

SMALL = "num_clients=20 local_steps=2 rounds=60 evaluate_every=5"
EXPERIMENTS = [
    mnist_experiment(f"algorithm=fedavg {SMALL}"),
    mnist_experiment(f"algorithm=fedavg {SMALL} period=10"),
    mnist_experiment(f"algorithm=fedprox {SMALL} mu=0.1"),
    mnist_experiment(f"algorithm=fedprox {SMALL} mu=0.5"),
    mnist_experiment(f"algorithm=sequential {SMALL}"),
]


def run_alone(experiment: Experiment, path: Path) -> npt.NDArray[np.float64]:
    return experiment.run(load_digits(), out=path, seeds=[0, 1]).metrics.column("train_loss")


def losses(path: Path) -> npt.NDArray[np.float64]:
    return RunFolder(path).metrics().column("train_loss")


def single_batches(folder: Path) -> list[Batch]:
    return [Batch((experiment,), (folder / experiment.name,)) for experiment in EXPERIMENTS]


def test_experiments_that_differ_in_numbers_share_a_program(tmp_path: Path) -> None:
    """Two of FedAvg that differ in the period, two of FedProx that differ in mu, one of sequential SGD."""
    folders = [tmp_path / experiment.name for experiment in EXPERIMENTS]
    batches = group_by_program(EXPERIMENTS, folders, FederationBuilder(load_digits()))
    assert [len(batch.experiments) for batch in batches] == [2, 2, 1]
    assert batches[1].folders == (folders[2], folders[3])


def test_batches_and_worker_processes_equal_single_runs(tmp_path: Path) -> None:
    """Bit for bit on one machine; every block of every batch is reported, and its end once."""
    reports: list[BatchProgress] = []
    batches = [*single_batches(tmp_path / "processes")[:2], single_batches(tmp_path / "processes")[-1]]
    experiments = [experiment for batch in batches for experiment in batch.experiments]
    run_batches_in_processes(batches, load_digits, [0, 1], reports.append, num_workers=2)
    assert sorted(report.batch for report in reports if report.done) == [0, 1, 2]
    assert {report.round for report in reports} == set(range(0, 61, 5))
    builder = FederationBuilder(load_digits())
    folders = [tmp_path / "batched" / experiment.name for experiment in experiments]
    run_batches(group_by_program(experiments, folders, builder), builder, [0, 1], reports.append)
    for experiment, folder in zip(experiments, folders, strict=True):
        expected = run_alone(experiment, tmp_path / "alone" / experiment.name)
        np.testing.assert_array_equal(losses(tmp_path / "processes" / experiment.name), expected)
        np.testing.assert_array_equal(losses(folder), expected)


def test_stopped_batches_are_resumed(tmp_path: Path) -> None:
    """A callback that raises KeyboardInterrupt leaves checkpoints; the same batches resume from them."""

    def stop(progress: BatchProgress) -> None:
        if progress.round == 5:
            raise KeyboardInterrupt

    batches = single_batches(tmp_path)[:2]
    with pytest.raises(KeyboardInterrupt):
        run_batches_in_processes(batches, load_digits, [0, 1], stop, num_workers=1)
    first = RunFolder(tmp_path / EXPERIMENTS[0].name)
    assert 0 < first.rounds_done < 60
    assert not first.finished
    reports: list[BatchProgress] = []
    run_batches_in_processes(batches, load_digits, [0, 1], reports.append, num_workers=1)
    assert reports[0].round > 0
    expected = run_alone(EXPERIMENTS[0], tmp_path / "alone")
    np.testing.assert_array_equal(losses(tmp_path / EXPERIMENTS[0].name), expected)


def test_a_diverged_run_is_reported(tmp_path: Path) -> None:
    diverging = mnist_experiment(f"algorithm=fedprox {SMALL} mu=1e38 learning_rate=100")
    reports: list[BatchProgress] = []
    batches = [Batch((diverging,), (tmp_path / "diverging",)), *single_batches(tmp_path)[:1]]
    run_batches_in_processes(batches, load_digits, [0], reports.append, num_workers=1)
    [last] = [report for report in reports if report.done and report.batch == 0]
    assert "not finite" in last.diverged[diverging.name]
    assert RunFolder(tmp_path / EXPERIMENTS[0].name).finished


def fail_to_load() -> Samples:
    raise FedlatestError("no data today")


def say_how_many_threads() -> Samples:
    raise FedlatestError(f"NPROC={os.environ.get('NPROC')}")


def kill_this_process() -> Samples:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def test_errors_in_a_worker_are_raised_in_the_parent(tmp_path: Path) -> None:
    with pytest.raises(FedlatestError, match="no data today"):
        run_batches_in_processes(single_batches(tmp_path), fail_to_load, [0], print, num_workers=2)
    with pytest.raises(FedlatestError, match="a worker process died"):
        run_batches_in_processes(single_batches(tmp_path), kill_this_process, [0], print, num_workers=1)


def test_workers_share_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NPROC", raising=False)
    monkeypatch.setattr("fedlatest.experiments.process_runs.num_cores", lambda: 6)
    with pytest.raises(FedlatestError, match="NPROC=3"):
        run_batches_in_processes(single_batches(tmp_path), say_how_many_threads, [0], print, num_workers=2)


def test_a_worker_that_cannot_be_started_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(process: Any) -> None:
        raise OSError(errno.EAGAIN, "too many processes")

    monkeypatch.setattr("multiprocessing.context.SpawnProcess.start", fail)
    with pytest.raises(OSError, match="too many processes"):
        run_batches_in_processes(single_batches(tmp_path), fail_to_load, [0], print, num_workers=2)
