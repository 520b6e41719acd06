"""Processes under a guard: their descendants end with them, however they or this process end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedlatest.deployment import process_guard
from fedlatest.deployment.process import Process, run_command, running_programs, stop_all, tail
from tests.deployment.marked_processes import MARK, marked, wait_until_none

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

WITH_DESCENDANTS = """
import subprocess, sys, time
subprocess.Popen(["sh", "-c", "setsid sleep 100 & setsid sh -c 'sleep 100 & sleep 100' & exit"])
print("ready", flush=True)
time.sleep(100)
"""
IGNORES_SIGTERM = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(100)"
)


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[str]:
    yield str(tmp_path)
    assert marked(str(tmp_path)) == []


def start(code: str, mark: str, *, num_processes: int = 1) -> Process:
    """Start the program, and wait until it and its descendants run; the guard is not counted."""
    process = Process([sys.executable, "-c", code], log=Path(mark) / "log", environment={**os.environ, MARK: mark})
    deadline = time.monotonic() + 10
    while "ready" not in process.output() or len(marked(mark)) < 1 + num_processes:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process


def test_kill_ends_all_descendants_in_all_sessions(mark: str) -> None:
    process = start(WITH_DESCENDANTS, mark, num_processes=5)
    process.kill()
    assert marked(mark) == []
    assert process.exit_code == 128 + signal.SIGKILL


def test_stop_ends_all_descendants(mark: str) -> None:
    process = start(WITH_DESCENDANTS, mark, num_processes=5)
    stop_all([process])
    assert marked(mark) == []
    assert process.exit_code == 128 + signal.SIGTERM


def test_a_process_that_ignores_sigterm_is_killed_after_the_timeout(mark: str) -> None:
    process = start(IGNORES_SIGTERM, mark)
    begin = time.monotonic()
    stop_all([process], timeout=0.3)
    assert process.exit_code == 128 + signal.SIGKILL
    assert time.monotonic() - begin > 0.3


def test_descendants_end_when_the_command_ends(mark: str) -> None:
    process = start(WITH_DESCENDANTS.replace("time.sleep(100)", "time.sleep(0.5); sys.exit(7)"), mark)
    assert process.wait(10) == 7
    assert marked(mark) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_all_processes_end_when_the_parent_is_killed(mark: str, number: signal.Signals) -> None:
    code = f"""
import os, sys, time
from pathlib import Path
from fedlatest.deployment.process import Process
process = Process([sys.executable, "-c", {WITH_DESCENDANTS!r}], log=Path({mark!r}) / "log", environment=os.environ)
time.sleep(100)
"""
    parent = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, MARK: mark}, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    while len(marked(mark)) < 7:  # the parent, the guard, the command and its four descendants
        assert time.monotonic() < deadline
        time.sleep(0.02)
    parent.send_signal(number)
    parent.wait(10)
    assert wait_until_none(mark, timeout=5) == []


def test_the_command_ends_when_its_guard_is_killed(mark: str) -> None:
    process = start(IGNORES_SIGTERM, mark)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(5) == -signal.SIGKILL
    assert wait_until_none(mark, timeout=5) == []


def test_output_excludes_earlier_processes(mark: str) -> None:
    stop_all([start("print('ready first', flush=True); import time; time.sleep(100)", mark)])
    process = start("print('ready second', flush=True); import time; time.sleep(100)", mark)
    assert "second" in process.output()
    assert "first" not in process.output()
    assert "first" in process.log.read_text()
    process.kill()


def test_programs_of_descendants_are_found_by_name(mark: str) -> None:
    """Scripts have their own name, not that of Python; a process that has ended is not found."""
    script = Path(mark) / "flwr-serverapp"
    script.write_text("import time; time.sleep(100)")
    code = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, {str(script)!r}, "--token", "x"])
subprocess.Popen(["sleep", "0"])
time.sleep(0.5)
print("ready", flush=True)
time.sleep(100)
"""
    process = start(code, mark, num_processes=2)
    [programs] = running_programs([process])
    assert "flwr-serverapp" in programs.values()
    assert "sleep" not in programs.values()
    [pid] = [pid for pid, name in programs.items() if name == "flwr-serverapp"]
    os.kill(pid, signal.SIGKILL)  # the zombie remains, because its parent does not wait for it
    time.sleep(0.2)
    assert "flwr-serverapp" not in running_programs([process])[0].values()
    process.kill()


def test_all_processes_stop_and_continue(mark: str) -> None:
    process = start(WITH_DESCENDANTS, mark, num_processes=5)
    process.signal_all(signal.SIGSTOP)
    stopped = states_soon(process)
    process.signal_all(signal.SIGCONT)
    continued = states_soon(process)
    process.kill()
    assert stopped == {"T"}
    assert "T" not in continued


def states_soon(process: Process) -> set[str]:
    """Return the states of all descendants some time after a signal, without zombies."""
    time.sleep(0.3)
    pids = process_guard.descendants(process.pid)
    return {Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in pids} - {"Z"}


def test_run_command() -> None:
    done = run_command([sys.executable, "-c", "print('yes')"], environment=os.environ, timeout=20)
    assert (done.returncode, done.stdout) == (0, "yes\n")


def test_tail_omits_colours_and_empty_lines() -> None:
    assert tail("one\n\n\x1b[92mINFO \x1b[0m: two\n\nthree\n", lines=2) == "INFO : two\nthree"


def test_descendants_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without /proc, `ps` is used; it lists itself, and must not be among the results."""
    monkeypatch.setattr(sys, "platform", "darwin")
    before = set(process_guard.descendants(os.getpid()))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert set(process_guard.descendants(os.getpid())) == before | {child.pid}
        child.kill()
    assert set(process_guard.descendants(os.getpid())) == before
