"""Experiments on a Dask cluster: results in the same folders, stops, and errors."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedlatest import ClusterError, FedlatestError, RunFolder, load_mnist
from fedlatest.errors import RunFolderInUseError
from fedlatest.experiments.experiment import FederationBuilder
from fedlatest.experiments.parallel_runs import BatchProgress, group_by_program, single_batches
from fedlatest.experiments.quickstart import quickstart
from fedlatest.reproduction.mnist_figures import mnist_experiment
from tests.command_line import fedlatest_here

distributed = pytest.importorskip("distributed")

from fedlatest.experiments import cluster_worker  # noqa: E402
from fedlatest.experiments.cluster_runs import Cluster, DataSource, connect  # noqa: E402

SMALL = "num_clients=20 local_steps=2 rounds=60 evaluate_every=5"
EXPERIMENTS = [mnist_experiment(f"algorithm={name} {SMALL}") for name in ("fedavg", "fedprox", "sequential")]


@pytest.fixture(scope="module")
def local() -> Iterator[Cluster]:
    """A scheduler and one worker in threads of this process, reached over TCP."""
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address="localhost:0"
        ) as local,
        connect(local.scheduler_address, num_workers=1) as cluster,
    ):
        yield cluster


def assert_same_run(one: Path, other: Path) -> None:
    """The files of two runs are equal, except for times and for the manifest, which contains times."""
    names = sorted(path.name for path in one.iterdir())
    assert names == sorted(path.name for path in other.iterdir())
    for name in set(names) - {"manifest.json", "metrics.csv"}:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    first, second = ([row._replace(seconds=0.0) for row in RunFolder(path).metrics().rows] for path in (one, other))
    assert first == second


def test_runs_equal_those_without_a_cluster(local: Cluster, small_mnist: Path, tmp_path: Path) -> None:
    """Experiments alone and in one program; every end is reported once, and nothing else is left in the folder."""
    folders = [tmp_path / "cluster" / experiment.name for experiment in EXPERIMENTS]
    assert not local.check(tmp_path / "cluster")  # without accelerators
    assert local.notes == []
    reports: list[BatchProgress] = []
    local.run(single_batches(EXPERIMENTS, folders), DataSource("mnist", small_mnist), [0, 1], reports.append)
    assert sorted(report.batch for report in reports if report.done) == [0, 1, 2]
    assert {report.round for report in reports if report.done} == {60}
    data = load_mnist(small_mnist)
    for experiment, folder in zip(EXPERIMENTS, folders, strict=True):
        experiment.run(data, seeds=[0, 1], out=tmp_path / "alone" / experiment.name)
        assert_same_run(folder, tmp_path / "alone" / experiment.name)
    assert sorted(path.name for path in (tmp_path / "cluster").iterdir()) == sorted(path.name for path in folders)


def test_stopped_runs_are_resumed(local: Cluster, small_mnist: Path, tmp_path: Path) -> None:
    """Stopping waits for the worker's checkpoint; the next call goes on from it, and the folder is not locked."""

    def stop(progress: BatchProgress) -> None:
        if progress.round > before:  # the first report may come before the first round
            raise KeyboardInterrupt

    experiment = mnist_experiment("algorithm=fedavg num_clients=20 local_steps=2 rounds=20000 evaluate_every=5")
    batches, source = single_batches([experiment], [tmp_path / "run"]), DataSource("mnist", small_mnist)
    for _ in range(2):
        before = RunFolder(tmp_path / "run").rounds_done
        with pytest.raises(KeyboardInterrupt):
            local.run(batches, source, [0], stop)
        done = RunFolder(tmp_path / "run").rounds_done
        assert before < done < 20000


