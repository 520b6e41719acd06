"""The client side: eligibility, stock Flower apps, and models with arrays of several types."""

import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedlatest.errors import ConfigError, DeclinedError
from fedlatest.flower import (
    ClientResult,
    ClientTask,
    FedLaAvg,
    LocalGrid,
    Timeouts,
    all_of,
    by_command,
    by_hours,
    client_app,
    from_record,
    latest_mod,
    to_record,
)
from fedlatest.ledger import ClientStore, FolderStorage
from fedlatest.ledger.audit import audit
from tests.flower.small_job import SmallJob, Weights, towards


def at(hour: int, minute: int = 0) -> Any:
    return lambda: datetime(2026, 1, 1, hour, minute)


@pytest.mark.parametrize(
    ("hours", "hour", "eligible"),
    [("22:00-06:00", 23, True), ("22:00-06:00", 5, True), ("22:00-06:00", 6, False), ("22:00-06:00", 12, False),
     ("09:00-17:00", 9, True), ("09:00-17:00", 17, False), ("09:00-17:00", 23, False)],
)  # fmt: skip
def test_by_hours(hours: str, hour: int, eligible: bool) -> None:
    assert by_hours(hours, now=at(hour))() == (eligible or f"outside its hours {hours}")


def test_invalid_hours() -> None:
    with pytest.raises(ConfigError, match="expected START-END"):
        by_hours("at night")


def test_by_command_and_all_of() -> None:
    assert by_command("true")() is True
    assert by_command("echo on battery; exit 3")() == "on battery"
    assert by_command("exit 3")() == "`exit 3` exited with status 3"
    assert "did not finish" in str(by_command("sleep 5", timeout=0.05)())
    assert all_of(by_command("true"), by_command("exit 1"), by_command("exit 2"))() == "`exit 1` exited with status 1"
    assert all_of()() is True


