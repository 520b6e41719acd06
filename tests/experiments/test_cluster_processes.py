"""A real scheduler and real workers as processes of their own, some of which are killed."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedlatest import ClusterError, RunFolder, load_mnist
from fedlatest.experiments.cluster_runs import Cluster, DataSource, check_address, connect
from fedlatest.experiments.parallel_runs import BatchProgress, single_batches
from fedlatest.reproduction.mnist_figures import mnist_experiment
from tests.experiments.test_cluster_runs import assert_same_run
from tests.test_cli_reproduce import process_group_ended

pytestmark = pytest.mark.slow
LONG = "num_clients=20 local_steps=2 rounds=40000 evaluate_every=50"


@contextmanager
def processes(*commands: list[str], cwd: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start processes; kill those that are left at the end."""
    started = []
    try:
        for number, command in enumerate(commands):
            log = (cwd / f"{command[1].rsplit('.')[-1]}-{number}.log").open("wb")
            with log:
                started.append(subprocess.Popen([sys.executable, "-m", *command], cwd=cwd, stdout=log, stderr=log))
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


@contextmanager
def real_cluster(cwd: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Start a scheduler and two workers as `dask scheduler` and `dask worker` do; yield the address and the workers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    scheduler = ["distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
    worker = ["distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    with processes(scheduler, worker, worker, cwd=cwd) as started:
        yield address, started[1:]


def test_a_worker_is_killed_and_its_run_continues(small_mnist: Path, tmp_path: Path) -> None:
    """Two workers, stopped once for checkpoints, then one is killed with -9: bit-identical to uninterrupted runs."""
    experiments = [mnist_experiment(f"algorithm={name} {LONG}") for name in ("fedavg", "fedlaavg", "fedprox")]
    folders = [tmp_path / "cluster" / experiment.name for experiment in experiments]
    batches, source = single_batches(experiments, folders), DataSource("mnist", small_mnist)
    with real_cluster(tmp_path) as (address, workers), connect_soon(address) as cluster:
        cluster.client.wait_for_workers(2, timeout=60)
        assert not cluster.check(tmp_path / "cluster")
        advanced: set[int] = set()

        def stop(progress: BatchProgress) -> None:
            if progress.round > 100:
                advanced.add(progress.batch)
            if advanced == {0, 1}:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            cluster.run(batches, source, [0], stop)
        checkpoints = [RunFolder(folder).rounds_done for folder in folders]
        assert min(checkpoints[:2]) > 0
        assert max(checkpoints) < 40000
        reports: list[BatchProgress] = []

        def kill(progress: BatchProgress) -> None:
            reports.append(progress)
            if progress.batch == 0 and progress.round > checkpoints[0] + 500 and len(workers) == 2:
                tasks, pids = cluster.client.processing(), cluster.client.run(os.getpid)
                [victim] = [name for name, keys in tasks.items() if any(key.endswith("-0") for key in keys)]
                [process] = [worker for worker in workers if worker.pid == pids[victim]]
                workers[:] = [process]
                process.send_signal(signal.SIGKILL)
                process.wait()

        cluster.run(batches, source, [0], kill)
    assert workers[0].returncode == -signal.SIGKILL
    [note] = [report.note for report in reports if report.note]
    assert re.search(rf"fedavg.*: worker tcp.* was lost; tcp.* continues from round {checkpoints[0]}$", note)
    for experiment, folder in zip(experiments, folders, strict=True):
        experiment.run(load_mnist(small_mnist), out=tmp_path / "alone" / experiment.name)
        assert_same_run(folder, tmp_path / "alone" / experiment.name)


def test_a_worker_is_shut_down_and_its_run_continues(small_mnist: Path, tmp_path: Path) -> None:
    """SIGTERM, as a batch system sends it: the run writes a checkpoint first, so no round is repeated."""
    experiment = mnist_experiment(f"algorithm=fedavg {LONG}")
    batches, source = single_batches([experiment], [tmp_path / "run"]), DataSource("mnist", small_mnist)
    with real_cluster(tmp_path) as (address, _), connect_soon(address) as cluster:
        cluster.client.wait_for_workers(2, timeout=60)
        reports: list[BatchProgress] = []
        stopped_at: list[int] = []

        def terminate(progress: BatchProgress) -> None:
            reports.append(progress)
            if progress.round > 1000 and not stopped_at:
                tasks, pids = cluster.client.processing(), cluster.client.run(os.getpid)
                [victim] = [name for name, keys in tasks.items() if keys]
                stopped_at.append(progress.round)
                os.kill(pids[victim], signal.SIGTERM)

        cluster.run(batches, source, [0], terminate)
    [note] = [report.note for report in reports if report.note]
    [continued] = re.findall(r"continues from round (\d+)$", note)
    assert int(continued) >= stopped_at[0]
    assert RunFolder(tmp_path / "run").finished


@contextmanager
def connect_soon(address: str) -> Iterator[Cluster]:
    """Connect to a scheduler that has just been started."""
    deadline = time.monotonic() + 60
    while True:
        try:
            check_address(address)
            break
        except ClusterError:
            assert time.monotonic() < deadline
    with connect(address, num_workers=2) as cluster:
        yield cluster


def test_the_command_is_interrupted_killed_and_repeated(small_mnist: Path, tmp_path: Path) -> None:
    """Ctrl-C: exit code 130 and checkpoints. kill -9: the workers stop by themselves, and the next call goes on."""
    settings = ("--figure", "chart", "--rounds", "2000", "--data", str(small_mnist), "--out", "o")
    run = RunFolder(tmp_path / "o/fedlaavg-digits=3")
    with real_cluster(tmp_path) as (address, _), connect_soon(address):
        command = [sys.executable, "-m", "fedlatest", "reproduce", "mnist", *settings, "--cluster", address]

        def start_and_wait(rounds: int) -> subprocess.Popen[str]:
            process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
            deadline = time.monotonic() + 120
            while not run.exists or not run.metrics().rows or run.metrics().rows[-1].round < rounds:
                assert process.poll() is None, process.communicate()[1]
                assert time.monotonic() < deadline
                time.sleep(0.05)
            return process

        interrupted = start_and_wait(100)
        interrupted.send_signal(signal.SIGINT)
        _, errors = interrupted.communicate(timeout=60)
        assert interrupted.returncode == 130, errors
        assert "run the same command again to continue" in errors
        assert "Traceback" not in errors
        first = run.rounds_done
        assert 0 < first < 2000

        killed = start_and_wait(first + 100)
        killed.kill()
        killed.communicate()
        again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
        assert again.returncode == 0, again.stderr
        assert run.finished


def test_the_scheduler_is_lost(small_mnist: Path, tmp_path: Path) -> None:
    """The command ends with an error that says how to go on, and the workers do not run on for ever."""
    experiment = mnist_experiment(f"algorithm=fedavg {LONG.replace('40000', '10000000')}")
    with real_cluster(tmp_path) as (address, workers), connect_soon(address) as cluster:
        scheduler = cluster.client.run_on_scheduler(os.getpid)

        def kill(progress: BatchProgress) -> None:
            if progress.round > 100:
                os.kill(scheduler, signal.SIGKILL)

        batches = single_batches([experiment], [tmp_path / "run"])
        with pytest.raises((ClusterError, ProcessLookupError)) as caught:
            cluster.run(batches, DataSource("mnist", small_mnist), [0], kill)
        assert isinstance(caught.value, ClusterError)
        assert "the connection to the scheduler" in str(caught.value)
        for worker in workers:
            worker.wait(timeout=60)


def test_local_cluster_from_the_command_line(tmp_path: Path) -> None:
    """`--cluster local` starts workers of its own; SIGINT to the process group, as a terminal sends it, stops them."""
    arguments = (
        "run",
        "quickstart",
        "--set",
        "num_clients=20",
        "--out",
        "q",
        "--cluster",
        "local",
        "--rounds",
        "100000",
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "fedlatest", *arguments],
        cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    run, deadline = RunFolder(tmp_path / "q/fedavg"), time.monotonic() + 120
    while not run.exists or not run.metrics().rows or run.metrics().rows[-1].round < 20:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert "with --resume" in errors
    assert run.rounds_done > 0
    assert process_group_ended(process.pid)
