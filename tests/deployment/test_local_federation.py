"""A federation of real processes: it works, refuses unknown nodes, recovers from kills, and leaves no process.

The app (`stub_app`) uses only Flower. Each round with a reply adds 1 to a vector, so after R such rounds it is R.
"""

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from fedlatest.deployment.fault_injection import Fault, FaultInjector
from fedlatest.deployment.local_federation import LocalFederation
from fedlatest.deployment.node import Node
from fedlatest.deployment.process import free_ports, running_programs
from fedlatest.deployment.secrets import make_secrets
from fedlatest.deployment.supervise import JobStatus, NodeSchedule, supervise
from fedlatest.errors import DeploymentError
from fedlatest.ledger.event_log import Event, read_events
from tests.deployment.marked_processes import MARK, marked, wait_until_none

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

APP = Path(__file__).parent / "stub_app"


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Mark all processes of a test, and check that none is running at its end."""
    monkeypatch.setenv(MARK, str(tmp_path))
    yield str(tmp_path)
    assert marked(str(tmp_path)) == []


def outcome(federation: LocalFederation) -> tuple[int, float]:
    """Return the number of rounds and the first entry of the vector from the app's state file."""
    state = json.loads((federation.job / "state.json").read_text())
    return state["round"], state["x"][0]


@pytest.mark.slow
def test_unknown_nodes_are_refused_and_a_killed_superlink_is_restarted(tmp_path: Path, mark: str) -> None:
    """With TLS and keys; the SuperLink is killed in round 1 of 0 .. 2, and the job finishes in its second run."""
    faults = FaultInjector([Fault(round=1, after=0.5, target="superlink", down=0.5)])
    with LocalFederation(tmp_path / "fed", app=APP, num_nodes=2, tls=True) as federation:
        unregistered = unregistered_node(federation, tmp_path / "unregistered")
        seen = set()

        def on_progress(status: JobStatus, events: Sequence[Event]) -> None:
            unregistered.ensure_running()
            seen.add(unregistered.state)

        unregistered.bring_online()
        try:
            status = supervise(federation, {"rounds": 3, "deadline": 20.0}, faults=faults, on_progress=on_progress)
        finally:
            unregistered.kill()
        assert len(marked(mark)) > 2
    assert marked(mark) == []
    assert (len(status.runs), status.finished, len(faults.injected)) == (2, True, 1)
    assert outcome(federation) == (3, 3.0)
    assert set(status.num_applied) == {"node0", "node1"}
    assert "online" not in seen
    assert "refused" in seen
    assert "Failed to initialize the connection" in unregistered.last_output
    known = {name for _, name, key, _ in json.loads((federation.job / "nodes.json").read_text()) if key}
    assert known == {"node0", "node1"}


def unregistered_node(federation: LocalFederation, folder: Path) -> Node:
    """Make a node that trusts the federation's CA but whose key is not registered."""
    assert federation.secrets is not None
    secrets = make_secrets(folder / "secrets", nodes=["unregistered"])
    secrets.ca.write_bytes(federation.secrets.ca.read_bytes())
    return Node(
        "unregistered", folder, superlink=federation.superlink.address, port=free_ports(1)[0], secrets=secrets,
        log=folder / "log", config={},
    )  # fmt: skip


@pytest.mark.slow
def test_all_files_of_a_federation_are_private(tmp_path: Path, mark: str) -> None:
    """Including Flower's database, packed apps and configuration, logs, secrets, and what the apps write."""
    before = os.umask(0o022)
    try:
        with LocalFederation(tmp_path / "fed", app=APP, num_nodes=1, tls=True) as federation:
            supervise(federation, {"rounds": 1})
            found = {path: stat.S_IMODE(path.lstat().st_mode) for path in (tmp_path / "fed").rglob("*")}
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "fed").stat().st_mode) == 0o700
    assert {path: oct(mode) for path, mode in found.items() if mode & 0o077} == {}
    names = {path.name for path in found}
    assert {"link.db", "link.db-wal", "superlink.log", "run1.toml", "node.toml", "count", "state.json"} <= names


