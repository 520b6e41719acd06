"""The folder of one run.

manifest.json            configuration, seeds, checksums of the data, device, versions; status and results at the end
metrics.csv              one row per evaluation and seed
labels.csv               test accuracy of every label, if labels are classes
clients.npz              the clients' labels and sizes, and a picture of their availability
participation.npz        the cohort of every round (in an unfinished run: the folder `participation`)
checkpoint.safetensors   the state needed to resume (removed when the run is finished)
model.safetensors        the final model of every seed

A simulation, which keeps its state in the folder, calls `begin`, `checkpoint`, `restore` and `finish`. A deployment,
which keeps its state in a ledger, calls `rewrite` and `save_results`.
"""

import json
import platform
import shutil
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedlatest.errors import ConfigError, RunFolderError, RunFolderInUseError
from fedlatest.files import DRAFT, acquire_lock, release_lock, sync, write_text
from fedlatest.runs.array_files import ArrayFile, save_arrays
from fedlatest.runs.clients import (
    ClientRecord,
    Participation,
    join,
    load_clients,
    load_participation,
    save_clients,
    save_participation,
)
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
from fedlatest.version import __version__

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
    "sleep.png",
    MANIFEST,
)
OWN_FOLDERS = ("participation", "tensorboard", "mlflow", "wandb")


