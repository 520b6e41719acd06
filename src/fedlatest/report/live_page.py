"""The report of folders in which runs are still going on, computed again when their files change."""

import json
from collections.abc import Callable, Sequence
from hashlib import sha256
from html import escape
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from fedlatest.errors import RunFolderError
from fedlatest.report.page import PageParts, embed, make_parts, render
from fedlatest.report.page_data import Json, run_data
from fedlatest.report.run_labels import listed
from fedlatest.report.run_records import RunRecord, read_runs
from fedlatest.runs import find_runs

WATCHED = ("manifest.json", "metrics.csv", "labels.csv", "clients.npz", "participation.npz")
WAITING = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="2">'
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'"><title>{title}</title></head>'
    "<body><h1>{title}</h1><p>{text}</p></body></html>"
)

Signature = tuple[Any, ...]


class _Cached(NamedTuple):
    signature: Signature
    record: RunRecord
    content: Json


class LivePage:
    """The page about the runs in some folders; each run is read again only if its files have changed.

    Args:
        folders: Run folders, folders of run folders, or folders of deployments; runs may appear in them later.
        title: Title of the page.
        note: Returns a sentence about the state of what is watched, which is shown beside the title.
    """

    def __init__(self, folders: Sequence[Path], *, title: str, note: Callable[[], str] = lambda: "") -> None:
        self.folders, self.title, self._note = list(folders), title, note
        self._cache: dict[Path, _Cached] = {}
        self._signature: Signature | None = None
        self._parts: PageParts | None = None
        self._lock = Lock()

    def as_html(self) -> str:
        """Return the whole page; a page that says so if no run has been evaluated yet."""
        with self._lock:
            version, note = self._update()
            if self._parts is None:
                folders = listed(list(map(str, self.folders)))
                text = f"No run in {folders} has been evaluated yet. This page waits for one."
                return WAITING.format(title=escape(self.title), text=escape(" ".join(filter(None, (text, note)))))
            status = " · ".join(filter(None, (self._state, note)))
            return render(self._parts, title=self.title, live=version, status=status)

    def as_json(self, version: str) -> str | None:
        """Return the parts of the page if they are not those of `version`, and None if they are."""
        with self._lock:
            current, note = self._update()
            if current == version or self._parts is None:
                return None
            parts = {name: part for name, part in self._parts._asdict().items() if name != "data"}
            about = {"version": current, "state": self._state, "note": note}
            return embed({**about, "parts": parts, "data": self._parts.data})

    @property
    def _state(self) -> str:
        """`live` while a run goes on; otherwise that all runs are finished or have diverged."""
        goes_on = any(cached.record.manifest.get("status") == "running" for cached in self._cache.values())
        return "live" if goes_on else "all runs finished"

    def _update(self) -> tuple[str, str]:
        """Read what has changed; return the version of the content and the note."""
        runs = list(dict.fromkeys(run for folder in self.folders for run in _runs_in(folder)))
        signature = tuple((str(run), *_signature(run)) for run in runs)
        if signature != self._signature:
            self._cache = {run: cached for run in runs if (cached := self._read(run)) is not None}
            found = list(self._cache.values())
            contents = [cached.content for cached in found]
            self._parts = make_parts([cached.record for cached in found], contents=contents) if found else None
            self._signature = signature
        note = self._note()
        version = sha256(json.dumps([signature, note]).encode()).hexdigest()[:16]
        return version, note

    def _read(self, run: Path) -> _Cached | None:
        """Return a run; what was read before if it cannot be read at this moment, None if it never could."""
        signature, cached = _signature(run), self._cache.get(run)
        if cached is not None and cached.signature == signature:
            return cached
        try:
            [record] = read_runs([run])
            return _Cached(signature, record, run_data(record))
        except (RunFolderError, OSError):  # not evaluated yet, or being replaced
            return cached


def _runs_in(folder: Path) -> list[Path]:
    try:
        return find_runs(folder)
    except RunFolderError:  # none yet
        return []


def _signature(run: Path) -> Signature:
    """Return what changes when a file of a run changes."""
    found: list[Any] = []
    for name in WATCHED:
        try:
            about = (run / name).stat()
            found.append([about.st_mtime_ns, about.st_size, about.st_ino])
        except OSError:
            found.append(None)
    return tuple(found)
