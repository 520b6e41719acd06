"""Finds processes that are still running, by a mark in their environment, which descendants inherit."""

import socket
import time
from contextlib import suppress
from pathlib import Path

MARK = "FEDLATEST_TEST_MARK"


def marked(mark: str) -> list[str]:
    """Return the command lines of running processes with this mark."""
    found = []
    for pid in _marked_pids(mark):
        with suppress(OSError):  # it has ended
            found.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def _marked_pids(mark: str) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(OSError):  # it has ended, or belongs to another user
            if f"{MARK}={mark}".encode() not in (folder / "environ").read_bytes().split(b"\0"):
                continue
            if (folder / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.append(int(folder.name))
    return found


def wait_until_none(mark: str, *, timeout: float) -> list[str]:
    """Wait until no process has this mark; return those that still have it after the timeout."""
    deadline = time.monotonic() + timeout
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def listening_addresses(mark: str) -> list[str]:
    """Return the addresses, as HOST:PORT, on which processes with this mark listen for TCP connections."""
    inodes = {
        target[len("socket:[") : -1]
        for pid in _marked_pids(mark)
        for target in _targets(Path(f"/proc/{pid}/fd"))
        if target.startswith("socket:[")
    }
    found = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:  # the state LISTEN
                host, port = fields[1].split(":")
                words = [bytes.fromhex(host[begin : begin + 8])[::-1] for begin in range(0, len(host), 8)]
                found.add(f"{socket.inet_ntop(family, b''.join(words))}:{int(port, 16)}")
    return sorted(found)


def _targets(folder: Path) -> list[str]:
    targets = []
    with suppress(OSError):  # the process has ended
        for path in folder.iterdir():
            with suppress(OSError):  # the file was closed
                targets.append(str(path.readlink()))
    return targets
