"""Whole jobs: interrupted, continued, recorded, evaluated, and taken over by another server."""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, Result, Strategy
from flwr.supercore.run import Run

import fedlatest
from fedlatest.errors import ConfigError, DeploymentError, LedgerError
from fedlatest.flower import ClientResult, ClientTask, FedLaAvg, LocalGrid, Timeouts, client_app, to_record
from fedlatest.ledger import ClientStore, FolderStorage
from fedlatest.ledger.audit import audit
from fedlatest.ledger.event_log import read_events
from fedlatest.runs import RunFolder
from tests.command_line import fedlatest_here
from tests.flower.small_job import INITIAL, SmallJob, Weights, towards

TIMEOUTS = Timeouts(deadline=20, poll=0.001)


def score(weights: Weights, task: ClientTask) -> ClientResult:
    return ClientResult(2, {"loss": float(weights["w"][0]), "accuracy": 0.5})


def apps() -> list[ClientApp]:
    return [client_app(towards(goal), evaluate=score) for goal in (1, 2, 3)]


def grid_of(folder: Path, *, run_id: int = 1) -> LocalGrid:
    grid = LocalGrid(_run=Run.create_empty(run_id=run_id))
    for name, app in zip("abc", apps(), strict=True):
        grid.add(app, {"state-dir": str(folder / "nodes" / name / "state"), "name": name})
    return grid


def start(folder: Path, rounds: int, *, evaluate_fn: Any = None, grid: LocalGrid | None = None, **more: Any) -> Result:
    """Start a Flower run with a new strategy, grid and nodes on the existing folders."""
    settings = {"cohort_size": 2, "timeouts": TIMEOUTS, "min_clients": 3, **more}
    strategy = FedLaAvg(job=folder / "job", **settings)
    return strategy.start(grid or grid_of(folder), to_record(INITIAL), num_rounds=rounds, evaluate_fn=evaluate_fn)


