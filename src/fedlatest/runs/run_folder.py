"""A run as a folder: manifest, metrics, who took part, checkpoint, final model.

manifest.json            what was run, with which versions, data, seeds and device; how it ended
metrics.csv              one row per evaluation and seed
labels.csv               test accuracy of every label, where labels are classes
clients.npz              what each client holds, and a picture of who was available when
participation.npz        who took part in each round (while the run goes on: the folder `participation`)
checkpoint.safetensors   everything needed to go on (gone when the run is finished)
model.safetensors        the final model of every seed
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedlatest.errors import ConfigError, RunFolderError
from fedlatest.files import DRAFT, acquire_lock, release_lock, sync, write_text
from fedlatest.runs import clients as who
from fedlatest.runs.array_files import load_arrays, load_metadata, save_arrays
from fedlatest.runs.clients import ClientRecord, Participation, load_clients, save_clients
from fedlatest.runs.metrics import (
    LabelAccuracy,
    LabelRow,
    Metrics,
    Row,
    append_labels,
    append_metrics,
    cut_labels,
    read_labels,
    read_metrics,
    write_metrics,
)

SCHEMA = 1
MANIFEST = "manifest.json"
OWN_FILES = (
    "metrics.csv",
    "labels.csv",
    "clients.npz",
    "participation.npz",
    "checkpoint.safetensors",
    "model.safetensors",
    "figure.png",
    MANIFEST,
)
OWN_FOLDERS = ("participation", "tensorboard")


class RunFolder:
    """One run on disk. A kill at any moment loses at most the work since the last checkpoint."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._pending: list[Participation] = []
        self._taken: int | None = None

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    @property
    def exists(self) -> bool:
        """Whether a run was ever begun here."""
        return (self / MANIFEST).is_file()

    @property
    def manifest(self) -> dict[str, Any]:
        """What was run, and how it ended."""
        return read_manifest(self.path)

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return self.exists and self.manifest["status"] == "finished"

    def begin(self, manifest: Mapping[str, Any], *, resume: bool, force: bool) -> bool:
        """Make the folder ready and take it; true if there is something to resume."""
        text = _as_json({"schema": SCHEMA, "status": "running", **manifest})
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._take()
            if self.exists and not force:
                self._check_same(json.loads(text), resume=resume)
                self._remove_drafts()
                self._note_resumed(json.loads(text))
                return resume
            self.clear()
            write_metrics(self / "metrics.csv", [])
            write_text(self / MANIFEST, text)
        except OSError as error:
            raise RunFolderError(
                f"{self.path}: cannot hold a run ({error.strerror or error}); choose another --out"
            ) from error
        return False

    def clear(self) -> None:
        """Remove what a run put here, and nothing else; the manifest goes last, so that a kill can be repeated."""
        own = {*OWN_FILES, *OWN_FOLDERS} if self.exists else {"metrics.csv"}  # written before the first manifest
        strangers = [path for path in self.path.glob("*") if path.name not in own and path.suffix != DRAFT]
        if strangers and not self.exists:
            raise RunFolderError(f"{self.path}: is not empty and holds no run; choose another --out")
        for name in OWN_FOLDERS:
            shutil.rmtree(self / name, ignore_errors=True)
        for name in OWN_FILES:
            (self / name).unlink(missing_ok=True)
        self._remove_drafts()

    def empty(self) -> None:
        """Remove the run that is here, if there is one, unless a process is at work in it."""
        if not self.exists:
            return
        try:
            self._take()
            self.clear()
        except OSError as error:
            raise RunFolderError(f"{self.path}: cannot be emptied ({error.strerror or error})") from error
        finally:
            self.release()

    def release(self) -> None:
        """Let another process have the folder."""
        release_lock(self._taken)
        self._taken = None

    def record(self, rows: list[Row]) -> None:
        """Append an evaluation to metrics.csv."""
        append_metrics(self / "metrics.csv", rows)

    def record_labels(self, rows: list[LabelRow]) -> None:
        """Append an evaluation to labels.csv."""
        append_labels(self / "labels.csv", rows)

    def describe(self, clients: ClientRecord) -> None:
        """Keep who the clients are."""
        save_clients(self / "clients.npz", clients)

    def note_cohorts(self, cohorts: Participation) -> None:
        """Keep who took part in a block of rounds, until the next checkpoint writes it."""
        self._pending.append(cohorts)

    def checkpoint(self, arrays: Mapping[str, Any], *, round: int, seconds: float) -> None:
        """Save everything needed to go on from `round`; the participation part is written first."""
        self._write_pending(round)
        for name in ("metrics.csv", "labels.csv"):
            if (self / name).is_file():
                sync(self / name)
        save_arrays(self / "checkpoint.safetensors", arrays, {"round": str(round), "seconds": repr(seconds)})

    def restore(self) -> tuple[dict[str, Any], int, float] | None:
        """The last checkpoint as (arrays, round, seconds), and the records cut back to it; None if there is none."""
        path = self / "checkpoint.safetensors"
        arrays, round, seconds = None, 0, 0.0
        if path.is_file():
            arrays, metadata = load_arrays(path)
            round, seconds = int(metadata["round"]), float(metadata["seconds"])
        kept = [row for row in read_metrics(self / "metrics.csv").rows if arrays is not None and row.round <= round]
        write_metrics(self / "metrics.csv", kept)
        if (self / "labels.csv").is_file():
            cut_labels(self / "labels.csv", last_round=-1 if arrays is None else round)
        for part in self._parts():
            if arrays is None or int(part.stem.split("-")[1]) > round:
                part.unlink()
        return None if arrays is None else (arrays, round, seconds)

    @property
    def rounds_done(self) -> int:
        """How many rounds the last checkpoint holds."""
        path = self / "checkpoint.safetensors"
        return int(load_metadata(path)["round"]) if path.is_file() else 0

    def give_up(self, message: str, *, round: int, facts: Mapping[str, Any] | None = None) -> None:
        """Note that training came to nothing; the run is not to be resumed."""
        ended = {"status": "diverged", "diverged": message, "rounds_done": round}
        write_text(self / MANIFEST, _as_json({**self.manifest, **ended, **(facts or {})}))

    def finish(self, params: Mapping[str, Any], *, round: int, facts: Mapping[str, Any]) -> None:
        """Save the final models, put the participation together, and mark the run finished."""
        self._write_pending(round)
        who.save(self / "participation.npz", who.join([who.load(part) for part in self._parts()]))
        manifest = self.manifest
        save_arrays(self / "model.safetensors", params, {"config": json.dumps(manifest["config"])})
        text = _as_json({**manifest, "status": "finished", **facts})
        write_text(self / MANIFEST, text)
        self.tidy()

    def tidy(self) -> None:
        """Remove what a finished run needs no more."""
        (self / "checkpoint.safetensors").unlink(missing_ok=True)
        shutil.rmtree(self / "participation", ignore_errors=True)
        self._remove_drafts()

    def metrics(self) -> Metrics:
        """All rows so far."""
        return read_metrics(self / "metrics.csv")

    def participation(self) -> Participation:
        """Who took part in each round of a finished run."""
        return who.load(self / "participation.npz")

    def labels(self) -> LabelAccuracy | None:
        """Test accuracy per label over time; None where labels are not classes."""
        path = self / "labels.csv"
        return read_labels(path) if path.is_file() else None

    def clients(self) -> ClientRecord | None:
        """Who the clients are and when they were available; None for a run that did not note it."""
        path = self / "clients.npz"
        return load_clients(path) if path.is_file() else None

    def _check_same(self, manifest: Mapping[str, Any], *, resume: bool) -> None:
        there = self.manifest
        for part in ("config", "seeds", "data"):
            if there.get(part) != manifest[part]:
                difference = _first_difference(part, there.get(part), manifest[part])
                raise RunFolderError(
                    f"{self.path}: holds a run of another configuration ({difference}); "
                    "choose another --out, or --force to replace it"
                )
        if not resume:
            self.refuse()

    def refuse(self) -> None:
        """Say that a run is in the way."""
        state = "a finished run" if self.finished else "an unfinished run"
        raise RunFolderError(f"{self.path}: holds {state}; add --resume to go on with it or --force to replace it")

    def _parts(self) -> list[Path]:
        return sorted((self / "participation").glob("*.npz"))

    def _write_pending(self, round: int) -> None:
        if not self._pending:
            return
        try:
            (self / "participation").mkdir(exist_ok=True)
        except OSError as error:
            raise RunFolderError(f"{self.path}: cannot be written to ({error.strerror})") from error
        joined = who.join(self._pending)
        who.save(self / f"participation/{round - joined.num_rounds:09d}-{round:09d}.npz", joined)
        self._pending = []

    def _note_resumed(self, now: Mapping[str, Any]) -> None:
        """A run that goes on elsewhere, or with other versions, says so: bit-identity is promised on one device."""
        there = self.manifest
        place = {part: now[part] for part in ("device", "versions") if now.get(part) != there.get(part)}
        if place and there["status"] != "finished":
            text = _as_json({**there, "resumed_with": [*there.get("resumed_with", []), place]})
            write_text(self / MANIFEST, text)

    def _take(self) -> None:
        """Two processes in one folder would write over each other."""
        if self._taken is not None:
            return
        try:
            self._taken = acquire_lock(self.path)
        except BlockingIOError:
            raise RunFolderError(f"{self.path}: another process is running here; wait for it or stop it") from None

    def _remove_drafts(self) -> None:
        for draft in self.path.glob(f".*{DRAFT}"):
            draft.unlink(missing_ok=True)


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a run folder."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunFolderError(f"{path}: is not a run folder (it holds no {MANIFEST})") from None
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{path / MANIFEST}: cannot be read ({error})") from error
    if not isinstance(manifest, dict):
        raise RunFolderError(f"{path / MANIFEST}: is not a manifest")
    if manifest.get("schema") != SCHEMA:
        raise RunFolderError(f"{path}: has schema {manifest.get('schema')}, this version reads schema {SCHEMA}")
    missing = [name for name in ("status", "config", "seeds") if name not in manifest]
    if missing:
        raise RunFolderError(f"{path / MANIFEST}: is damaged (it lacks {missing[0]})")
    return dict(manifest)


def find_runs(path: Path) -> list[Path]:
    """The run folders at `path`: itself, those in it, or that of a deployment's job."""
    if (path / MANIFEST).is_file():
        return [path]
    found = sorted(manifest.parent for place in ("*", "job/run") for manifest in path.glob(f"{place}/{MANIFEST}"))
    if not found:
        raise RunFolderError(f"{path}: holds no run (no {MANIFEST} in it or in a folder of it)")
    return found


def _as_json(manifest: Mapping[str, Any]) -> str:
    try:
        return json.dumps(manifest, indent=2) + "\n"
    except TypeError as error:
        raise ConfigError(f"config: only numbers, texts, lists and dicts can be stored with a run ({error})") from None


def _first_difference(name: str, there: Any, here: Any) -> str:
    """Which key differs, however deep, and how."""
    if isinstance(there, dict) and isinstance(here, dict):
        for key in [*there, *here]:
            if there.get(key) != here.get(key):
                return _first_difference(key, there.get(key), here.get(key))
    return f"{name} was {there!r}, now {here!r}"
