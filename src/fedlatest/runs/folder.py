"""A run as a folder: manifest, metrics, who took part, checkpoint, final model.

manifest.json            what was run, with which versions, data, seeds and device; how it ended
metrics.csv              one row per evaluation and seed
participation.npz        who took part in each round (while the run goes on: the folder `participation`)
checkpoint.safetensors   everything needed to go on (gone when the run is finished)
model.safetensors        the final model of every seed
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedlatest.errors import RunFolderError
from fedlatest.runs import participation as who
from fedlatest.runs.files import load_tree, save_tree, write_atomically
from fedlatest.runs.metrics import Metrics, Row, append_metrics, read_metrics, write_metrics
from fedlatest.runs.participation import Participation

SCHEMA = 1
MANIFEST = "manifest.json"
OWN_FILES = (
    MANIFEST,
    "metrics.csv",
    "participation.npz",
    "checkpoint.safetensors",
    "model.safetensors",
    "figure.png",
)
OWN_FOLDERS = ("participation", "tensorboard")


class RunFolder:
    """One run on disk. A kill at any moment loses at most the work since the last checkpoint."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pending: list[Participation] = []

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
        """Make the folder ready; true if there is something to resume."""
        if self.exists and not force:
            self._check_same(manifest, resume=resume)
            return resume
        if not self.exists and self.path.is_dir() and any(self.path.iterdir()):
            raise RunFolderError(f"{self.path}: is not empty and holds no run; choose another --out")
        self._clear()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunFolderError(f"{self.path}: cannot be made ({error.strerror}); choose another --out") from error
        self._write_manifest({"schema": SCHEMA, "status": "running", **manifest})
        write_metrics(self / "metrics.csv", [])
        return False

    def record(self, rows: list[Row]) -> None:
        """Append an evaluation to metrics.csv."""
        append_metrics(self / "metrics.csv", rows)

    def note_cohorts(self, cohorts: Participation) -> None:
        """Keep who took part in a block of rounds, until the next checkpoint writes it."""
        self._pending.append(cohorts)

    def checkpoint(self, state: Any, *, round: int, seconds: float) -> None:
        """Save everything needed to go on from `round`; the participation part is written first."""
        self._write_pending(round)
        save_tree(self / "checkpoint.safetensors", state, {"round": str(round), "seconds": repr(seconds)})

    def restore(self, like: Any) -> tuple[Any, int, float] | None:
        """The last checkpoint as (state, round, seconds), and the records cut back to it; None if there is none."""
        path = self / "checkpoint.safetensors"
        state, round, seconds = None, 0, 0.0
        if path.is_file():
            state, metadata = load_tree(path, like)
            round, seconds = int(metadata["round"]), float(metadata["seconds"])
        kept = [row for row in read_metrics(self / "metrics.csv").rows if state is not None and row.round <= round]
        write_metrics(self / "metrics.csv", kept)
        for part in self._parts():
            if state is None or int(part.stem.split("-")[1]) > round:
                part.unlink()
        return None if state is None else (state, round, seconds)

    def finish(self, params: Any, *, round: int, facts: Mapping[str, Any]) -> None:
        """Save the final models, put the participation together, and mark the run finished."""
        self._write_pending(round)
        who.save(self / "participation.npz", who.join([who.load(part) for part in self._parts()]))
        manifest = self.manifest
        save_tree(self / "model.safetensors", params, {"config": json.dumps(manifest["config"])})
        self._write_manifest({**manifest, "status": "finished", **facts})
        (self / "checkpoint.safetensors").unlink(missing_ok=True)
        shutil.rmtree(self / "participation", ignore_errors=True)

    def metrics(self) -> Metrics:
        """All rows so far."""
        return read_metrics(self / "metrics.csv")

    def participation(self) -> Participation:
        """Who took part in each round of a finished run."""
        return who.load(self / "participation.npz")

    def _check_same(self, manifest: Mapping[str, Any], *, resume: bool) -> None:
        there = self.manifest
        for part in ("config", "seeds", "data"):
            if there.get(part) != json.loads(json.dumps(manifest[part])):
                detail = _first_difference(there.get(part), manifest[part])
                raise RunFolderError(
                    f"{self.path}: holds a run of another configuration ({part}: {detail}); "
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
        (self / "participation").mkdir(exist_ok=True)
        joined = who.join(self._pending)
        who.save(self / f"participation/{round - joined.num_rounds:09d}-{round:09d}.npz", joined)
        self._pending = []

    def _write_manifest(self, manifest: Mapping[str, Any]) -> None:
        text = json.dumps(manifest, indent=2) + "\n"

        def write(draft: Path) -> None:
            draft.write_text(text, encoding="utf-8")

        write_atomically(self / MANIFEST, write)

    def _clear(self) -> None:
        """Remove what a run put here, and nothing else."""
        for name in OWN_FILES:
            (self / name).unlink(missing_ok=True)
        for name in OWN_FOLDERS:
            shutil.rmtree(self / name, ignore_errors=True)


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a run folder."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunFolderError(f"{path}: is not a run folder (it holds no {MANIFEST})") from None
    except (OSError, json.JSONDecodeError) as error:
        raise RunFolderError(f"{path / MANIFEST}: cannot be read ({error})") from error
    if manifest.get("schema") != SCHEMA:
        raise RunFolderError(f"{path}: has schema {manifest.get('schema')}, this version reads schema {SCHEMA}")
    return dict(manifest)


def find_runs(path: Path) -> list[Path]:
    """The run folders at `path`: itself, or those in it."""
    if (path / MANIFEST).is_file():
        return [path]
    found = sorted(manifest.parent for manifest in path.glob(f"*/{MANIFEST}"))
    if not found:
        raise RunFolderError(f"{path}: holds no run (no {MANIFEST} in it or in a folder of it)")
    return found


def _first_difference(there: Any, here: Any) -> str:
    if isinstance(there, dict) and isinstance(here, dict):
        for key in [*there, *here]:
            if there.get(key) != here.get(key):
                return f"{key} was {there.get(key)!r}, now {here.get(key)!r}"
    return f"was {there!r}, now {here!r}"
