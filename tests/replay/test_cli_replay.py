"""The command `replay`: runs, table, figure, report, agreement, resuming, and its errors."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from fedlatest.deployment.scaffold import write_app
from fedlatest.replay import RecordedFleet, read_recorded_fleet
from fedlatest.runs import RunFolder
from tests.command_line import fedlatest_here, next_command
from tests.replay.recorded_job import RecordedJob

ROUNDS = 12
ALGORITHMS = "fedlaavg,fedavg,naive,fedlaavg_async"
OPTIONS = ("--set", "local_steps=2", "--set", "batch_size=2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a recorded job, and its replay in `out`."""
    folder = tmp_path_factory.mktemp("replay")
    RecordedJob(folder / "job").run(ROUNDS)
    done = fedlatest_here("replay", "job", "--algorithms", ALGORITHMS, "--out", "out", *OPTIONS, cwd=folder)
    assert done.returncode == 0, done.stderr
    (folder / "printed").write_text(done.stdout)
    assert next_command(done) == ["diagnose", "job"]
    assert fedlatest_here(*next_command(done), cwd=folder).returncode == 0
    return folder


@pytest.fixture(scope="module")
def fleet(folder: Path) -> RecordedFleet:
    return read_recorded_fleet(folder / "job/ledger.sqlite")


def test_own_algorithm_agrees_with_the_record(folder: Path, fleet: RecordedFleet) -> None:
    facts = json.loads((folder / "out/replay.json").read_text())
    assert facts["agreement"] == {"fedlaavg": {"asked": 1.0, "answered": 1.0, "both": 1.0, "rounds": ROUNDS}}
    cohorts = RunFolder(folder / "out/fedlaavg").participation()
    for round in range(ROUNDS):
        assert cohorts.cohort(seed=0, round=round).tolist() == np.flatnonzero(fleet.took_part[round]).tolist()
    printed = (folder / "printed").read_text()
    assert f"asked in 100.0% and answered in 100.0% of the {ROUNDS} recorded rounds" in printed


def test_table(folder: Path, fleet: RecordedFleet) -> None:
    with (folder / "out/replay.csv").open() as file:
        rows = {row["algorithm"]: row for row in csv.DictReader(file)}
    assert list(rows) == ["FedLaAvg", "FedAvg", "Naive", "FedLaAvg, asynchronous"]
    own = rows["FedLaAvg"]
    assert float(own["virtual_seconds"]) == pytest.approx(fleet.ends[-1], abs=0.02)
    assert float(own["uploads"]) == fleet.took_part.sum()
    downloads = fleet.asked.sum() + sum(map(len, fleet.late.values()))
    megabytes = 650 * 4 * (fleet.took_part.sum() + downloads) / 1e6  # the model has 650 numbers of 4 bytes
    assert float(own["megabytes"]) == pytest.approx(megabytes)
    assert float(own["clients"]) == fleet.took_part.any(axis=0).mean()
    for row in rows.values():
        assert 0 < float(row["final_accuracy"]) <= 1
        assert int(row["rounds"]) >= ROUNDS


def test_what_is_recorded_and_what_is_assumed_is_printed(folder: Path) -> None:
    printed = (folder / "printed").read_text()
    for line in (
        f"recorded: {ROUNDS} rounds of fedlaavg, 8 clients, cohort size 3, deadline 10 s",
        "assumed: data: digits in place of the fleet's own; each client has the part of the data whose size it has",
        "assumed: model: logistic, the one with the shapes of the job's model",
        "assumed: training: local_steps 2, batch_size 2, learning_rate 0.1",
        "assumed: fedlaavg_async: server_step=0.333, buffer / cohort size",
        "assumed: naive: selects by the state of the server; clients that fail are not replaced",
    ):
        assert line in printed


def test_figure_and_report_are_written(folder: Path) -> None:
    assert (folder / "out/replay.png").read_bytes().startswith(b"\x89PNG")
    page = (folder / "out/report.html").read_text()
    assert "FedLaAvg, asynchronous" in page


