"""Finding processes that outlived their federation: by a mark in their environment, which all of them inherit."""

import time
from pathlib import Path

MARK = "FEDLATEST_TEST_MARK"


def marked(mark: str) -> list[str]:
    """Command lines of living processes with this mark (their own parent, the test, does not bear it)."""
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
        except OSError:  # it ended meanwhile, or is not ours
            continue
    return found


def wait_until_none(mark: str, *, seconds: float) -> list[str]:
    """What is left with this mark after so many seconds; looks until there is nothing."""
    deadline = time.monotonic() + seconds
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left