@pytest.mark.slow
def test_the_error_of_a_failing_app_has_the_end_of_its_log(tmp_path: Path, mark: str) -> None:
    with (
        LocalFederation(tmp_path / "fed", app=APP, num_nodes=1) as federation,
        pytest.raises(DeploymentError, match=r"(?s)finished:failed; .*--resume; its log .*run1\.log.*told to crash"),
    ):
        supervise(federation, {"rounds": 2, "crash": True})
    assert marked(mark) == []


@pytest.mark.slow
def test_a_killed_server_app_is_replaced_within_seconds(tmp_path: Path, mark: str) -> None:
    """Flower itself notices only after more than a minute that the app is gone."""
    killed: list[float] = []
    started: list[float] = []
    with LocalFederation(tmp_path / "fed", app=APP, num_nodes=1) as federation:

        def on_progress(status: JobStatus, events: Sequence[Event]) -> None:
            if not killed and status.merged_rounds == 1:
                federation.kill_app()
                killed.append(time.monotonic())
            if not started and len(status.runs) == 2:
                started.append(time.monotonic())

        status = supervise(federation, {"rounds": 3, "deadline": 20.0}, on_progress=on_progress)
    assert (len(status.runs), status.finished) == (2, True)
    assert outcome(federation) == (3, 3.0)
    assert started[0] - killed[0] < 30
    restarts = [event for event in read_events(federation.log) if event["event"] == "restarted"]
    assert [(event["who"], event["why"]) for event in restarts] == [("serverapp", "it was killed")]