@pytest.mark.parametrize(
    ("options", "node_config", "why"),
    [
        ({"eligible": lambda: "no Wi-Fi"}, {}, "no Wi-Fi"),
        ({"eligible": lambda: False}, {}, "not eligible now"),
        ({}, {"eligible-command": "echo too hot; exit 1"}, "too hot"),
        ({}, {"eligible-hours": "00:00-00:00"}, "outside its hours"),
        ({"eligible": lambda: True}, {"eligible-command": "exit 1"}, "exited with status 1"),
    ],
)
def test_a_client_that_is_not_eligible(
    options: Any, node_config: Any, why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It neither trains nor evaluates; it rests for a round and keeps its rank."""
    caplog.set_level("INFO")

    def score(weights: Weights, task: ClientTask) -> ClientResult:
        return ClientResult(1, {"loss": 1.0})

    job = SmallJob(tmp_path, clients="ab")
    job.add("c", client_app(towards(9), evaluate=score, **options), node_config=node_config)
    job.loop.wait_for_clients(3, timeout=30)
    outcome = job.run_round()
    assert outcome.declined == ["c"]
    assert sorted(outcome.accepted) == ["a", "b"]
    assert why in caplog.text
    assert job.member("c").last_round == -1
    assert not job.events("failed", "refused")
    assert job.loop.evaluate() == {}
    assert job.audit().holds


def test_a_training_function_that_declines(tmp_path: Path) -> None:
    def train(weights: Weights, task: ClientTask) -> ClientResult:
        raise DeclinedError("no new data")

    job = SmallJob(tmp_path, clients="ab")
    job.add("c", client_app(train))
    job.loop.wait_for_clients(3, timeout=30)
    assert job.run_round().declined == ["c"]


def stock_app(**options: Any) -> ClientApp:
    """An app as in Flower's tutorials; the mod is the only change."""
    app = ClientApp(mods=[latest_mod(**options)])

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        config: Any = msg.content.config_records["config"]
        arrays: Any = msg.content.array_records["arrays"].to_numpy_ndarrays()
        moved = [array + np.float32(config["lr"]) for array in arrays]
        config["lr"] = 100.0  # must not affect other clients
        metrics = MetricRecord({"train_loss": 0.5, "num-examples": 4})
        return Message(RecordDict({"arrays": ArrayRecord(moved), "metrics": metrics}), reply_to=msg)

    @app.evaluate()
    def evaluate(msg: Message, context: Context) -> Message:
        [array, *_] = msg.content.array_records["arrays"].to_numpy_ndarrays()
        metrics = MetricRecord({"eval_loss": float(array.mean()), "eval_acc": 0.5, "num-examples": 4})
        return Message(RecordDict({"metrics": metrics}), reply_to=msg)

    return app


def run(folder: Path, initial: ArrayRecord, apps: list[ClientApp], *, rounds: int = 2, **options: Any) -> Any:
    grid = LocalGrid()
    for number, app in enumerate(apps):
        grid.add(app, {"state-dir": str(folder / f"nodes/{number}/state"), "partition-id": number})
    strategy = FedLaAvg(
        job=folder / "job",
        cohort_size=len(apps),
        timeouts=Timeouts(deadline=20, poll=0.001),
        min_clients=len(apps),
        **options,
    )
    result = strategy.start(grid, initial, num_rounds=rounds, train_config=ConfigRecord({"lr": 0.25}))
    stores = [ClientStore(FolderStorage(path)) for path in (folder / "nodes").glob("*/state")]
    assert audit(folder / "job/ledger.sqlite", stores).holds
    return result


def test_a_stock_app(tmp_path: Path) -> None:
    """Each round moves the model by 1/4, and the twelve arrays keep their order."""
    first = [np.full(2, number, np.float32) for number in range(12)]
    result = run(tmp_path, ArrayRecord(first), [stock_app(), stock_app()], evaluate_nodes_every=1)
    assert list(result.arrays) == list(ArrayRecord(first))
    for number, array in enumerate(result.arrays.to_numpy_ndarrays()):
        np.testing.assert_array_equal(array, np.full(2, number + 0.5, np.float32))
    assert dict(result.train_metrics_clientapp[2]) == {"train_loss": 0.5}
    assert dict(result.evaluate_metrics_clientapp[2]) == {"eval_loss": 0.5, "eval_acc": 0.5}


def test_a_stock_app_that_is_not_eligible_does_not_evaluate(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One of two clients moves the model by 1/4; the other has not contributed and does not count in the mean."""
    caplog.set_level("INFO")
    apps = [stock_app(), stock_app(eligible=lambda: False)]
    result = run(tmp_path, ArrayRecord([np.zeros(2, np.float32)]), apps, evaluate_nodes_every=1)
    assert dict(result.evaluate_metrics_clientapp[1]) == {"eval_loss": 0.25, "eval_acc": 0.5}
    assert caplog.text.count("declined to evaluate") == 2


def test_a_stock_app_without_num_examples(tmp_path: Path) -> None:
    app = ClientApp(mods=[latest_mod()])

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        return Message(RecordDict({"arrays": msg.content["arrays"]}), reply_to=msg)

    job = SmallJob(tmp_path, clients="ab")
    job.add("c", app)
    job.loop.wait_for_clients(3, timeout=30)
    job.run_round()
    assert "must return 'num-examples' above 0" in job.events("failed")[0]["why"]


def test_arrays_of_several_types(tmp_path: Path) -> None:
    """Floating-point arrays keep their type, and an integer counter is not trained."""
    first: Weights = {
        "w": np.zeros((2, 2), np.float64),
        "h": np.zeros(2, np.float16),
        "running_mean": np.zeros(2, np.float32),
        "num_batches_tracked": np.array(0, np.int64),
    }

    def train(weights: Weights, task: ClientTask) -> ClientResult:
        assert {name: array.dtype for name, array in weights.items()} == {n: a.dtype for n, a in first.items()}
        return ClientResult(3, {}, {name: array + np.ones((), array.dtype) * 5 for name, array in weights.items()})

    result = run(tmp_path, to_record(first), [client_app(train), client_app(train)], rounds=3)
    final = from_record(result.arrays)
    for name, array in first.items():
        assert final[name].dtype == array.dtype
        moved = 0 if name == "num_batches_tracked" else 15
        np.testing.assert_array_equal(final[name], np.full(array.shape, moved, array.dtype))


def test_clip_norm(tmp_path: Path) -> None:
    """An update of norm 5 sqrt(3) is scaled to norm 1, for any number of examples."""

    def train(weights: Weights, task: ClientTask) -> ClientResult:
        return ClientResult(3, {}, {"w": weights["w"] + 5})

    result = run(tmp_path, to_record({"w": np.zeros(3, np.float32)}), [client_app(train)], rounds=1, clip_norm=1.0)
    assert float(np.linalg.norm(result.arrays["w"].numpy())) == pytest.approx(1, abs=1e-4)


def test_the_task_of_a_training_function(tmp_path: Path) -> None:
    tasks: list[ClientTask] = []

    def train(weights: Weights, task: ClientTask) -> ClientResult:
        tasks.append(task)
        return ClientResult(1, {}, weights)

    run(tmp_path, to_record({"w": np.zeros(3, np.float32)}), [client_app(train)])
    assert [task.round for task in tasks] == [1, 2]
    assert tasks[0].config == {"lr": 0.25}
    assert tasks[0].node_config["partition-id"] == 0


def test_a_client_does_not_import_jax() -> None:
    """Flower starts a process for every message; importing JAX would take most of its time."""
    code = "import sys, fedlatest.flower as f; f.client_app, f.latest_mod, f.to_record; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
