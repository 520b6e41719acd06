"""Loggers, with the real packages: what they receive from a run, and what they do if it is resumed or if they fail."""

import importlib
import json
import struct
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlatest.errors import ConfigError, MissingExtraError
from fedlatest.runs import Row, RunFolder
from fedlatest.runs.loggers import LOGGERS, LoggerGroup, Status, flat_config, logged_values, make_logger
from tests.command_line import fedlatest_here
from tests.simulation.test_simulate import run_small


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep the packages from reporting their use, and from writing outside the test's folder."""
    for name in ("DO_NOT_TRACK", "MLFLOW_DISABLE_TELEMETRY"):
        monkeypatch.setenv(name, "true")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    for name in ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "wandb-home"))


class Recorded:
    """A logger that keeps what it receives."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def start(self, folder: Path, manifest: Mapping[str, Any], *, first_round: int) -> None:
        self.calls.append(("start", folder, manifest["seeds"], first_round))

    def log(self, rows: Sequence[Row]) -> None:
        self.calls.append([(row.seed, row.round) for row in rows])

    def finish(self, status: Status) -> None:
        self.calls.append(status)


class Broken(Recorded):
    def log(self, rows: Sequence[Row]) -> None:
        raise OSError("no space left on device")


def interrupted(progress: Any) -> None:
    if progress.round >= 5:
        raise KeyboardInterrupt


def test_calls_of_a_run(tmp_path: Path) -> None:
    """Rounds 0, 5 and 10 of two seeds; a function that makes a logger is called once per run."""
    logger = Recorded()
    run_small(out=tmp_path / "a", seeds=(0, 7), log=[lambda: logger])
    evaluations = [[(0, round), (7, round)] for round in (0, 5, 10)]
    assert logger.calls == [("start", tmp_path / "a", [0, 7], 0), *evaluations, "finished"]


def test_calls_of_an_interrupted_and_resumed_run(tmp_path: Path) -> None:
    first, second = Recorded(), Recorded()
    with pytest.raises(KeyboardInterrupt):
        run_small(out=tmp_path / "a", on_progress=interrupted, log=[lambda: first])
    assert first.calls == [("start", tmp_path / "a", [0], 0), [(0, 0)], [(0, 5)], "stopped"]
    run_small(out=tmp_path / "a", resume=True, log=[lambda: second])
    assert second.calls == [("start", tmp_path / "a", [0], 6), [(0, 10)], "finished"]


def test_a_logger_that_fails_does_not_end_the_run(tmp_path: Path) -> None:
    good, bad = Recorded(), Broken()
    with pytest.warns(UserWarning, match=r"Broken failed and logs no more .* \(OSError: no space left on device\)"):
        run_small(out=tmp_path / "a", log=[lambda: bad, lambda: good])
    assert len(bad.calls) == 1
    assert good.calls[-1] == "finished"
    assert RunFolder(tmp_path / "a").finished


def test_a_group_that_was_not_started_is_not_finished() -> None:
    logger = Recorded()
    LoggerGroup([logger]).finish("stopped")
    assert logger.calls == []


def test_values() -> None:
    row = Row(3, 5, 0.5, 1.0, 0.2, 1.1, 0.3)
    assert logged_values(row) == {
        "seconds": 0.5, "train_loss": 1.0, "train_accuracy": 0.2, "test_loss": 1.1, "test_accuracy": 0.3,
    }  # fmt: skip
    assert dict(flat_config({"a": {"b": {"c": 1}}, "d": [2]})) == {"a.b.c": 1, "d": [2]}


@pytest.mark.parametrize(
    ("name", "package"), [("tensorboard", "tensorboardX"), ("mlflow", "mlflow"), ("wandb", "wandb")]
)
def test_missing_packages(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"pip install '\.\[{name}\]'"):
        make_logger(name)


def test_unknown_names(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"log neptune: choose {', '.join(LOGGERS)}"):
        make_logger("neptune")
    with pytest.raises(ConfigError, match="only a run with `out`"):
        run_small(log=["tensorboard"])
    done = fedlatest_here("run", "quickstart", "--log", "neptune", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == "error: log neptune: choose tensorboard, mlflow, wandb\n"


def test_mlflow(tmp_path: Path) -> None:
    """One MLflow run per seed with the values of metrics.csv; a resumed run continues them."""
    mlflow = pytest.importorskip("mlflow", reason="needs the extra fedlatest[mlflow]")
    with pytest.raises(KeyboardInterrupt):
        run_small(out=tmp_path / "a", seeds=(0, 7), log=["mlflow"], on_progress=interrupted)
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("fedlatest").experiment_id
    assert {run.info.status for run in client.search_runs([experiment])} == {"KILLED"}
    result = run_small(out=tmp_path / "a", seeds=(0, 7), log=["mlflow"], resume=True)
    runs = {run.data.tags["fedlatest.seed"]: run for run in client.search_runs([experiment])}
    assert sorted(runs) == ["0", "7"]
    for i, seed in enumerate(("0", "7")):
        run = runs[seed]
        assert run.info.status == "FINISHED"
        assert run.info.run_name == f"a-seed-{seed}"
        assert run.data.params["algorithm.name"] == "fedlaavg"
        assert run.data.params["rounds"] == "10"
        history = client.get_metric_history(run.info.run_id, "test_accuracy")
        assert [metric.step for metric in history] == [0, 5, 10]
        expected = result.metrics.column("test_accuracy")[i]
        assert np.allclose([metric.value for metric in history], expected)


def test_wandb_offline(tmp_path: Path) -> None:
    """One offline W&B run per seed, in the run folder; a resumed run has the same identifier."""
    pytest.importorskip("wandb", reason="needs the extra fedlatest[wandb]")
    with pytest.raises(KeyboardInterrupt):
        run_small(out=tmp_path / "a", seeds=(0, 7), log=["wandb"], on_progress=interrupted)
    identifier = (tmp_path / "a/wandb/id.txt").read_text().strip()
    result = run_small(out=tmp_path / "a", seeds=(0, 7), log=["wandb"], resume=True)
    for i, seed in enumerate((0, 7)):
        files = sorted((tmp_path / "a/wandb").glob(f"offline-run-*/run-{identifier}-{seed}.wandb"))
        assert len(files) == 2
        deadline = time.monotonic() + 20  # W&B's own process writes the files, a little after `finish` returns
        while len(steps := {int(row["_step"]): row for file in files for row in history_of(file)}) < 3:
            assert time.monotonic() < deadline, sorted(steps)
            time.sleep(0.05)
        assert sorted(steps) == [0, 5, 10]
        values = [steps[step]["test_accuracy"] for step in sorted(steps)]
        assert np.allclose(values, result.metrics.column("test_accuracy")[i])


def history_of(file: Path) -> list[dict[str, Any]]:
    """Return the logged rows of an offline W&B run, from its records."""
    record_class: Any = importlib.import_module("wandb.proto.wandb_internal_pb2").Record
    rows = []
    for content in records_of(file.read_bytes()):
        record = record_class()
        record.ParseFromString(content)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            rows.append({item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items})
    return rows


def records_of(content: bytes, *, block: int = 32768) -> Iterator[bytes]:
    """Yield the records of a W&B file: LevelDB's log format after seven bytes.

    A record consists of fragments (checksum of 4 bytes, length of 2, kind of 1, data) that do not cross blocks; kind 1
    is a whole record, 2 the first, 3 a middle and 4 the last fragment.
    """
    at, parts = 7, b""
    while at + 7 <= len(content):
        if block - at % block < 7:
            at += block - at % block
            continue
        length, kind = struct.unpack_from("<HB", content, at + 4)
        if kind == 0:
            return
        parts += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield parts
            parts = b""
