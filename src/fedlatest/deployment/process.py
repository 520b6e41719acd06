"""Processes that end together with everything they start, and free ports for them."""

import os
import random
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

from fedlatest.deployment import private_files, process_guard
from fedlatest.errors import DeploymentError

HOST = "127.0.0.1"
STOP_TIMEOUT = 5.0
_GRACE = 5.0  # seconds beyond the timeout of a process, before its guard is killed
_PORTS = range(20000, 32000)  # below the ports of outgoing connections, so a port stays free while a process restarts
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Process:
    """A command that runs under a guard (see `process_guard.py`).

    Args:
        command: The program and its arguments.
        log: File to which its output is appended; the files of the process are readable only by their owner.
        environment: Its environment variables.
    """

    def __init__(self, command: Sequence[str], *, log: Path, environment: Mapping[str, str]) -> None:
        if not log.parent.is_dir():
            private_files.make_folder(log.parent)
        with private_files.open_to_append(log) as output:
            self._begin = output.tell()
            self._guard = subprocess.Popen(
                _guarded(command),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
                umask=private_files.UMASK,
            )
        self.log = log

    @property
    def pid(self) -> int:
        """Process id of the guard; the command and all its processes are descendants."""
        return self._guard.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; 128 + n if it was ended by signal n."""
        code = self._guard.poll()
        if code is not None:
            self._close_stdin()
        return code

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.exit_code is None

    def output(self) -> str:
        """Return its output so far, without that of earlier processes in the same log."""
        with self.log.open("rb") as file:
            file.seek(self._begin)
            return file.read().decode(errors="replace")

    def kill(self) -> None:
        """Send SIGKILL to the command and to everything it started, and wait until they have ended."""
        self._request("kill")
        self.wait(_GRACE)

    def stop(self, *, timeout: float = STOP_TIMEOUT) -> None:
        """Send SIGTERM, and SIGKILL to what is left after `timeout` seconds; returns at once."""
        self._request(f"stop {timeout}")

    def wait(self, timeout: float) -> int:
        """Wait for the end and return the exit code; kill the guard and its descendants after `timeout` seconds."""
        try:
            code = self._guard.wait(timeout)
        except subprocess.TimeoutExpired:
            for pid in [self.pid, *process_guard.descendants(self.pid)]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            code = self._guard.wait()
        self._close_stdin()
        return code

    def _request(self, request: str) -> None:
        assert self._guard.stdin is not None
        with suppress(BrokenPipeError, ValueError):  # it has ended
            self._guard.stdin.write(f"{request}\n".encode())
            self._guard.stdin.flush()

    def _close_stdin(self) -> None:
        assert self._guard.stdin is not None
        with suppress(BrokenPipeError):
            self._guard.stdin.close()

    def signal_all(self, number: signal.Signals) -> None:
        """Send a signal to the command and to everything it started, but not to the guard."""
        for pid in process_guard.descendants(self.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def running_programs(processes: Sequence[Process]) -> list[dict[int, str]]:
    """Return, for each process, the ids of its descendants and the names of their programs, without zombies."""
    trees = process_guard.descendants_of([process.pid for process in processes])
    return [{pid: name for pid in tree if (name := process_guard.program(pid))} for tree in trees]


def stop_all(processes: Sequence[Process], *, timeout: float = STOP_TIMEOUT) -> None:
    """Stop processes in parallel and wait until they have ended."""
    for process in processes:
        process.stop(timeout=timeout)
    for process in processes:
        process.wait(timeout + _GRACE)


def run_command(
    command: Sequence[str], *, environment: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a short command under a guard and return its exit code and output.

    Args:
        command: The program and its arguments.
        environment: Its environment variables.
        timeout: Seconds after which subprocess.TimeoutExpired is raised.
    """
    guards_end, our_end = os.pipe()
    try:
        return subprocess.run(
            _guarded(command),
            stdin=guards_end,
            capture_output=True,
            text=True,
            env=dict(environment),
            start_new_session=True,
            umask=private_files.UMASK,
            timeout=timeout,
            check=False,
        )
    finally:
        os.close(guards_end)
        os.close(our_end)


def tail(text: str, *, lines: int = 12) -> str:
    """Return the last lines of a log, without colours and empty lines."""
    return "\n".join([line for line in _COLOUR.sub("", text).splitlines() if line.strip()][-lines:])


def free_ports(count: int) -> list[int]:
    """Return `count` different ports that are free now.

    Raises:
        DeploymentError: There are not enough free ports.
    """
    found: list[int] = []
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        if len(found) == count:
            break
        with closing(socket.socket()) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((HOST, port))
            except OSError:
                continue
        found.append(port)
    if len(found) < count:
        raise DeploymentError(f"{count} ports are needed on {HOST}, {len(found)} are free; use fewer nodes")
    return found


def is_listening(port: int) -> bool:
    """Return whether a process listens on the port."""
    with closing(socket.socket()) as trial:
        trial.settimeout(1.0)
        return trial.connect_ex((HOST, port)) == 0


def _guarded(command: Sequence[str]) -> list[str]:
    return [sys.executable, "-I", "-S", process_guard.__file__, *command]
