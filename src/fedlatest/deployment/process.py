"""A process with all that it starts: its log, its end, and no way to outlive us."""

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

from fedlatest.deployment import process_guard as guard
from fedlatest.errors import DeploymentError

STOP_PATIENCE = 5.0
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_GRACE = 5.0  # beyond a process's own patience, before its guard is ended by force


class Process:
    """A command that was started under a guard (see `guard.py`); its output goes to the end of a log file."""

    def __init__(self, command: Sequence[str], *, log: Path, environment: Mapping[str, str]) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self._begin = output.tell()
            self._guard = subprocess.Popen(
                guarded(command),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
            )
        self.log = log

    @property
    def pid(self) -> int:
        """Of the guard: the command and all its processes are below."""
        return self._guard.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; 128 + n if signal n ended it."""
        code = self._guard.poll()
        if code is not None:
            self._hang_up()
        return code

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.exit_code is None

    def output(self) -> str:
        """What it has said since it was started."""
        with self.log.open("rb") as file:
            file.seek(self._begin)
            return file.read().decode(errors="replace")

    def kill(self) -> None:
        """Kill -9 of the command and of all that it started; returns when they are gone."""
        self._order("kill")
        self.wait(_GRACE)

    def stop(self, *, patience: float = STOP_PATIENCE) -> None:
        """Ask it to end, and see to it that it will have after `patience` seconds; returns at once."""
        self._order(f"stop {patience}")

    def wait(self, seconds: float) -> int:
        """Wait for its end, but not for longer than that: then its guard and all below are ended by force."""
        try:
            code = self._guard.wait(seconds)
        except subprocess.TimeoutExpired:
            for pid in [self.pid, *guard.descendants(self.pid)]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            code = self._guard.wait()
        self._hang_up()
        return code

    def _order(self, order: str) -> None:
        assert self._guard.stdin is not None
        with suppress(BrokenPipeError, ValueError):  # it has ended
            self._guard.stdin.write(f"{order}\n".encode())
            self._guard.stdin.flush()

    def _hang_up(self) -> None:
        assert self._guard.stdin is not None
        with suppress(BrokenPipeError):
            self._guard.stdin.close()


def guarded(command: Sequence[str]) -> list[str]:
    """The command under a guard, which ends it when its own standard input does."""
    return [sys.executable, "-I", "-S", guard.__file__, *command]


def answer(
    command: Sequence[str], *, environment: Mapping[str, str], seconds: float
) -> subprocess.CompletedProcess[str]:
    """Run a short command, guarded too, and wait for what it says."""
    guards_end, ours = os.pipe()
    try:
        return subprocess.run(
            guarded(command),
            stdin=guards_end,
            capture_output=True,
            text=True,
            env=dict(environment),
            start_new_session=True,
            timeout=seconds,
            check=False,
        )
    finally:
        os.close(guards_end)
        os.close(ours)


def stop_all(processes: Sequence[Process], *, patience: float = STOP_PATIENCE) -> None:
    """Ask all to end at once, then wait for each; by force after `patience` seconds."""
    for process in processes:
        process.stop(patience=patience)
    for process in processes:
        process.wait(patience + _GRACE)


def tail(text: str, *, lines: int = 12) -> str:
    """The last lines of a log, without colours and empty ones."""
    return "\n".join([line for line in _COLOUR.sub("", text).splitlines() if line.strip()][-lines:])


HOST = "127.0.0.1"
_RANGE = range(20000, 32000)  # below what systems hand out to outgoing connections, so it stays free across a restart


def free_ports(count: int) -> list[int]:
    """So many different ports that can be listened to now."""
    found: list[int] = []
    for port in random.SystemRandom().sample(_RANGE, len(_RANGE)):
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


def answers(port: int) -> bool:
    """Whether somebody listens there."""
    with closing(socket.socket()) as trial:
        trial.settimeout(1.0)
        return trial.connect_ex((HOST, port)) == 0
