"""A program that runs a command and ends everything that the command has started.

Usage: `python process_guard.py COMMAND ...`. `process.py` starts one guard for each SuperLink, node and run.

Flower starts further processes, some of them in new sessions, so neither a process group nor a session contains all of
them. On Linux the guard is a "child subreaper": descendants that lose their parent become its children, so it always
finds the whole tree.

The guard reads requests from standard input, one per line: `kill` (SIGKILL to all) and `stop SECONDS` (SIGTERM to the
command, and after that time SIGKILL to what is left). The end of its input is a `stop`; this is also what the guard
sees when its parent dies, even by kill -9. If the guard itself is killed, the command is killed too on Linux, but
processes that the command started may remain.

It imports only the standard library, because it has to start within milliseconds.
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

ORPHAN_TIMEOUT = 3.0  # seconds between SIGTERM and SIGKILL when the guard's parent has ended
_TICK = 0.05
_SUBREAPER, _DEATH_SIGNAL = 36, 1  # prctl's PR_SET_CHILD_SUBREAPER and PR_SET_PDEATHSIG
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def guard(command: list[str]) -> int:
    """Run the command until it ends or is stopped; return its exit code, or 128 + the signal that ended it."""
    parent = os.getppid()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the parent decides what Ctrl-C does
    if _libc:
        _libc.prctl(_SUBREAPER, 1)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_die_with_parent)
    requests: list[str] = []
    signal.signal(signal.SIGTERM, lambda *_: requests.append(f"stop {ORPHAN_TIMEOUT}"))
    deadline = math.inf
    while (code := _reap().get(child.pid)) is None and time.monotonic() < deadline:
        requests += _read_requests() if os.getppid() == parent else [f"stop {ORPHAN_TIMEOUT}"]
        if deadline < math.inf:
            time.sleep(_TICK)  # `select` does not wait at the end of the input
        for request, *seconds in map(str.split, requests):
            if request == "stop" and deadline == math.inf:
                os.kill(child.pid, signal.SIGTERM)
            deadline = min(deadline, time.monotonic() + float(seconds[0] if request == "stop" else 0))
        requests.clear()
    kill_all()
    return 128 + signal.SIGKILL if code is None else code


def kill_all() -> None:
    """Send SIGKILL to all descendants of this process until there are none."""
    while found := descendants(os.getpid()):
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
        _reap()  # including those that became our children when their parents ended


def descendants(root: int) -> list[int]:
    """Return the ids of all descendants of a process, parents before children."""
    return descendants_of([root])[0]


def descendants_of(roots: list[int]) -> list[list[int]]:
    """Return the ids of all descendants of each of several processes, parents before children."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents():
        children.setdefault(parent, []).append(pid)
    trees = [[root] for root in roots]
    for tree in trees:
        for pid in tree:
            tree.extend(children.get(pid, []))
    return [tree[1:] for tree in trees]


def program(pid: int) -> str:
    """Return the name of the program that a process runs, that of the script for Python; empty if it has ended."""
    try:
        if sys.platform == "linux":
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
        else:
            words = subprocess.check_output(["ps", "-p", str(pid), "-o", "command="], text=True).split()
    except (OSError, subprocess.CalledProcessError):
        return ""
    names = [word.rpartition("/")[2] for word in words if not word.startswith("-")]
    return names[1] if len(names) > 1 and names[0].lower().startswith("python") else "".join(names[:1])


def _parents() -> Iterator[tuple[int, int]]:
    """Yield the id of each process with that of its parent."""
    if sys.platform != "linux":
        ps = subprocess.Popen(["ps", "-axo", "pid=,ppid="], stdout=subprocess.PIPE, text=True)
        listed = [tuple(map(int, line.split())) for line in ps.communicate()[0].splitlines()]
        yield from ((pid, parent) for pid, parent in listed if pid != ps.pid)  # ps lists itself, but has ended
        return
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):  # it has ended in the meantime
                yield int(folder.name), int((folder / "stat").read_text().rpartition(")")[2].split()[1])


def _reap() -> dict[int, int]:
    """Return the children that have ended, with their exit codes."""
    ended = {}
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            code = os.waitstatus_to_exitcode(status)
            ended[pid] = code if code >= 0 else 128 - code
    return ended


def _read_requests() -> list[str]:
    """Read requests from standard input, whose end is a `stop`. The parent writes each line at once."""
    if not select.select([0], [], [], _TICK)[0]:
        return []
    return os.read(0, 4096).decode().splitlines() or [f"stop {ORPHAN_TIMEOUT}"]


def _die_with_parent() -> None:
    """Let the kernel kill the command if the guard is killed; called in the child before it executes the command."""
    if _libc:
        _libc.prctl(_DEATH_SIGNAL, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(guard(sys.argv[1:]))