class RunFolder:
    """One run on disk. If the process is killed, at most the work since the last checkpoint is lost."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._pending: list[Participation] = []
        self._lock: int | None = None

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    @property
    def exists(self) -> bool:
        """Whether the folder contains a run, finished or not."""
        return (self / MANIFEST).is_file()

    @property
    def manifest(self) -> dict[str, Any]:
        """The content of manifest.json."""
        return read_manifest(self.path)

    @property
    def finished(self) -> bool:
        """Whether the folder contains a finished run."""
        return self.exists and self.manifest["status"] == "finished"

    @property
    def rounds_done(self) -> int:
        """Number of rounds up to the last checkpoint."""
        found = self._read_checkpoint(check=False)
        return 0 if found is None else found[1]

    def metrics(self) -> Metrics:
        """Return all rows of metrics.csv."""
        return read_metrics(self / "metrics.csv")

    def participation(self) -> Participation:
        """Return the cohorts of a finished run."""
        return load_participation(self / "participation.npz")

    def labels(self) -> LabelAccuracy | None:
        """Return the test accuracy per label over time, or None if labels are not classes."""
        path = self / "labels.csv"
        return read_labels(path) if path.is_file() else None

    def clients(self) -> ClientRecord | None:
        """Return the clients and their availability, or None for a run that did not record them."""
        path = self / "clients.npz"
        return load_clients(path) if path.is_file() else None

    def begin(self, manifest: Mapping[str, Any], *, resume: bool, force: bool) -> bool:
        """Create or reopen the folder and lock it for this process.

        Args:
            manifest: `config`, `seeds` and `data`, which identify the run, and further entries.
            resume: Accept an existing run with the same `config`, `seeds` and `data`.
            force: Remove an existing run.

        Returns:
            True if there is a run to resume.

        Raises:
            RunFolderError: If the folder contains another run or other files, is locked, or cannot be written.
        """
        text = _as_json({"schema": SCHEMA, "status": "running", **manifest})
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            if self.exists and not force:
                self._check_same(json.loads(text), resume=resume)
                self._remove_drafts()
                self._record_new_environment(json.loads(text))
                return resume
            self.clear()
            write_metrics(self / "metrics.csv", [])
            write_text(self / MANIFEST, text)
        except OSError as error:
            raise RunFolderError(
                f"{self.path}: cannot hold a run ({error.strerror or error}); choose another --out"
            ) from error
        return False

    def rewrite(self, manifest: Mapping[str, Any], rows: Sequence[Row]) -> None:
        """Write the manifest and the metrics of a running run anew, without a lock; other files stay.

        Args:
            manifest: `config`, `seeds` and `data`, and further entries.
            rows: The rows of metrics.csv that are still valid.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        self.rewrite_metrics(rows)
        write_text(self / MANIFEST, _as_json({"schema": SCHEMA, "status": "running", **manifest}))

    def rewrite_metrics(self, rows: Sequence[Row]) -> None:
        """Write metrics.csv anew."""
        write_metrics(self / "metrics.csv", rows)

    def clear(self) -> None:
        """Remove the files of a run and nothing else; the manifest is removed last, so that a retry is possible."""
        own = {*OWN_FILES, *OWN_FOLDERS} if self.exists else {"metrics.csv"}  # written before the first manifest
        foreign = [path for path in self.path.glob("*") if path.name not in own and path.suffix != DRAFT]
        if foreign and not self.exists:
            raise RunFolderError(f"{self.path}: is not empty and holds no run; choose another --out")
        for name in OWN_FOLDERS:
            shutil.rmtree(self / name, ignore_errors=True)
        for name in OWN_FILES:
            (self / name).unlink(missing_ok=True)
        self._remove_drafts()

    def remove_run(self) -> None:
        """Remove the run, if the folder contains one and no other process uses it."""
        if not self.exists:
            return
        try:
            self._take_lock()
            self.clear()
        except OSError as error:
            raise RunFolderError(f"{self.path}: cannot be emptied ({error.strerror or error})") from error
        finally:
            self.release()

    def raise_exists(self) -> None:
        """Raise RunFolderError: the folder contains a run, and neither --resume nor --force was given."""
        state = "a finished run" if self.finished else "an unfinished run"
        raise RunFolderError(f"{self.path}: holds {state}; add --resume to continue it or --force to replace it")

    def release(self) -> None:
        """Release the lock on the folder."""
        release_lock(self._lock)
        self._lock = None

    def record(self, rows: list[Row]) -> None:
        """Append an evaluation to metrics.csv."""
        append_metrics(self / "metrics.csv", rows)

    def record_labels(self, rows: list[LabelRow]) -> None:
        """Append an evaluation to labels.csv."""
        append_labels(self / "labels.csv", rows)

    def describe(self, clients: ClientRecord) -> None:
        """Write clients.npz."""
        save_clients(self / "clients.npz", clients)

    def note_cohorts(self, cohorts: Participation) -> None:
        """Keep the cohorts of a block of rounds in memory until the next checkpoint writes them."""
        self._pending.append(cohorts)

    def checkpoint(self, arrays: Mapping[str, Any], *, round: int, seconds: float) -> None:
        """Save a checkpoint; the cohorts up to it are written first.

        Args:
            arrays: The state of the run, by name.
            round: Number of rounds done.
            seconds: Duration of the run so far.
        """
        self._write_pending(round)
        for name in ("metrics.csv", "labels.csv"):
            if (self / name).is_file():
                sync(self / name)
        save_arrays(self / "checkpoint.safetensors", arrays, {"round": str(round), "seconds": repr(seconds)})

    def restore(self) -> tuple[ArrayFile, int, float] | None:
        """Return the last checkpoint as (arrays, round, seconds), and remove all records after it.

        Without a checkpoint, all records are removed and None is returned.

        Raises:
            RunFolderError: If the checkpoint is damaged; nothing is removed.
        """
        arrays, round, seconds = self._read_checkpoint(check=True) or (None, 0, 0.0)
        kept = [row for row in read_metrics(self / "metrics.csv").rows if arrays is not None and row.round <= round]
        write_metrics(self / "metrics.csv", kept)
        if (self / "labels.csv").is_file():
            cut_labels(self / "labels.csv", last_round=-1 if arrays is None else round)
        for part in self._parts():
            if arrays is None or int(part.stem.split("-")[1]) > round:
                part.unlink()
        return None if arrays is None else (arrays, round, seconds)

    def _read_checkpoint(self, *, check: bool) -> tuple[ArrayFile, int, float] | None:
        """Return the last checkpoint as (arrays, round, seconds), or None if there is none.

        Args:
            check: Whether to compare the content with its checksum, which reads the whole file.
        """
        path = self / "checkpoint.safetensors"
        if not path.is_file():
            return None
        try:
            arrays = ArrayFile(path)
            if check:
                arrays.check()
            return arrays, int(arrays.metadata["round"]), float(arrays.metadata["seconds"])
        except (RunFolderError, KeyError, ValueError) as error:
            reason = str(error) if isinstance(error, RunFolderError) else f"{path}: damaged (its metadata are invalid)"
            raise RunFolderError(
                f"{reason}; the run cannot be resumed: restore the file from a backup, or start the run again with "
                f"--force (in Python force=True)"
            ) from error

    def mark_diverged(self, message: str, *, round: int, facts: Mapping[str, Any] | None = None) -> None:
        """Mark the run as diverged; it cannot be resumed.

        Args:
            message: The reason.
            round: Number of rounds done.
            facts: Further entries of the manifest.
        """
        ended = {"status": "diverged", "diverged": message, "rounds_done": round}
        write_text(self / MANIFEST, _as_json({**self.manifest, **ended, **(facts or {})}))

    def finish(self, params: Mapping[str, Any], *, round: int, facts: Mapping[str, Any]) -> None:
        """Save the final models and the cohorts of all rounds, and mark the run as finished.

        Args:
            params: The parameters of the final models by name, each [seeds, ...].
            round: Number of rounds done.
            facts: Further entries of the manifest.
        """
        self._write_pending(round)
        cohorts = join([load_participation(part) for part in self._parts()])
        manifest = {**self.manifest, "status": "finished", **facts}
        self.save_results(params, cohorts, manifest, about_model={"config": json.dumps(manifest["config"])})
        self.tidy()

    def save_results(
        self,
        params: Mapping[str, Any],
        cohorts: Participation,
        manifest: Mapping[str, Any],
        *,
        about_model: Mapping[str, str],
    ) -> None:
        """Write the final model, the cohorts and, last, the manifest of a finished run.

        Args:
            params: The parameters of the final models by name, each [seeds, ...].
            cohorts: The cohorts of all rounds.
            manifest: All entries of the manifest but `schema` and `status`.
            about_model: Metadata of the model's file.
        """
        save_participation(self / "participation.npz", cohorts)
        save_arrays(self / "model.safetensors", params, about_model)
        write_text(self / MANIFEST, _as_json({"schema": SCHEMA, "status": "finished", **manifest}))

    def tidy(self) -> None:
        """Remove the files that only an unfinished run needs."""
        (self / "checkpoint.safetensors").unlink(missing_ok=True)
        shutil.rmtree(self / "participation", ignore_errors=True)
        self._remove_drafts()

    def _check_same(self, manifest: Mapping[str, Any], *, resume: bool) -> None:
        existing = self.manifest
        for part in ("config", "seeds", "data"):
            old, new = _without_title(existing.get(part)), _without_title(manifest[part])
            if old != new:
                raise RunFolderError(
                    f"{self.path}: holds a run of another configuration ({_first_difference(part, old, new)}); "
                    "choose another --out, or --force to replace it"
                )
        if not resume:
            self.raise_exists()

    def _parts(self) -> list[Path]:
        return sorted((self / "participation").glob("*.npz"))

    def _write_pending(self, round: int) -> None:
        if not self._pending:
            return
        try:
            (self / "participation").mkdir(exist_ok=True)
        except OSError as error:
            raise RunFolderError(f"{self.path}: cannot be written to ({error.strerror})") from error
        joined = join(self._pending)
        save_participation(self / f"participation/{round - joined.num_rounds:09d}-{round:09d}.npz", joined)
        self._pending = []

    def _record_new_environment(self, manifest: Mapping[str, Any]) -> None:
        """Record a changed device or changed versions: a resumed run is bit-identical only if both are the same."""
        existing = self.manifest
        changed = {part: manifest[part] for part in ("device", "versions") if manifest.get(part) != existing.get(part)}
        if changed and existing["status"] != "finished":
            text = _as_json({**existing, "resumed_with": [*existing.get("resumed_with", []), changed]})
            write_text(self / MANIFEST, text)

    def _take_lock(self) -> None:
        if self._lock is not None:
            return
        try:
            self._lock = acquire_lock(self.path)
        except BlockingIOError:
            raise RunFolderInUseError(f"{self.path}: another process is running here; wait for it or stop it") from None

    def _remove_drafts(self) -> None:
        for draft in self.path.glob(f".*{DRAFT}"):
            draft.unlink(missing_ok=True)


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of a run folder."""
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
    """Return the run folders at `path`: the folder itself, its subfolders, or the run of a deployment's job."""
    if (path / MANIFEST).is_file():
        return [path]
    found = sorted(manifest.parent for place in ("*", "job/run") for manifest in path.glob(f"{place}/{MANIFEST}"))
    if not found:
        raise RunFolderError(f"{path}: holds no run (no {MANIFEST} in it or in a folder of it)")
    return found


def package_versions(*packages: str) -> dict[str, str]:
    """Return the entry `versions` of a manifest: Python, fedlatest and the given packages."""
    installed = {name: version(name) for name in packages}
    return {"python": platform.python_version(), "fedlatest": __version__, **installed}


def _as_json(manifest: Mapping[str, Any]) -> str:
    try:
        return json.dumps(manifest, indent=2) + "\n"
    except TypeError as error:
        raise ConfigError(f"config: only numbers, texts, lists and dicts can be stored with a run ({error})") from None


def _without_title(part: Any) -> Any:
    """Return a part of a manifest without the algorithm's title, which is for display only; older runs lack it."""
    if not (isinstance(part, dict) and isinstance(part.get("algorithm"), dict)):
        return part
    return {**part, "algorithm": {key: value for key, value in part["algorithm"].items() if key != "title"}}


def _first_difference(name: str, old: Any, new: Any) -> str:
    """Describe the first key, at any depth, whose values differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *new]:
            if old.get(key) != new.get(key):
                return _first_difference(key, old.get(key), new.get(key))
    return f"{name} was {old!r}, now {new!r}"
