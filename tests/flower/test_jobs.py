"""A job from beginning to end: cut, continued, recorded, evaluated, and taken over by another server."""

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
from fedlatest.flower import Assignment, FedLaAvg, Fitted, LocalGrid, Pace, client_app, to_record
from fedlatest.ledger import ClientStore, FolderStorage
from fedlatest.ledger.audit import audit
from fedlatest.ledger.job_folder import read_events
from fedlatest.runs import RunFolder
from tests.command_line import fedlatest_here
from tests.flower.small import FIRST, Small, Weights, towards

PACE = Pace(deadline=20, poll=0.001)


def score(weights: Weights, task: Assignment) -> Fitted:
    return Fitted(2, {"loss": float(weights["w"][0]), "accuracy": 0.5})


def apps() -> list[ClientApp]:
    return [client_app(towards(goal), evaluate=score) for goal in (1, 2, 3)]


def grid_of(folder: Path, *, run_id: int = 1) -> LocalGrid:
    grid = LocalGrid(_run=Run.create_empty(run_id=run_id))
    for name, app in zip("abc", apps(), strict=True):
        grid.add(app, {"state-dir": str(folder / "nodes" / name / "state"), "name": name})
    return grid


def start(folder: Path, rounds: int, *, evaluate_fn: Any = None, grid: LocalGrid | None = None, **more: Any) -> Result:
    """A run of its own: new strategy, new grid, new nodes, old folders."""
    settings = {"cohort_size": 2, "pace": PACE, "min_clients": 3, **more}
    strategy = FedLaAvg(job=folder / "job", **settings)
    return strategy.start(grid or grid_of(folder), to_record(FIRST), num_rounds=rounds, evaluate_fn=evaluate_fn)


