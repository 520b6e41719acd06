"""Event logs: one JSON object a line, written at once, and readable while somebody writes or after a crash."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

Event = Mapping[str, Any]


def append_event(path: Path, event: str, **facts: Any) -> None:
    """Add a line with the time, in one write."""
    stamp = {"time": round(time.time(), 3), "event": event}
    line = json.dumps({**stamp, **facts, **stamp})  # first to see, and not to be replaced
    with path.open("a+b") as file:
        torn = file.tell() > 0 and _last_byte(file) != b"\n"  # a crash cut the last line short
        file.write(f"{'' if not torn else chr(10)}{line}\n".encode())


def _last_byte(file: BinaryIO) -> bytes:
    file.seek(-1, os.SEEK_END)
    return file.read(1)


class EventReader:
    """Reads a log that grows: each call gives what is new. A last line that is not whole yet waits for its end.

    A line that a crash cut short and another writer went on from is nobody's event, and is left out.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def new(self) -> list[Event]:
        """Events that were written since the last call."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                content = file.read()
        except FileNotFoundError:
            return []
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [event for line in whole.splitlines() if (event := _parsed(line)) is not None]


def read_events(path: Path) -> list[Event]:
    """All whole events of a log; none if there is no log."""
    return EventReader(path).new()


def _parsed(line: bytes) -> Event | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None