def test_every_command_reads_its_own_data(
    local: Cluster, small_mnist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker keeps data for its next batch, but not for a command with another FEDLATEST_DATA."""
    batches = single_batches(EXPERIMENTS[:1], [tmp_path / "run"])
    monkeypatch.setenv("FEDLATEST_DATA", str(small_mnist))
    local.run(batches, DataSource("mnist", None), [0], print)
    monkeypatch.setenv("FEDLATEST_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(FedlatestError, match="nowhere: no such folder"):
        local.run(batches, DataSource("mnist", None), [0], print)
    bundled, *_ = quickstart.experiments(["num_clients=20", "rounds=20"])
    local.run(single_batches([bundled], [tmp_path / "digits"]), DataSource("quickstart", None), [0], print)


def test_errors_and_divergence_are_reported(local: Cluster, small_mnist: Path, tmp_path: Path) -> None:
    diverging = mnist_experiment(f"algorithm=fedprox {SMALL} mu=1e38 learning_rate=100")
    reports: list[BatchProgress] = []
    source = DataSource("mnist", small_mnist)
    local.run(single_batches([diverging], [tmp_path / "wild"]), source, [0], reports.append)
    assert "not finite" in reports[-1].diverged[diverging.name]
    batches = single_batches(EXPERIMENTS[:1], [tmp_path / "run"])
    with pytest.raises(FedlatestError, match=r"nowhere: no such folder.*\(on worker tcp://"):
        local.run(batches, DataSource("mnist", tmp_path / "nowhere"), [0], print)
    other = mnist_experiment(f"algorithm=fedavg {SMALL}")
    with pytest.raises(FedlatestError, match="another configuration"):
        local.run(single_batches([other], [tmp_path / "wild"]), source, [0], print)


def test_experiments_of_one_program_run_together(local: Cluster, small_mnist: Path, tmp_path: Path) -> None:
    """As on workers with accelerators."""
    experiments = [EXPERIMENTS[0], mnist_experiment(f"algorithm=fedavg {SMALL} period=10")]
    folders = [tmp_path / experiment.name for experiment in experiments]
    batches = group_by_program(experiments, folders, FederationBuilder(load_mnist(small_mnist)))
    assert len(batches) == 1
    local.run(batches, DataSource("mnist", small_mnist), [0, 1], print)
    assert all(RunFolder(folder).finished for folder in folders)


def test_a_worker_without_the_folder_is_found(
    local: Cluster, small_mnist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both when the workers are checked and, for a worker that joins later, when it gets a batch."""
    monkeypatch.setattr(cluster_worker, "VISIBLE_SECONDS", 0.1)
    monkeypatch.setattr(cluster_worker, "_is_visible", lambda path: False)
    with pytest.raises(ClusterError, match=rf"does not see {tmp_path} .* on a file system that all machines share"):
        local.check(tmp_path)
    batches = single_batches(EXPERIMENTS[:1], [tmp_path / "run"])
    with pytest.raises(FedlatestError, match="does not see"):
        local.run(batches, DataSource("mnist", small_mnist), [0], print)
    assert list(tmp_path.iterdir()) == []


def test_a_worker_of_another_version_is_found(local: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_worker, "__version__", "0.0.1")
    with pytest.raises(ClusterError, match=r"has fedlatest 0\.0\.1, the command .*; install the same version"):
        local.check(tmp_path)


def test_a_folder_in_use_is_waited_for(local: Cluster, small_mnist: Path, tmp_path: Path) -> None:
    """The worker that a batch was taken from may need a moment to stop."""
    folder = RunFolder(tmp_path / "run")
    folder.begin({"config": {}, "seeds": [], "data": {}}, resume=False, force=False)
    batches = single_batches(EXPERIMENTS[:1], [tmp_path / "run"])
    with pytest.raises(RunFolderInUseError):
        EXPERIMENTS[0].run(load_mnist(small_mnist), out=tmp_path / "run", force=True)
    released: list[bool] = []

    def release() -> None:
        if not released:
            folder.clear()
            folder.release()
            released.append(True)

    local.run(batches, DataSource("mnist", small_mnist), [0], lambda progress: None, on_idle=release)
    assert released
    assert RunFolder(tmp_path / "run").finished


def test_command_line(local: Cluster, small_mnist: Path, tmp_path: Path) -> None:
    """`run` writes what it writes without a cluster; --force replaces the run, but not with invalid values."""
    settings = [part for setting in f"algorithm=fedavg {SMALL}".split() for part in ("--set", setting)]
    command = ("run", "mnist", *settings, "--cluster", local.address, "--out", "q")
    done = fedlatest_here(*command, cwd=tmp_path, data=small_mnist)
    assert done.returncode == 0, done.stderr
    assert re.search(r"FedAvg +0\.\d{4}", done.stdout)
    assert (tmp_path / "q/figure.png").is_file()
    refused = fedlatest_here(*command, "--force", "--client-rows", "disk", cwd=tmp_path, data=small_mnist)
    assert "--client-rows: not with --cluster" in refused.stderr
    invalid = fedlatest_here(*command, "--force", "--set", "evaluate_every=0", cwd=tmp_path, data=small_mnist)
    assert invalid.returncode == 1
    assert RunFolder(tmp_path / "q").finished
    again = fedlatest_here(*command, "--force", "--set", "period=7", cwd=tmp_path, data=small_mnist)
    assert again.returncode == 0, again.stderr
    assert RunFolder(tmp_path / "q").manifest["config"]["recipe"]["period"] == 7


@pytest.mark.slow
def test_reproduce_on_a_cluster(local: Cluster, small_mnist: Path, tmp_path: Path) -> None:
    command = ("reproduce", "mnist", "--figure", "chart", "--rounds", "40", "--cluster", local.address, "--out", "o")
    done = fedlatest_here(*command, cwd=tmp_path, data=small_mnist)
    assert done.returncode == 0, done.stderr
    assert "3 of 3 runs were executed now" in done.stdout
    assert RunFolder(tmp_path / "o/fedlaavg-digits=3").finished


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("tcp://127.0.0.1:1", r"no Dask scheduler answers there .*; start one with `dask scheduler`"),
        ("http://host:1", "unknown address scheme 'http'"),
        ("nonsense", "no Dask scheduler answers there"),
    ],
)
def test_an_address_without_a_scheduler(
    address: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedlatest.experiments.cluster_runs.CONNECT_SECONDS", 1)
    started = time.monotonic()
    done = fedlatest_here("run", "mnist", "--data", "nowhere", "--cluster", address, cwd=tmp_path)
    assert done.returncode == 1
    assert re.search(message, done.stderr)
    assert time.monotonic() - started < 10


def test_without_dask(tmp_path: Path) -> None:
    """The message names the extra."""
    script = (
        "import sys\n"
        "sys.modules['distributed'] = None\n"
        "from fedlatest.cli import main\n"
        "sys.argv = ['fedlatest', 'run', 'quickstart', '--cluster', 'local']\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: --cluster needs packages that are not installed")
    assert done.stderr.strip().endswith("pip install '.[cluster]'")