def at_server(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    return MetricRecord({"loss": 1 / (1 + server_round), "accuracy": 0.25})


def rows(folder: Path) -> list[Any]:
    return list(RunFolder(folder / "job/run").metrics().rows)


def holds(folder: Path) -> bool:
    stores = [ClientStore(FolderStorage(path)) for path in (folder / "nodes").glob("*/state")]
    return audit(folder / "job/ledger.sqlite", stores).holds


def assert_read_by(command: str, folder: Path) -> None:
    done = fedlatest_here(command, "job/run", cwd=folder)
    assert done.returncode == 0, done.stderr


def test_a_cut_job_equals_an_uncut_one(tmp_path: Path) -> None:
    whole = start(tmp_path / "whole", 6).arrays
    start(tmp_path / "cut", 2)
    start(tmp_path / "cut", 5, grid=grid_of(tmp_path / "cut", run_id=2))
    cut = start(tmp_path / "cut", 6, grid=grid_of(tmp_path / "cut", run_id=3)).arrays
    np.testing.assert_array_equal(cut["w"].numpy(), whole["w"].numpy())
    assert holds(tmp_path / "cut")
    events = read_events(tmp_path / "cut/job/events.jsonl")
    assert [event["round"] for event in events if event["event"] == "merged"] == list(range(6))
    assert [event["run"] for event in events if event["event"] == "job"] == [1, 2, 3]


def test_a_finished_job_waits_for_nobody(tmp_path: Path) -> None:
    done = start(tmp_path, 2)
    again = start(tmp_path, 2, grid=LocalGrid(), pace=Pace(deadline=1e6))
    np.testing.assert_array_equal(again.arrays["w"].numpy(), done.arrays["w"].numpy())


def test_the_run_folder(tmp_path: Path) -> None:
    """It is read like that of a simulation, also by the commands."""
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
    assert_read_by("report", tmp_path)
    assert_read_by("plot", tmp_path)


def test_rows_of_a_round_that_was_rolled_back_are_cut(tmp_path: Path) -> None:
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
    """At the server, on the nodes, at both and at neither; the server's numbers are the run's where there are any."""
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
    assert_read_by("report", tmp_path)
    for line in (tmp_path / "job/events.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)  # NaN is not JSON


def test_the_mean_over_nodes_is_by_examples(tmp_path: Path) -> None:
    """(1 * 4 + 3 * 0) / 4; a node that fails or cannot evaluate is left out."""
    job = Small(tmp_path, clients="")
    job.add("a", client_app(towards(1), evaluate=lambda weights, task: Fitted(1, {"loss": 4.0})))
    job.add("b", client_app(towards(1), evaluate=lambda weights, task: Fitted(3, {"loss": 0.0})))
    job.add("c", client_app(towards(1)))
    job.play()
    assert job.loop.evaluate() == {"loss": 1.0}
    job.online("")
    job.board.roll_call()
    assert job.loop.evaluate() == {}


def test_an_evaluation_waits_no_longer_than_a_round(tmp_path: Path) -> None:
    job = Small(tmp_path)
    job.play()
    job.grid.mail = lambda node, message: None
    began = job.now
    assert job.loop.evaluate() == {}
    assert 10 <= job.now - began < 13
    assert not job.board.out


def test_a_superlink_that_goes_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The run ends in words, and loses nothing that was closed; the next one goes on."""
    grid = grid_of(tmp_path)
    pulls = iter(range(6))

    def die() -> None:
        if next(pulls, None) is None:
            raise ConnectionError("connection refused")

    grid.before_pull = die
    with pytest.raises(DeploymentError, match=r"did not hand over replies \(Conn.*the same job folder goes on"):
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
    assert [event["event"] for event in events if event["event"] in ("finished", "stopped")] == ["finished", "stopped"]
    assert holds(tmp_path)


def test_nobody_ever_comes(tmp_path: Path) -> None:
    """There is nothing to say, and a run folder that says so."""
    result = start(tmp_path, 2, grid=LocalGrid(), pace=Pace(deadline=0.01, poll=0.001))
    assert result.arrays["w"].numpy().tolist() == [0, 0, 0]
    assert_read_by("report", tmp_path)


def test_another_model_or_config_is_not_this_job(tmp_path: Path) -> None:
    start(tmp_path, 1)
    with pytest.raises(LedgerError, match="use another job folder"):
        start(tmp_path, 2, clip_norm=1.0)
    strategy = FedLaAvg(job=tmp_path / "job", cohort_size=2)
    with pytest.raises(LedgerError, match="model layout"):
        strategy.start(grid_of(tmp_path), to_record({"w": np.zeros(4, np.float32)}))


def test_bad_settings_are_refused_before_a_job_is_begun(tmp_path: Path) -> None:
    for name, value in (("min_clients", 0), ("evaluate_every", 0), ("evaluate_nodes_every", -1), ("cohort_size", 0)):
        settings: dict[str, Any] = {name: value}
        with pytest.raises(ConfigError, match=f"{name}={value}"):
            start(tmp_path, 1, **settings)
    assert not (tmp_path / "job").exists()


class _Wrapped(DifferentialPrivacyServerSideFixedClipping):
    """A strategy that rewrites the replies of another."""


def test_flowers_own_workflow_is_told_off(tmp_path: Path) -> None:
    strategy = FedLaAvg(job=tmp_path / "job", cohort_size=2)
    with pytest.raises(NotImplementedError, match=r"call its start\(\)"):
        Strategy.start(strategy, grid_of(tmp_path), to_record(FIRST))
    private = _Wrapped(strategy, noise_multiplier=1.0, clipping_norm=1.0, num_sampled_clients=2)
    with pytest.raises(NotImplementedError, match="use clip_norm"):
        private.start(grid_of(tmp_path), to_record(FIRST))


def test_messages_that_flower_does_not_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its list then has None in it; the client is asked again another time."""
    job = Small(tmp_path)
    job.play()
    push, node = job.grid.push_messages, job.nodes["b"]

    def reject(messages: Iterable[Message]) -> list[Any]:
        [message] = messages
        return [None] if message.metadata.dst_node_id == node else list(push([message]))

    with monkeypatch.context() as patch:
        patch.setattr(job.grid, "push_messages", reject)
        tally = job.play()
    assert tally.missed == ["b"]
    assert "b" in [client for _ in range(3) for client in job.play().taken]
    assert job.audit().holds
