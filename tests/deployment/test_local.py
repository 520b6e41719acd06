"""A whole federation of real processes: it works, takes no strange nodes, survives kills, and leaves nothing.

The app (`stub_app`) is plain Flower: each round adds 1 to a vector, so after R rounds with an answer it holds R.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from fedlatest.deployment.fault_injection import Act, Chaos
from fedlatest.deployment.local_federation import LocalFederation
from fedlatest.deployment.node import Node
from fedlatest.deployment.process import free_ports
from fedlatest.deployment.secrets import make_secrets
from fedlatest.deployment.supervise import Attendance, JobView, conduct
from fedlatest.errors import DeploymentError
from fedlatest.ledger.job_folder import Event, read_events
from tests.deployment.leftovers import MARK, marked, wait_until_none

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

APP = Path(__file__).parent / "stub_app"


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What all processes of a test bear; none of them may be left after it."""
    monkeypatch.setenv(MARK, str(tmp_path))
    yield str(tmp_path)
    assert marked(str(tmp_path)) == []


def outcome(federation: LocalFederation) -> tuple[int, float]:
    """Rounds done and the vector's first entry, as the app has them on its disk."""
    state = json.loads((federation.job / "state.json").read_text())
    return state["round"], state["x"][0]


@pytest.mark.slow
def test_a_closed_federation_lets_no_stranger_in_and_goes_on_after_the_superlinks_death(
    tmp_path: Path, mark: str
) -> None:
    """TLS and keys; the SuperLink is killed in round 1 of 0 .. 2, and the job ends in its second run."""
    chaos = Chaos([Act(round=1, after=0.5, target="superlink", down=0.5)])
    with LocalFederation(tmp_path / "fed", app=APP, num_nodes=2, tls=True) as federation:
        stranger = stranger_at(federation, tmp_path / "stranger")
        seen = set()

        def listen(view: JobView, events: Sequence[Event]) -> None:
            stranger.look_after()
            seen.add(stranger.presence)

        stranger.here()
        try:
            view = conduct(federation, {"rounds": 3, "deadline": 20.0}, chaos=chaos, on_progress=listen)
        finally:
            stranger.kill()
        assert len(marked(mark)) > 2
    assert marked(mark) == []
    assert (len(view.runs), view.finished, len(chaos.done)) == (2, True, 1)
    assert outcome(federation) == (3, 3.0)
    assert set(view.num_applied) == {"node0", "node1"}
    assert "here" not in seen
    assert "refused" in seen
    assert "Failed to initialize the connection" in stranger.last_words
    known = {name for _, name, key, _ in json.loads((federation.job / "nodes.json").read_text()) if key}
    assert known == {"node0", "node1"}


def stranger_at(federation: LocalFederation, folder: Path) -> Node:
    """A node with a key of its own making that nobody registered; it trusts the federation's CA."""
    assert federation.secrets is not None
    secrets = make_secrets(folder / "secrets", nodes=["stranger"])
    secrets.ca.write_bytes(federation.secrets.ca.read_bytes())
    return Node(
        "stranger", folder, superlink=federation.superlink.address, port=free_ports(1)[0], secrets=secrets,
        log=folder / "log", config={},
    )  # fmt: skip


def test_an_app_that_fails_is_an_error_with_the_end_of_its_log(tmp_path: Path, mark: str) -> None:
    with (
        LocalFederation(tmp_path / "fed", app=APP, num_nodes=1) as federation,
        pytest.raises(DeploymentError, match=r"(?s)finished:failed; read .*run1\.log.*the app was told to crash"),
    ):
        conduct(federation, {"rounds": 2, "crash": True})
    assert marked(mark) == []


@pytest.mark.slow
def test_a_killed_node_is_refused_for_a_while_and_then_is_back_with_its_id_and_its_disk(
    tmp_path: Path, mark: str
) -> None:
    chaos = Chaos([Act(round=1, after=1.0, target="node0", down=0.0)])
    here: list[float] = []
    with LocalFederation(tmp_path / "fed", app=APP, num_nodes=2, tls=True) as federation:

        def listen(view: JobView, events: Sequence[Event]) -> None:
            if chaos.done and federation.nodes["node0"].presence == "here":
                here.append(time.monotonic())

        view = conduct(federation, {"rounds": 14, "deadline": 8.0}, chaos=chaos, on_progress=listen)
    assert here, "the killed node came back"
    assert view.num_applied["node0"] > 1
    assert view.num_applied["node1"] > 7
    presences = [event["presence"] for event in read_events(tmp_path / "fed" / "deployment.jsonl")
                 if event["event"] == "presence" and event["who"] == "node0"]  # fmt: skip
    assert "refused" in presences
    assert presences[-1] == "here"
    ids = re.findall(r"SuperNode ID: (\d+)", (tmp_path / "fed" / "logs" / "node0.log").read_text())
    assert len(ids) == 2
    assert len(set(ids)) == 1
    count = int((tmp_path / "fed" / "nodes" / "node0" / "state" / "count").read_text())
    assert count >= view.num_applied["node0"]


@pytest.mark.slow
def test_nodes_leave_and_return_as_an_availability_model_says(tmp_path: Path, mark: str) -> None:
    """node0 in rounds 0 .. 3, node1 in rounds 4 .. 7; a node that leaves may still be asked in the round it leaves."""
    import numpy as np

    table = np.repeat([[True, False], [False, True]], 4, axis=0)
    with LocalFederation(tmp_path / "fed", app=APP, num_nodes=2) as federation:
        view = conduct(federation, {"rounds": 8, "deadline": 20.0}, attendance=Attendance(table))
    merged = [event["applied"] for event in read_events(federation.job / "events.jsonl") if event["event"] == "merged"]
    assert {client for applied in merged[:4] for client in applied} == {"node0"}
    assert {client for applied in merged[5:] for client in applied} == {"node1"}
    assert view.finished


def command(folder: Path) -> "subprocess.Popen[str]":
    """`fedlatest deploy local` as a user starts it, under way: its first round has begun."""
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


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)], ids=["SIGTERM", "SIGINT"]
)
def test_a_command_that_is_stopped_leaves_nothing_and_says_how_to_go_on(
    tmp_path: Path, mark: str, number: signal.Signals
) -> None:
    started = command(tmp_path / "fed")
    assert any("flwr-serverapp" in line for line in marked(mark))
    started.send_signal(number)
    said = started.communicate(timeout=60)[1]
    assert marked(mark) == []
    assert started.returncode == 130
    assert "the same command with --resume goes on" in said


@pytest.mark.slow
def test_a_command_that_is_killed_leaves_nothing(tmp_path: Path, mark: str) -> None:
    started = command(tmp_path / "fed")
    started.kill()
    started.communicate(timeout=60)
    assert wait_until_none(mark, seconds=8) == []