@pytest.mark.slow
def test_a_server_app_that_is_killed_again_and_again_is_given_up(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedlatest.deployment.supervise.MAX_LOST_APPS", 1)

    def on_progress(status: JobStatus, events: Sequence[Event]) -> None:
        if any(event["event"] == "job" for event in events):
            time.sleep(1.0)
            federation.kill_app()

    with (
        LocalFederation(tmp_path / "fed", app=APP, num_nodes=1) as federation,
        pytest.raises(DeploymentError, match=r"killed 2 times without a round in between; .*with --resume"),
    ):
        supervise(federation, {"rounds": 3}, on_progress=on_progress)


@pytest.mark.slow
def test_a_node_without_its_executor_is_restarted(tmp_path: Path, mark: str) -> None:
    """Such a node is online for Flower but never replies; with the restart, it misses one round at most."""
    killed: list[int] = []
    with LocalFederation(tmp_path / "fed", app=APP, num_nodes=1) as federation:

        def on_progress(status: JobStatus, events: Sequence[Event]) -> None:
            process = federation.nodes["node0"].process
            if not killed and status.merged_rounds == 1 and process is not None:
                [programs] = running_programs([process])
                killed.extend(pid for pid, name in programs.items() if name == "flower-superexec")
                os.kill(killed[0], signal.SIGKILL)

        status = supervise(federation, {"rounds": 4, "deadline": 12.0}, on_progress=on_progress)
    assert len(killed) == 1
    assert status.num_applied["node0"] >= 3
    restarts = [event for event in read_events(federation.log) if event["event"] == "restarted"]
    assert [(event["who"], event["why"]) for event in restarts] == [("node0", "its executor has ended")]


@pytest.mark.slow
def test_a_superlink_without_its_executor_is_restarted_when_it_cannot_start_a_run(tmp_path: Path, mark: str) -> None:
    killed: list[int] = []
    with LocalFederation(tmp_path / "fed", app=APP, num_nodes=1) as federation:

        def on_progress(status: JobStatus, events: Sequence[Event]) -> None:
            process = federation.superlink.process
            if not killed and status.merged_rounds == 1 and process is not None:
                [programs] = running_programs([process])
                killed.extend(programs)
                for pid, name in programs.items():
                    if name != "flower-superlink":
                        os.kill(pid, signal.SIGKILL)

        status = supervise(federation, {"rounds": 3, "deadline": 20.0}, on_progress=on_progress)
    assert len(killed) >= 3
    assert (len(status.runs), status.finished) == (2, True)


@pytest.mark.slow
def test_a_paused_node_continues(tmp_path: Path, mark: str) -> None:
    """All processes of node0 are stopped for 12 s, longer than the deadline of a round."""
    faults = FaultInjector([Fault(round=1, after=0.5, target="node0", down=12.0, kind="pause")])
    with LocalFederation(tmp_path / "fed", app=APP, num_nodes=2) as federation:
        status = supervise(federation, {"rounds": 6, "deadline": 8.0}, faults=faults)
    assert (len(faults.injected), status.finished) == (1, True)
    states = [event["presence"] for event in read_events(federation.log) if event.get("who") == "node0"]
    assert states == ["connecting", "online", "paused", "online"]
    assert 2 <= status.num_applied["node0"] < 6
    assert status.num_applied["node1"] == 6


@pytest.mark.slow
def test_a_killed_node_reconnects_with_its_id_and_its_state(tmp_path: Path, mark: str) -> None:
    faults = FaultInjector([Fault(round=1, after=1.0, target="node0", down=0.0)])
    online: list[float] = []
    with LocalFederation(tmp_path / "fed", app=APP, num_nodes=2, tls=True) as federation:

        def on_progress(status: JobStatus, events: Sequence[Event]) -> None:
            if faults.injected and federation.nodes["node0"].state == "online":
                online.append(time.monotonic())

        status = supervise(federation, {"rounds": 14, "deadline": 8.0}, faults=faults, on_progress=on_progress)
    assert online, "the killed node is online again"
    assert status.num_applied["node0"] > 1
    assert status.num_applied["node1"] > 7
    states = [event["presence"] for event in read_events(tmp_path / "fed" / "deployment.jsonl")
                 if event["event"] == "presence" and event["who"] == "node0"]  # fmt: skip
    assert "refused" in states
    assert states[-1] == "online"
    ids = re.findall(r"SuperNode ID: (\d+)", (tmp_path / "fed" / "logs" / "node0.log").read_text())
    assert len(ids) == 2
    assert len(set(ids)) == 1
    count = int((tmp_path / "fed" / "nodes" / "node0" / "state" / "count").read_text())
    assert count >= status.num_applied["node0"]


@pytest.mark.slow
def test_nodes_follow_a_schedule(tmp_path: Path, mark: str) -> None:
    """node0 is available in rounds 0 .. 3, node1 in rounds 4 .. 7; in round 4 node0 may still be asked."""
    import numpy as np

    table = np.repeat([[True, False], [False, True]], 4, axis=0)
    with LocalFederation(tmp_path / "fed", app=APP, num_nodes=2) as federation:
        status = supervise(federation, {"rounds": 8, "deadline": 20.0}, schedule=NodeSchedule(table))
    merged = [event["applied"] for event in read_events(federation.job / "events.jsonl") if event["event"] == "merged"]
    assert {client for applied in merged[:4] for client in applied} == {"node0"}
    assert {client for applied in merged[5:] for client in applied} == {"node1"}
    assert status.finished


def start_command(folder: Path) -> "subprocess.Popen[str]":
    """Start `fedlatest deploy local` and wait until its first round has started."""
    started = subprocess.Popen(
        [sys.executable, "-m", "fedlatest", "deploy", "local", "--app", str(APP), "--nodes", "1", "--rounds", "99",
         "--out", str(folder)],
        env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not any(event["event"] == "round" for event in read_events(folder / "job" / "events.jsonl")):
        assert started.poll() is None, started.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return started


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_command_that_is_stopped_ends_all_processes_and_prints_how_to_continue(
    tmp_path: Path, mark: str, number: signal.Signals
) -> None:
    started = start_command(tmp_path / "fed")
    assert any("flwr-serverapp" in line for line in marked(mark))
    started.send_signal(number)
    printed = started.communicate(timeout=60)[1]
    assert marked(mark) == []
    assert started.returncode == 130
    assert "the same command with --resume continues" in printed


@pytest.mark.slow
def test_all_processes_end_when_the_command_is_killed(tmp_path: Path, mark: str) -> None:
    started = start_command(tmp_path / "fed")
    started.kill()
    started.communicate(timeout=60)
    assert wait_until_none(mark, timeout=8) == []
