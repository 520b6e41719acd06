"""`fedlatest deploy`: what it refuses before it starts anything, what it shows, and the keys it makes."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from fedlatest.cli.app import out
from fedlatest.cli.deployment_table import Board
from fedlatest.deployment.deployment_folder import open_folder
from fedlatest.deployment.local_federation import LocalFederation
from fedlatest.deployment.scaffold import write_app
from fedlatest.deployment.supervise import JobView
from fedlatest.errors import RunFolderError
from fedlatest.ledger.job_folder import append_event
from tests.command_line import Done, fedlatest_here

APP = Path(__file__).parent / "stub_app"


def local(folder: Path, *arguments: str) -> Done:
    return fedlatest_here("deploy", "local", "--app", str(APP), *arguments, cwd=folder)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--nodes", "0"], "--nodes 0: must be at least 1"),
        (["--rounds", "0"], "--rounds 0: must be at least 1"),
        (["--resume", "--force"], "--resume, --force: go on with what is there or replace it, not both"),
        (["--set", "availability=diurnl"], "availability=diurnl: unknown; did you mean diurnal?"),
        (["--set", "availability=trace"], "trace: availability=trace needs it; add --set trace=..."),
        (["--set", "share=0.5"], "share: is a key of availability=markov"),
        (["--set", "deadlin=4"], "deadlin: unknown key; did you mean deadline?"),
        (["--set", "job=elsewhere"], "job: unknown key"),
        (["--set", "deadline=soon"], "deadline=soon: expected a number"),
        (["--set", "availability=diurnal", "--set", "period=0"], "period"),
        (["--rounds", "2", "--chaos"], "rounds=2: chaos needs at least 3"),
        (["--chaos", "--node-kills", "-1"], "node_kills=-1: must be at least 0"),
    ],
)  # fmt: skip
def test_a_wrong_request_is_one_line_and_starts_nothing(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    done = local(tmp_path, *arguments)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {complaint}")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_app_that_is_none_or_cannot_be_told_its_job_is_refused(tmp_path: Path) -> None:
    done = fedlatest_here("deploy", "local", "--app", "nothing", cwd=tmp_path)
    assert "app nothing: holds no pyproject.toml" in done.stderr
    (tmp_path / "pyproject.toml").write_text("[tool.flwr.app.config]\nrounds = 3\n")
    done = fedlatest_here("deploy", "local", "--app", ".", cwd=tmp_path)
    assert "[tool.flwr.app.config] lacks job" in done.stderr


def test_without_flower_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for arguments in (["deploy", "local", "--app", str(APP)], ["deploy", "keys", "k"]):
        done = fedlatest_here(*arguments, cwd=tmp_path)
        assert done.returncode == 1
        assert "pip install 'fedlatest[flower]'" in done.stderr


def test_keys_are_made_and_added_to_and_never_overwritten(tmp_path: Path) -> None:
    done = fedlatest_here("deploy", "keys", "k", "--host", "fl.example.org", "--nodes", "2", cwd=tmp_path)
    assert done.returncode == 0
    assert fedlatest_here("deploy", "keys", "k", "--nodes", "1", cwd=tmp_path).returncode == 0
    names = {path.name for path in (tmp_path / "k").iterdir()}
    nodes = {f"node{index}{end}" for index in range(3) for end in ("", ".pub")}
    assert names == {"ca.crt", "ca.key", "server.crt", "server.key"} | nodes
    done = fedlatest_here("deploy", "keys", "k", "--host", "other.example.org", cwd=tmp_path)
    assert done.returncode == 1
    assert "server.crt: is there and is never overwritten" in done.stderr


def test_a_folder_is_gone_on_with_or_replaced_only_when_asked(tmp_path: Path) -> None:
    folder, values = tmp_path / "fed", {"nodes": 2, "rounds": 3, "config": {"deadline": 1.0}}
    use(folder, values)
    (folder / "job").mkdir()
    with pytest.raises(RunFolderError, match=r"holds a deployment; add --resume to go on, --force to replace it"):
        use(folder, values)
    use(folder, {**values, "rounds": 9}, resume=True)
    assert (folder / "job").exists()
    assert json.loads((folder / "deployment.json").read_text())["rounds"] == 9
    with pytest.raises(RunFolderError, match=r"was begun with nodes=2, not 5; go on with that, or choose another"):
        use(folder, {**values, "nodes": 5}, resume=True)
    use(folder, {**values, "nodes": 5}, force=True)
    assert not (folder / "job").exists()
    with pytest.raises(RunFolderError, match="holds no deployment to go on with"):
        use(tmp_path / "typo", values, resume=True)


def test_a_folder_is_one_commands_at_a_time(tmp_path: Path) -> None:
    with (
        open_folder(tmp_path / "fed", {}),
        pytest.raises(RunFolderError, match="another `deploy local` is at work here"),
        open_folder(tmp_path / "fed", {}, force=True),
    ):
        pass
    use(tmp_path / "fed", {}, resume=True)


def use(folder: Path, values: dict[str, Any], **options: bool) -> None:
    with open_folder(folder, values, **options):
        pass


@pytest.mark.parametrize(("app", "to"), [("app", "app/runs"), ("fed/app", "fed"), ("app", "app")])
def test_app_and_folder_are_apart(app: str, to: str, tmp_path: Path) -> None:
    """What lies below an app is packed with it; what lies in a deployment's folder goes with it."""
    write_app(tmp_path / app)
    done = fedlatest_here("deploy", "local", "--app", app, "--out", to, cwd=tmp_path)
    assert done.returncode == 1
    assert "lies in" in done.stderr


def test_a_folder_of_something_else_is_never_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    for options in ({}, {"resume": True}, {"force": True}):
        with pytest.raises(RunFolderError, match="no deployment"):
            use(tmp_path, {}, **options)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_without_a_terminal_a_round_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(out, "print", lambda line, **_: said.append(line))
    federation = LocalFederation(tmp_path, app=APP, num_nodes=2)
    events: list[dict[str, Any]] = [
        {"event": "job", "rounds": 2, "round": 0, "run": 1},
        {"event": "round", "round": 0},
        {
            "event": "merged",
            "round": 0,
            "applied": ["node1"],
            "unanswered": ["node0"],
            "seconds": 5.0,
            "train_loss": 2.0,
        },
        {"event": "evaluated", "round": 1, "test_accuracy": 0.5},
        {"event": "failed", "client": "node0", "why": "No module named 'torch'"},
        {"event": "failed", "client": "node0", "why": "No module named 'torch'"},
    ]
    view = JobView()
    with Board(federation, 2) as shown:
        for event in events:
            view.hear(event)
        append_event(federation.log, "chaos", target="node0")
        shown.hear(view, events)
    assert said == [
        "starting the SuperLink and 2 nodes",
        "kill -9 of node0",
        "run 1 begins with round 1/2",
        "round 1: node1, no answer from node0, 5.0 s, train loss 2.0000",
        "  after round 1: accuracy 0.5000",
        "failed: node0 No module named 'torch'",
    ]
