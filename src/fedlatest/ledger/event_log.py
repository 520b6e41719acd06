"""The event log of a job or a deployment: one JSON object per line, appended while others read it."""

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, BinaryIO

Event = Mapping[str, Any]
MAX_BYTES = 16 * 2**20  # of a log that is rotated
NUM_ROTATED = 4  # older files that are kept


def append_event(path: Path, event: str, **facts: Any) -> None:
    """Append an event with the current time to an event log, in one write.

    Args:
        path: the log; only the current user may read it.
        event: name of the event.
        facts: further entries. Numbers that are not finite become null.
    """
    append_lines(path, [event_line(event, **facts)])


def event_line(event: str, **facts: Any) -> str:
    """Return the line of an event with the current time."""
    stamp = {"time": round(time.time(), 3), "event": event}
    return json.dumps(_finite({**stamp, **facts, **stamp}), allow_nan=False)  # facts cannot replace the stamp


def append_lines(path: Path, lines: Sequence[str], *, rotate: bool = False) -> None:
    """Append lines to an event log in one write.

    Args:
        path: the log; only the current user may read it.
        lines: lines of `event_line`.
        rotate: rename a log of more than `MAX_BYTES` to NAME.1.jsonl first, and so on up to `NUM_ROTATED`.
    """
    if rotate and path.exists() and path.stat().st_size > MAX_BYTES:
        _rotate(path)
    with os.fdopen(os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600), "a+b") as file:
        is_torn = file.seek(0, os.SEEK_END) > 0 and _last_byte(file) != b"\n"  # a crash truncated the last line
        file.write("\n".join([*([""] if is_torn else []), *lines, ""]).encode())


class EventReader:
    """Reads an event log while it grows, and the rotated files before it.

    An incomplete last line is returned by a later call, when it is complete. Lines that a crash truncated are skipped.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None  # the inode of the file that was read last
        self._offset = 0

    def new(self) -> list[Event]:
        """Return the events that were written since the last call."""
        events: list[Event] = []
        with ExitStack() as stack:
            files = self._open_files(stack)
            inodes = list(files)
            for inode in inodes[inodes.index(self._file) if self._file in files else 0 :]:
                if inode != self._file or os.fstat(files[inode].fileno()).st_size < self._offset:
                    self._file, self._offset = inode, 0
                files[inode].seek(self._offset)
                content = files[inode].read()
                complete = content[: content.rfind(b"\n") + 1]
                self._offset += len(complete)
                events += [event for line in complete.splitlines() if (event := _parse(line)) is not None]
        return events

    def _open_files(self, stack: ExitStack) -> dict[int, BinaryIO]:
        """Open the log and its rotated files and return them by inode, oldest first.

        They are opened from the newest to the oldest: if the log is rotated meanwhile, a file is found twice, but none
        is missed.
        """
        found: dict[int, BinaryIO] = {}
        for number in range(NUM_ROTATED + 1):
            with suppress(FileNotFoundError):  # not created yet, or rotated at this moment
                file = stack.enter_context((rotated_name(self.path, number) if number else self.path).open("rb"))
                found.setdefault(os.fstat(file.fileno()).st_ino, file)
        return dict(reversed(found.items()))


def read_events(path: Path) -> list[Event]:
    """Return all complete events of a log and of its rotated files; an empty list if there is no log."""
    return EventReader(path).new()


def rotated_name(path: Path, number: int) -> Path:
    """Return the name of a rotated log; 1 is the newest.

    >>> rotated_name(Path("events.jsonl"), 1).name
    'events.1.jsonl'
    """
    return path.with_name(f"{path.stem}.{number}{path.suffix}")


def _rotate(path: Path) -> None:
    for number in range(NUM_ROTATED, 0, -1):
        source = rotated_name(path, number - 1) if number > 1 else path
        if source.exists():
            source.replace(rotated_name(path, number))


def _finite(fact: Any) -> Any:
    """Replace numbers that are not finite, which JSON cannot represent, by None."""
    if isinstance(fact, float) and not math.isfinite(fact):
        return None
    if isinstance(fact, Mapping):
        return {name: _finite(value) for name, value in fact.items()}
    return [_finite(value) for value in fact] if isinstance(fact, list | tuple) else fact


def _last_byte(file: BinaryIO) -> bytes:
    file.seek(-1, os.SEEK_END)
    return file.read(1)


def _parse(line: bytes) -> Event | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None
