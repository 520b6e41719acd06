"""`fedlatest deploy`: invalid options, the folder of a deployment, printed progress, and keys."""

import errno
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedlatest.cli.app import out
from fedlatest.cli.deploy_local import Request, _print_summary
from fedlatest.cli.deployment_table import ProgressTable
from fedlatest.deployment.deployment_folder import open_folder
from fedlatest.deployment.fault_injection import FaultInjector
from fedlatest.deployment.local_federation import LocalFederation
from fedlatest.deployment.scaffold import write_app
from fedlatest.deployment.supervise import JobStatus
from fedlatest.errors import RunFolderError
from fedlatest.ledger.event_log import append_event
from tests.command_line import Done, fedlatest_here, next_command

APP = Path(__file__).parent / "stub_app"


def local(folder: Path, *arguments: str) -> Done:
    return fedlatest_here("deploy", "local", "--app", str(APP), *arguments, cwd=folder)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nodes", "0"], "--nodes 0: must be at least 1"),
        (["--rounds", "0"], "--rounds 0: must be at least 1"),
        (["--resume", "--force"], "--resume, --force: continue the deployment or replace it, not both"),
        (["--set", "availability=diurnl"], "availability=diurnl: unknown; did you mean diurnal?"),
        (["--set", "availability=trace"], "trace: required by availability=trace; add --set trace=..."),
        (["--set", "share=0.5"], "share: is a key of availability=markov"),
        (["--set", "deadlin=4"], "deadlin: unknown key; did you mean deadline?"),
        (["--set", "job=elsewhere"], "job: unknown key"),
        (["--set", "deadline=soon"], "deadline=soon: expected a number"),
        (["--set", "availability=diurnal", "--set", "period=0"], "period"),
        (["--rounds", "2", "--chaos"], "rounds=2: chaos needs at least 3"),
        (["--chaos", "--node-pauses", "-1"], "node_pauses=-1: must be at least 0"),
        (["--chaos", "--node-kills", "-1"], "node_kills=-1: must be at least 0"),
    ],
)  # fmt: skip
def test_an_invalid_option_is_reported_in_one_line_and_starts_nothing(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = local(tmp_path, *arguments)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {message}")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_an_app_or_an_app_without_a_job_key_is_refused(tmp_path: Path) -> None:
    done = fedlatest_here("deploy", "local", "--app", "nothing", cwd=tmp_path)
    assert "app nothing: contains no pyproject.toml" in done.stderr
    (tmp_path / "pyproject.toml").write_text("[tool.flwr.app.config]\nrounds = 3\n")
    done = fedlatest_here("deploy", "local", "--app", ".", cwd=tmp_path)
    assert "[tool.flwr.app.config] lacks job" in done.stderr


def test_without_flower_the_message_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for arguments in (["deploy", "local", "--app", str(APP)], ["deploy", "keys", "k"]):
        done = fedlatest_here(*arguments, cwd=tmp_path)
        assert done.returncode == 1
        assert "pip install '.[flower]'" in done.stderr


def test_help_does_not_import_flower() -> None:
    """The commands import what they need when they run."""
    code = "import sys, fedlatest.cli.deploy, fedlatest.cli.job; sys.exit('flwr' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_keys_are_created_and_added_and_never_overwritten(tmp_path: Path) -> None:
    done = fedlatest_here("deploy", "keys", "k", "--host", "fl.example.org", "--nodes", "2", cwd=tmp_path)
    assert done.returncode == 0
    assert fedlatest_here("deploy", "keys", "k", "--nodes", "1", cwd=tmp_path).returncode == 0
    names = {path.name for path in (tmp_path / "k").iterdir()}
    nodes = {f"node{index}{end}" for index in range(3) for end in ("", ".pub")}
    assert names == {"ca.crt", "ca.key", "server.crt", "server.key"} | nodes
    done = fedlatest_here("deploy", "keys", "k", "--host", "other.example.org", cwd=tmp_path)
    assert done.returncode == 1
    assert "server.crt: exists and is never overwritten" in done.stderr


def test_a_deployment_is_resumed_or_replaced_only_on_request(tmp_path: Path) -> None:
    folder, values = tmp_path / "fed", {"nodes": 2, "rounds": 3, "config": {"deadline": 1.0}}
    use(folder, values)
    (folder / "job").mkdir()
    with pytest.raises(
        RunFolderError, match=r"contains a deployment; add --resume to continue it, --force to replace it"
    ):
        use(folder, values)
    use(folder, {**values, "rounds": 9}, resume=True)
    assert (folder / "job").exists()
    assert json.loads((folder / "deployment.json").read_text())["rounds"] == 9
    with pytest.raises(RunFolderError, match=r"was started with nodes=2, not 5; use the same value, or choose another"):
        use(folder, {**values, "nodes": 5}, resume=True)
    use(folder, {**values, "nodes": 5}, force=True)
    assert not (folder / "job").exists()
    with pytest.raises(RunFolderError, match="contains no deployment to resume"):
        use(tmp_path / "typo", values, resume=True)


def test_a_folder_is_locked_while_it_is_used(tmp_path: Path) -> None:
    with (
        open_folder(tmp_path / "fed", {}),
        pytest.raises(RunFolderError, match="another `deploy local` is running in this folder"),
        open_folder(tmp_path / "fed", {}, force=True),
    ):
        pass
    use(tmp_path / "fed", {}, resume=True)


def use(folder: Path, values: dict[str, Any], **options: bool) -> None:
    with open_folder(folder, values, **options):
        pass


def test_an_os_error_of_the_job_is_not_blamed_on_the_folder(tmp_path: Path) -> None:
    """Only errors of the preparation are translated; those of the body keep their type and message."""
    with (
        pytest.raises(FileNotFoundError, match="no such program"),
        open_folder(tmp_path / "fed", {}),
    ):
        raise FileNotFoundError(errno.ENOENT, "no such program")
    use(tmp_path / "fed", {}, resume=True)  # the lock was released


def test_an_os_error_of_the_preparation_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunFolderError, match=r"choose another --out"):
        use(tmp_path / "file" / "fed", {})


