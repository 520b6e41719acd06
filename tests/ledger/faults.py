"""Places to write to that fail when told to: a database and a disk, before or after the write took effect."""

import sqlite3
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from typing import Any


class CrashError(BaseException):
    """The process dies here; nothing may catch it."""


class Fuse:
    """Counts writes and, when set, raises at a chosen one."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.after = False

    def set(self, writes: int, *, after: bool) -> None:
        """Fail at the write number `writes` from now, counted from 0."""
        self.left, self.after = writes, after

    def put_out(self) -> None:
        self.left = None

    def burn(self) -> bool:
        """One write; whether this is the one that fails."""
        if self.left is None:
            return False
        self.left -= 1
        if self.left >= 0:
            return False
        self.left = None
        return True


class FlakyConnection(sqlite3.Connection):
    """A connection that dies at a chosen statement; what it had begun is rolled back, as SQLite does when reopened."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fuse = Fuse()
        self.deaths: Counter[str] = Counter()

    def execute(self, statement: str, values: Any = ()) -> sqlite3.Cursor:
        word = statement.lstrip()[:6].rstrip()
        if word in ("SELECT", "PRAGMA", "ROLLBA") or not self.fuse.burn():
            return super().execute(statement, values)
        when = "after" if self.fuse.after else "before"
        self.deaths[f"server dies {when} {word}"] += 1
        if self.fuse.after:
            super().execute(statement, values)
        raise CrashError


class FlakyDisk:
    """A disk in memory that dies at a chosen write."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.fuse = Fuse()
        self.deaths: Counter[str] = Counter()

    def get(self, name: str) -> bytes | None:
        return self.files.get(name)

    def put(self, name: str, content: bytes) -> None:
        dies = self.fuse.burn()
        what = "state" if name.endswith("state.json") else "value"
        if not dies or self.fuse.after:
            self.files[name] = content
        if dies:
            self._die(f"put {what}")

    def drop(self, name: str) -> None:
        dies = self.fuse.burn()
        if not dies or self.fuse.after:
            self.files.pop(name, None)
        if dies:
            self._die("drop")

    def names(self, folder: str) -> list[str]:
        return sorted(name for name in self.files if name.startswith(f"{folder}/"))

    def lock(self) -> AbstractContextManager[None]:
        return nullcontext()

    def _die(self, doing: str) -> None:
        self.deaths[f"client dies {'after' if self.fuse.after else 'before'} {doing}"] += 1
        raise CrashError
