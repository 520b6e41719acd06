"""A database connection and a client's storage that crash at a chosen write, before or after it takes effect."""

import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any


class CrashError(BaseException):
    """Simulates the death of the process; the code under test must not catch it."""


class CrashTrigger:
    """Counts writes and selects the one that crashes."""

    def __init__(self) -> None:
        self.remaining: int | None = None
        self.after = False

    def arm(self, writes: int, *, after: bool) -> None:
        """Crash at write number `writes` from now, counted from 0: before it takes effect, or after."""
        self.remaining, self.after = writes, after

    def disarm(self) -> None:
        self.remaining = None

    def count_write(self) -> bool:
        """Count one write and return whether it crashes."""
        if self.remaining is None:
            return False
        self.remaining -= 1
        if self.remaining >= 0:
            return False
        self.remaining = None
        return True


class FaultyConnection(sqlite3.Connection):
    """A connection that crashes at a chosen statement; SQLite rolls back when the file is reopened."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.trigger = CrashTrigger()
        self.crashes: Counter[str] = Counter()

    def execute(self, statement: str, values: Any = ()) -> sqlite3.Cursor:
        return self._run(super().execute, statement, values)

    def executemany(self, statement: str, values: Any) -> sqlite3.Cursor:
        return self._run(super().executemany, statement, values)

    def _run(self, run: Callable[[str, Any], sqlite3.Cursor], statement: str, values: Any) -> sqlite3.Cursor:
        word = statement.lstrip()[:6].rstrip()
        if word in ("SELECT", "PRAGMA", "ROLLBA") or not self.trigger.count_write():
            return run(statement, values)
        when = "after" if self.trigger.after else "before"
        self.crashes[f"server crashes {when} {word}"] += 1
        if self.trigger.after:
            run(statement, values)
        raise CrashError


class FaultyStorage:
    """A client's storage in memory that crashes at a chosen write."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.trigger = CrashTrigger()
        self.crashes: Counter[str] = Counter()

    def get(self, name: str) -> bytes | None:
        return self.files.get(name)

    def put(self, name: str, content: bytes | memoryview) -> None:
        crashes = self.trigger.count_write()
        what = "state" if name.endswith("state.json") else "update"
        if not crashes or self.trigger.after:
            self.files[name] = bytes(content)
        if crashes:
            self._crash(f"writing {what}")

    def delete(self, name: str) -> None:
        crashes = self.trigger.count_write()
        if not crashes or self.trigger.after:
            self.files.pop(name, None)
        if crashes:
            self._crash("deleting")

    def names(self, folder: str) -> list[str]:
        return sorted(name for name in self.files if name.startswith(f"{folder}/"))

    def folders(self) -> list[str]:
        return sorted({name.partition("/")[0] for name in self.files if "/" in name})

    def lock(self) -> AbstractContextManager[None]:
        return nullcontext()

    def _crash(self, action: str) -> None:
        self.crashes[f"client crashes {'after' if self.trigger.after else 'before'} {action}"] += 1
        raise CrashError