@pytest.mark.parametrize(("app", "to"), [("app", "app/runs"), ("fed/app", "fed"), ("app", "app")])
def test_an_app_and_a_deployment_must_not_be_nested(app: str, to: str, tmp_path: Path) -> None:
    """Flower packs an app with everything below it, and --force deletes everything in a deployment's folder."""
    write_app(tmp_path / app)
    done = fedlatest_here("deploy", "local", "--app", app, "--out", to, cwd=tmp_path)
    assert done.returncode == 1
    assert "lies in" in done.stderr


def test_a_folder_with_other_files_is_never_changed(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    for options in ({}, {"resume": True}, {"force": True}):
        with pytest.raises(RunFolderError, match=r"no deployment|not a deployment"):
            use(tmp_path, {}, **options)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_without_a_terminal_each_round_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(out, "print", lambda line, **_: lines.append(line))
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
    status = JobStatus()
    with ProgressTable(federation, 2) as table:
        for event in events:
            status.update(event)
        append_event(federation.log, "chaos", target="node0")
        append_event(federation.log, "chaos", target="node1", kind="pause", down=31.5)
        append_event(federation.log, "restarted", who="serverapp", why="it was killed")
        table.update(status, events)
    assert lines == [
        "starting the SuperLink and 2 nodes",
        "kill -9 of node0",
        "pause of node1 for 32 s",
        "serverapp: it was killed; it is started again",
        "run 1 starts with round 1/2",
        "round 1: node1, no reply from node0, 5.0 s, train loss 2.0000",
        "  after round 1: accuracy 0.5000",
        "failed: node0 No module named 'torch'",
    ]


def test_the_summary_lists_every_node_and_ends_with_the_next_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """node1 has taken part in round 0 of 0 and 1; node10 has never been connected."""
    status = JobStatus(
        rounds=2, last_round={"node1": 0, "node2": 1}, num_applied={"node1": 1, "node2": 1}, last_merged=1
    )
    request = Request(None, tmp_path / "my job", 3, None, tls=False, secure=False, seed=0, settings=[], faults={})
    _print_summary(request, status, FaultInjector([]), never={"node10"})
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split(maxsplit=2) for line in lines[1:4]]
    assert rows == [["node1", "1", "1"], ["node2", "1", "0"], ["node10", "0", "never connected"]]
    assert lines[-1] == f"next: fedlatest audit '{tmp_path / 'my job'}'"


def test_an_app_is_written_and_the_next_command_runs_it(tmp_path: Path) -> None:
    done = fedlatest_here("deploy", "init", "my app", cwd=tmp_path)
    assert next_command(done) == ["deploy", "local", "--app", "my app"]
