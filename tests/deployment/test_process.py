"""Processes under a guard: all that they start ends with them, in whichever way they or we end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedlatest.deployment import process_guard as guard
from fedlatest.deployment.process import Process, answer, stop_all, tail
from tests.deployment.leftovers import MARK, marked, wait_until_none

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

FAMILY = """
import subprocess, sys, time
subprocess.Popen(["sh", "-c", "setsid sleep 100 & setsid sh -c 'sleep 100 & sleep 100' & exit"])
print("ready", flush=True)
time.sleep(100)
"""
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(100)"
)


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[str]:
    yield str(tmp_path)
    assert marked(str(tmp_path)) == []


def start(code: str, mark: str, *, family: int = 1) -> Process:
    """Start the program, and wait until it and its family (the guard not counted) are all there."""
    process = Process([sys.executable, "-c", code], log=Path(mark) / "log", environment={**os.environ, MARK: mark})
    deadline = time.monotonic() + 10
    while "ready" not in process.output() or len(marked(mark)) < 1 + family:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process


def test_a_kill_takes_the_whole_family_whatever_sessions_they_are_in(mark: str) -> None:
    process = start(FAMILY, mark, family=5)
    process.kill()
    assert marked(mark) == []
    assert process.exit_code == 128 + signal.SIGKILL


def test_a_stop_is_polite_and_takes_the_family_too(mark: str) -> None:
    process = start(FAMILY, mark, family=5)
    stop_all([process])
    assert marked(mark) == []
    assert process.exit_code == 128 + signal.SIGTERM


def test_who_does_not_listen_is_ended_after_the_patience(mark: str) -> None:
    process = start(STUBBORN, mark)
    begin = time.monotonic()
    stop_all([process], patience=0.3)
    assert process.exit_code == 128 + signal.SIGKILL
    assert time.monotonic() - begin > 0.3


def test_the_family_goes_when_the_command_ends_by_itself(mark: str) -> None:
    process = start(FAMILY.replace("time.sleep(100)", "time.sleep(0.5); sys.exit(7)"), mark)
    assert process.wait(10) == 7
    assert marked(mark) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_us_however_we_end(mark: str, number: signal.Signals) -> None:
    code = f"""
import os, sys, time
from pathlib import Path
from fedlatest.deployment.process import Process
process = Process([sys.executable, "-c", {FAMILY!r}], log=Path({mark!r}) / "log", environment=os.environ)
time.sleep(100)
"""
    us = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, MARK: mark}, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    while len(marked(mark)) < 7:  # us, the guard, the command and its four
        assert time.monotonic() < deadline
        time.sleep(0.02)
    us.send_signal(number)
    us.wait(10)
    assert wait_until_none(mark, seconds=5) == []


def test_a_killed_guard_takes_the_command_with_it(mark: str) -> None:
    process = start(STUBBORN, mark)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(5) == -signal.SIGKILL
    assert wait_until_none(mark, seconds=5) == []


def test_output_is_what_was_said_since_the_start(mark: str) -> None:
    stop_all([start("print('ready first', flush=True); import time; time.sleep(100)", mark)])
    process = start("print('ready second', flush=True); import time; time.sleep(100)", mark)
    assert "second" in process.output()
    assert "first" not in process.output()
    assert "first" in process.log.read_text()
    process.kill()


def test_a_short_command_answers() -> None:
    done = answer([sys.executable, "-c", "print('yes')"], environment=os.environ, seconds=20)
    assert (done.returncode, done.stdout) == (0, "yes\n")


def test_the_tail_of_a_log_has_neither_colours_nor_empty_lines() -> None:
    assert tail("one\n\n\x1b[92mINFO \x1b[0m: two\n\nthree\n", lines=2) == "INFO : two\nthree"


def test_processes_are_found_where_there_is_no_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ps` lists itself among our children; waiting for it to go would never end."""
    monkeypatch.setattr(sys, "platform", "darwin")
    before = set(guard.descendants(os.getpid()))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert set(guard.descendants(os.getpid())) == before | {child.pid}
        child.kill()
    assert set(guard.descendants(os.getpid())) == before
