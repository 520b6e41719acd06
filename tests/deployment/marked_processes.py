"""Finds processes that are still running, by a mark in their environment, which descendants inherit."""

import time
from pathlib import Path

MARK = "FEDLATEST_TEST_MARK"


def marked(mark: str) -> list[str]:
    """Return the command lines of running processes with this mark."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if f"{MARK}={mark}".encode() not in (folder / "environ").read_bytes().split(b"\0"):
                continue
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z":
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:  # it has ended, or belongs to another user
            continue
    return found


def wait_until_none(mark: str, *, timeout: float) -> list[str]:
    """Wait until no process has this mark; return those that still have it after the timeout."""
    deadline = time.monotonic() + timeout
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left
