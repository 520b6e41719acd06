"""Many experiments at once: in processes as side by side as alone, stopped and continued."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from fedlatest import FedlatestError, RunFolder, Samples, load_digits
from fedlatest.experiments import Experiment, FederationBuilder
from fedlatest.experiments.parallel_runs import Job, News, run_in_processes, run_side_by_side, side_by_side
from fedlatest.reproduction.mnist_figures import mnist_experiment

SMALL = "num_clients=20 local_steps=2 rounds=60 evaluate_every=5"
EXPERIMENTS = [
    mnist_experiment(f"algorithm=fedavg {SMALL}"),
    mnist_experiment(f"algorithm=fedavg {SMALL} period=10"),
    mnist_experiment(f"algorithm=fedprox {SMALL} mu=0.1"),
    mnist_experiment(f"algorithm=fedprox {SMALL} mu=0.5"),
    mnist_experiment(f"algorithm=sequential {SMALL}"),
]


def alone(experiment: Experiment, path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return experiment.run(load_digits(), out=path, seeds=[0, 1]).metrics.column("train_loss")


def losses(path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return RunFolder(path).metrics().column("train_loss")


def one_each(folder: Path) -> list[Job]:
    return [Job((experiment,), (folder / experiment.name,)) for experiment in EXPERIMENTS]


def test_programs_are_shared_where_only_numbers_differ(tmp_path: Path) -> None:
    """Two of FedAvg that differ in the period, two of FedProx that differ in mu, one of sequential SGD."""
    folders = [tmp_path / experiment.name for experiment in EXPERIMENTS]
    jobs = side_by_side(EXPERIMENTS, folders, FederationBuilder(load_digits()))
    assert [len(job.experiments) for job in jobs] == [2, 2, 1]
    assert jobs[1].folders == (folders[2], folders[3])


def test_in_processes_and_side_by_side_are_as_alone(tmp_path: Path) -> None:
    """Bit for bit on one machine; news comes of every job, and of its end once."""
    heard: list[News] = []
    jobs = [*one_each(tmp_path / "many")[:2], one_each(tmp_path / "many")[-1]]
    experiments = [experiment for job in jobs for experiment in job.experiments]
    run_in_processes(jobs, load_digits, [0, 1], heard.append, num_workers=2)
    assert sorted(news.job for news in heard if news.done) == [0, 1, 2]
    assert {news.round for news in heard} == set(range(0, 61, 5))
    builder = FederationBuilder(load_digits())
    folders = [tmp_path / "side" / experiment.name for experiment in experiments]
    run_side_by_side(side_by_side(experiments, folders, builder), builder, [0, 1], heard.append)
    for experiment, folder in zip(experiments, folders, strict=True):
        expected = alone(experiment, tmp_path / "alone" / experiment.name)
        np.testing.assert_array_equal(losses(tmp_path / "many" / experiment.name), expected)
        np.testing.assert_array_equal(losses(folder), expected)


def test_stopped_and_continued(tmp_path: Path) -> None:
    """A on_progress that wants to stop leaves checkpoints; the same jobs go on from there, and what is done stays."""

    def stop(news: News) -> None:
        if news.round == 5:
            raise KeyboardInterrupt

    jobs = one_each(tmp_path)[:2]
    with pytest.raises(KeyboardInterrupt):
        run_in_processes(jobs, load_digits, [0, 1], stop, num_workers=1)
    first = RunFolder(tmp_path / EXPERIMENTS[0].name)
    assert 0 < first.rounds_done < 60
    assert not first.finished
    heard: list[News] = []
    run_in_processes(jobs, load_digits, [0, 1], heard.append, num_workers=1)
    assert heard[0].round > 0
    expected = alone(EXPERIMENTS[0], tmp_path / "alone")
    np.testing.assert_array_equal(losses(tmp_path / EXPERIMENTS[0].name), expected)


def test_a_diverged_run_is_told_of(tmp_path: Path) -> None:
    wild = mnist_experiment(f"algorithm=fedprox {SMALL} mu=1e38 learning_rate=100")
    heard: list[News] = []
    jobs = [Job((wild,), (tmp_path / "wild",)), *one_each(tmp_path)[:1]]
    run_in_processes(jobs, load_digits, [0], heard.append, num_workers=1)
    [ended] = [news for news in heard if news.done and news.job == 0]
    assert "not finite" in ended.diverged[wild.name]
    assert RunFolder(tmp_path / EXPERIMENTS[0].name).finished


def broken() -> Samples:
    raise FedlatestError("no data today")


def killed() -> Samples:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def test_trouble_in_a_worker_is_told(tmp_path: Path) -> None:
    with pytest.raises(FedlatestError, match="no data today"):
        run_in_processes(one_each(tmp_path), broken, [0], print, num_workers=2)
    with pytest.raises(FedlatestError, match="a worker process died"):
        run_in_processes(one_each(tmp_path), killed, [0], print, num_workers=1)