def at_server(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    return MetricRecord({"loss": 1 / (1 + server_round), "accuracy": 0.25})


def rows(folder: Path) -> list[Any]:
    return list(RunFolder(folder / "job/run").metrics().rows)


def holds(folder: Path) -> bool:
    stores = [ClientStore(FolderStorage(path)) for path in (folder / "nodes").glob("*/state")]
    return audit(folder / "job/ledger.sqlite", stores).holds


def assert_command_reads_run(command: str, folder: Path) -> None:
    done = fedlatest_here(command, "job/run", cwd=folder)
    assert done.returncode == 0, done.stderr


def test_an_interrupted_job_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    whole = start(tmp_path / "whole", 6).arrays
    start(tmp_path / "interrupted", 2)
    start(tmp_path / "interrupted", 5, grid=grid_of(tmp_path / "interrupted", run_id=2))
    interrupted = start(tmp_path / "interrupted", 6, grid=grid_of(tmp_path / "interrupted", run_id=3)).arrays
    np.testing.assert_array_equal(interrupted["w"].numpy(), whole["w"].numpy())
    assert holds(tmp_path / "interrupted")
    events = read_events(tmp_path / "interrupted/job/events.jsonl")
    assert [event["round"] for event in events if event["event"] == "merged"] == list(range(6))
    assert [event["run"] for event in events if event["event"] == "job"] == [1, 2, 3]


def test_a_finished_job_does_not_wait_for_clients(tmp_path: Path) -> None:
    done = start(tmp_path, 2)
    again = start(tmp_path, 2, grid=LocalGrid(), timeouts=Timeouts(deadline=1e6))
    np.testing.assert_array_equal(again.arrays["w"].numpy(), done.arrays["w"].numpy())


def test_the_run_folder_is_like_that_of_a_simulation(tmp_path: Path) -> None:
    """Metrics, participation and the model can be read, and the commands `report` and `plot` accept it."""
    result = start(tmp_path, 4, evaluate_fn=at_server, evaluate_every=2)
    folder = RunFolder(tmp_path / "job/run")
    assert folder.finished
    assert folder.manifest["config"]["num_clients"] == 3
    assert [row.round for row in folder.metrics().rows] == [0, 2, 4]
    assert [row.cohort_size for row in folder.metrics().rows] == [None, 2, 2]
    assert folder.metrics().rows[-1].test_loss == pytest.approx(0.2)
    assert folder.metrics().rows[-1].train_loss == 4.0
    assert folder.participation().offsets.tolist() == [[0, 2, 4, 6, 8]]
    own = fedlatest.Model(lambda key: {"w": jnp.zeros(3)}, lambda params, features: features)
    loaded = fedlatest.load_model(tmp_path / "job/run", model=own)
    np.testing.assert_array_equal(loaded.params["w"], result.arrays["w"].numpy())
    assert_command_reads_run("report", tmp_path)
    assert_command_reads_run("plot", tmp_path)


def test_metrics_of_rounds_that_were_rolled_back_are_deleted(tmp_path: Path) -> None:
    start(tmp_path, 3, evaluate_fn=at_server)
    (tmp_path / "before").write_bytes((tmp_path / "job/ledger.sqlite").read_bytes())
    start(tmp_path, 5, evaluate_fn=at_server)
    (tmp_path / "job/ledger.sqlite").write_bytes((tmp_path / "before").read_bytes())
    for part in ("-wal", "-shm"):
        (tmp_path / f"job/ledger.sqlite{part}").unlink(missing_ok=True)
    start(tmp_path, 4, evaluate_fn=at_server)
    assert [row.round for row in rows(tmp_path)] == [0, 1, 2, 3, 4]
    assert holds(tmp_path)


@pytest.mark.parametrize(
    ("evaluate_fn", "nodes_every", "rounds"),
    [(at_server, 0, [0, 2, 4, 5]), (None, 3, [0, 2, 3, 4, 5]), (at_server, 3, [0, 2, 4, 5]), (None, 0, [0, 2, 4, 5])],
)
def test_evaluation(evaluate_fn: Any, nodes_every: int, rounds: list[int], tmp_path: Path) -> None:
    """At the server, on the nodes, on both and on neither; the server's metrics take precedence in the run folder."""
    result = start(
        tmp_path, 5, evaluate_fn=evaluate_fn, grid=grid_of(tmp_path), evaluate_every=2, evaluate_nodes_every=nodes_every
    )
    assert [row.round for row in rows(tmp_path)] == rounds
    assert sorted(result.evaluate_metrics_clientapp) == ([3, 5] if nodes_every else [])
    assert sorted(result.evaluate_metrics_serverapp) == ([0, 2, 4, 5] if evaluate_fn else [])
    assert sorted(result.train_metrics_clientapp) == [1, 2, 3, 4, 5]
    last = rows(tmp_path)[-1].test_accuracy
    expected = 0.25 if evaluate_fn else 0.5 if nodes_every else math.nan
    np.testing.assert_equal(last, expected)
    assert_command_reads_run("report", tmp_path)
    for line in (tmp_path / "job/events.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)  # NaN is not JSON


def test_the_mean_over_nodes_is_weighted_by_examples(tmp_path: Path) -> None:
    """(1 * 4 + 3 * 0) / 4 = 1; a node that cannot evaluate is left out."""
    job = SmallJob(tmp_path, clients="")
    job.add("a", client_app(towards(1), evaluate=lambda weights, task: ClientResult(1, {"loss": 4.0})))
    job.add("b", client_app(towards(1), evaluate=lambda weights, task: ClientResult(3, {"loss": 0.0})))
    job.add("c", client_app(towards(1)))
    job.run_round()
    assert job.loop.evaluate() == {"loss": 1.0}
    job.online("")
    job.messages.refresh_nodes()
    assert job.loop.evaluate() == {}


def test_an_evaluation_ends_at_the_deadline_of_a_round(tmp_path: Path) -> None:
    job = SmallJob(tmp_path)
    job.run_round()
    job.grid.on_reply = lambda node, message: None
    began = job.now
    assert job.loop.evaluate() == {}
    assert 10 <= job.now - began < 13
    assert not job.messages.outstanding


def test_a_lost_superlink(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The run ends with an explanation, all closed rounds are saved, and the next run continues."""
    grid = grid_of(tmp_path)
    pulls = iter(range(6))

    def fail() -> None:
        if next(pulls, None) is None:
            raise ConnectionError("connection refused")

    grid.before_pull = fail
    with pytest.raises(DeploymentError, match=r"did not return replies \(Conn.*the same job folder continues the job"):
        start(tmp_path, 50, grid=grid)
    stopped = read_events(tmp_path / "job/events.jsonl")[-1]
    assert stopped["event"] == "stopped"
    assert stopped["round"] > 0
    assert "connection refused" in caplog.text
    start(tmp_path, 6)
    assert holds(tmp_path)
    assert RunFolder(tmp_path / "job/run").finished


def test_the_older_of_two_servers_stops(tmp_path: Path) -> None:
    grid = grid_of(tmp_path)
    second: list[Result] = []

    def take_over(server_round: int, arrays: ArrayRecord) -> None:
        if server_round == 2 and not second:
            second.append(start(tmp_path, 4))

    with pytest.raises(LedgerError, match="another server run has taken over"):
        start(tmp_path, 8, grid=grid, evaluate_fn=take_over)
    events = read_events(tmp_path / "job/events.jsonl")
    assert [event["event"] for event in events if event["event"] in ("finished", "stopped")] == ["finished"]
    assert holds(tmp_path)


def test_a_job_without_clients(tmp_path: Path) -> None:
    """The model does not change, and the run folder can be read."""
    result = start(tmp_path, 2, grid=LocalGrid(), timeouts=Timeouts(deadline=0.01, poll=0.001))
    assert result.arrays["w"].numpy().tolist() == [0, 0, 0]
    assert_command_reads_run("report", tmp_path)


def test_a_job_with_another_model_or_config_is_refused(tmp_path: Path) -> None:
    start(tmp_path, 1)
    with pytest.raises(LedgerError, match="use another job folder"):
        start(tmp_path, 2, clip_norm=1.0)
    strategy = FedLaAvg(job=tmp_path / "job", cohort_size=2)
    with pytest.raises(LedgerError, match="model layout"):
        strategy.start(grid_of(tmp_path), to_record({"w": np.zeros(4, np.float32)}))


def test_invalid_settings_create_no_job(tmp_path: Path) -> None:
    for name, value in (("min_clients", 0), ("evaluate_every", 0), ("evaluate_nodes_every", -1), ("cohort_size", 0)):
        settings: dict[str, Any] = {name: value}
        with pytest.raises(ConfigError, match=f"{name}={value}"):
            start(tmp_path, 1, **settings)
    assert not (tmp_path / "job").exists()


class _PrivateStrategy(DifferentialPrivacyServerSideFixedClipping):
    """A strategy that wraps another one and changes its replies."""


def test_flowers_own_round_loop_is_not_supported(tmp_path: Path) -> None:
    strategy = FedLaAvg(job=tmp_path / "job", cohort_size=2)
    with pytest.raises(NotImplementedError, match=r"call its start\(\)"):
        Strategy.start(strategy, grid_of(tmp_path), to_record(INITIAL))
    private = _PrivateStrategy(strategy, noise_multiplier=1.0, clipping_norm=1.0, num_sampled_clients=2)
    with pytest.raises(NotImplementedError, match="use clip_norm"):
        private.start(grid_of(tmp_path), to_record(INITIAL))


def test_a_message_that_flower_rejects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower then returns None as its id; the client is asked again in a later round."""
    job = SmallJob(tmp_path)
    job.run_round()
    push, node = job.grid.push_messages, job.nodes["b"]

    def reject(messages: Iterable[Message]) -> list[Any]:
        return [None if m.metadata.dst_node_id == node else next(iter(push([m]))) for m in messages]

    with monkeypatch.context() as patch:
        patch.setattr(job.grid, "push_messages", reject)
        outcome = job.run_round()
    assert outcome.missed == ["b"]
    assert "b" in [client for _ in range(3) for client in job.run_round().accepted]
    assert job.audit().holds