def test_same_command_reuses_the_runs(folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (folder / "out").glob("*/metrics.csv")}
    table = (folder / "out/replay.csv").read_text()
    done = fedlatest_here("replay", "job", "--algorithms", ALGORITHMS, "--out", "out", *OPTIONS, cwd=folder)
    assert done.returncode == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert (folder / "out/replay.csv").read_text() == table


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("job --algorithms fedlavg", "algorithm=fedlavg: unknown; did you mean fedlaavg?"),
        ("job --algorithms fedavg,fedavg", "--algorithms fedavg,fedavg: an algorithm is given twice"),
        ("job --rounds 13", "rounds=13: must be in 1 .. 12, the number of recorded rounds"),
        ("job --set num_clients=3", "--set num_clients=3: in a replay, num_clients comes from the record"),
        ("job --set epsilon=3", "--set epsilon=3: a replay does not use epsilon"),
        ("job --algorithms fedavg --set mu=1", "--set mu=1: no algorithm of this replay has this key"),
        ("job --algorithms fedavg:mu=1", "mu: belongs to algorithm=fedprox and algorithm=fedasync, which this run"),
        ("job --algorithms sequential", "sequential trains on pooled data"),
        ("job --seeds 0", "--seeds 0: must be at least 1"),
        ("job --target 2", "--target 2.0: must be an accuracy between 0 and 1"),
        ("job --dataset none", "recipe none: unknown"),
        ("nowhere", "nowhere: holds no job"),
        ("job --out out --set learning_rate=0.5", "holds a run of another configuration (learning_rate was 0.1"),
    ],
)
def test_errors(folder: Path, arguments: str, message: str) -> None:
    failed = fedlatest_here("replay", *arguments.split(), *(OPTIONS if "--out" in arguments else ()), cwd=folder)
    assert failed.returncode == 1
    assert message in failed.stderr
    assert not (folder / "runs").exists(), "nothing was written"


def test_run_that_diverges_does_not_stop_the_others(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "job", tmp_path / "job")
    arguments = ("--algorithms", "fedprox:mu=1e38,fedavg", "--rounds", "3", "--set", "local_steps=5", "--out", "out")
    done = fedlatest_here("replay", "job", *arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert "error: fedprox-mu=1e38: training diverged" in done.stderr
    assert "(1 of 2 runs diverged)" in done.stderr
    facts = json.loads((tmp_path / "out/replay.json").read_text())
    assert [row["clients"] is None for row in facts["results"]] == [True, False]
    assert (tmp_path / "out/replay.png").is_file()


@pytest.mark.parametrize("has_app", [True, False])
def test_local_deployment_says_how_clients_train(folder: Path, tmp_path: Path, has_app: bool) -> None:
    """Without its app, the values of the digits app are assumed: 50 local steps."""
    shutil.copytree(folder / "job", tmp_path / "fleet/job")
    (tmp_path / "fleet/deployment.json").write_text(json.dumps({"app": "digits", "config": {"local-steps": 3}}))
    if has_app:
        write_app(tmp_path / "fleet/app")
    done = fedlatest_here("replay", "fleet", "--algorithms", "fedavg", "--rounds", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    steps = 3 if has_app else 50
    assert f"assumed: training: local_steps {steps}, batch_size 10, learning_rate 0.1" in done.stdout


def test_first_rounds_with_another_model_and_seeds(folder: Path, fleet: RecordedFleet, tmp_path: Path) -> None:
    """A model with more numbers, three rounds, two seeds; the job's own evaluations are not there."""
    shutil.copytree(folder / "job", tmp_path / "job")
    arguments = ("--algorithms", "fedavg", "--rounds", "3", "--seeds", "2", "--set", "model=mlp", *OPTIONS)
    done = fedlatest_here("replay", "job", *arguments, "--target", "0.99", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "assumed: model: mlp, chosen with --set" in done.stdout
    root = tmp_path / f"runs/replay-{fleet.job[:8]}"
    facts = json.loads((root / "replay.json").read_text())
    assert (facts["rounds"], facts["target"], facts["agreement"]) == (3, 0.99, {})
    [result] = facts["results"]
    assert result["seconds_to_target"] is None
    assert RunFolder(root / "fedavg").metrics().seeds == [5, 6]  # from the seed of the job on
