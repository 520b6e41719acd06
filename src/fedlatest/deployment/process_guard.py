"""Runs a command and answers for all that it starts: none of it is left when the guard ends, or its parent.

A program of its own (`python guard.py COMMAND ...`), one for each SuperLink and node. Flower starts further processes,
some in sessions of their own, so neither a process group nor a session holds them all. On Linux the guard is the "child
subreaper": whoever loses its parent below becomes the guard's child, and the whole tree stays in sight. It takes orders
on standard input: `kill` (SIGKILL to all at once) and `stop SECONDS` (SIGTERM to the command; SIGKILL to what is left
after that time). The end of its input, which is what the parent's death looks like, even by kill -9, is a `stop`.
Should the guard itself be killed by force, the command goes with it on Linux; what the command started may stay.
It imports the standard library alone: it has to be there within milliseconds.
"""

import ctypes
import math
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

LAST_PATIENCE = 3.0  # seconds for the command's farewell when the guard's parent is gone
_TICK = 0.05
_SUBREAPER, _DEATH_SIGNAL = 36, 1  # prctl's PR_SET_CHILD_SUBREAPER and PR_SET_PDEATHSIG
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def guard(command: list[str]) -> int:
    """Run the command until it ends or is told to; the exit code is the command's, or 128 + the signal."""
    parent = os.getppid()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # Ctrl-C is for our parent to judge
    if _libc:
        _libc.prctl(_SUBREAPER, 1)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_die_with_parent)
    orders: list[str] = []
    signal.signal(signal.SIGTERM, lambda *_: orders.append(f"stop {LAST_PATIENCE}"))
    deadline = math.inf
    while (code := _reap().get(child.pid)) is None and time.monotonic() < deadline:
        orders += _read_orders() if os.getppid() == parent else [f"stop {LAST_PATIENCE}"]
        if deadline < math.inf:
            time.sleep(_TICK)  # at the end of its input `select` does not wait
        for order, *seconds in map(str.split, orders):
            if order == "stop" and deadline == math.inf:
                os.kill(child.pid, signal.SIGTERM)
            deadline = min(deadline, time.monotonic() + float(seconds[0] if order == "stop" else 0))
        orders.clear()
    kill_all()
    return 128 + signal.SIGKILL if code is None else code


def kill_all() -> None:
    """SIGKILL for everything below this process, until there is nothing."""
    while family := descendants(os.getpid()):
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
        _reap()  # also those who became ours when their parents went


def descendants(root: int) -> list[int]:
    """Everything below a process, parents before children."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents():
        children.setdefault(parent, []).append(pid)
    family = [root]
    for pid in family:
        family.extend(children.get(pid, []))
    return family[1:]


def _parents() -> Iterator[tuple[int, int]]:
    """Each process with its parent."""
    if sys.platform != "linux":
        ps = subprocess.Popen(["ps", "-axo", "pid=,ppid="], stdout=subprocess.PIPE, text=True)
        listed = [tuple(map(int, line.split())) for line in ps.communicate()[0].splitlines()]
        yield from ((pid, parent) for pid, parent in listed if pid != ps.pid)  # it lists itself, and is gone
        return
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):  # it ended meanwhile
                yield int(folder.name), int((folder / "stat").read_text().rpartition(")")[2].split()[1])


def _reap() -> dict[int, int]:
    """Children that ended, with their exit codes."""
    ended = {}
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            code = os.waitstatus_to_exitcode(status)
            ended[pid] = code if code >= 0 else 128 - code
    return ended


def _read_orders() -> list[str]:
    """Whole lines from standard input (the parent writes a line at once); its end is an order too."""
    if not select.select([0], [], [], _TICK)[0]:
        return []
    return os.read(0, 4096).decode().splitlines() or [f"stop {LAST_PATIENCE}"]


def _die_with_parent() -> None:
    """In the child, before it becomes the command: should the guard itself be killed, it goes too."""
    if _libc:
        _libc.prctl(_DEATH_SIGNAL, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(guard(sys.argv[1:]))
