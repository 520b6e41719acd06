"""A deployment's folder: begun anew, gone on with, or replaced; never mixed up with something else."""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedlatest.errors import ConfigError, RunFolderError
from fedlatest.files import acquire_lock, release_lock, write_text

_MANIFEST = "deployment.json"
_MAY_CHANGE = ("rounds", "chaos")  # with --resume


@contextmanager
def open_folder(
    folder: Path, values: Mapping[str, Any], *, resume: bool = False, force: bool = False
) -> Iterator[None]:
    """Make the folder ready for a deployment with these values and hold it, or say what is in the way.

    `resume` goes on with the same values (rounds and chaos may change), `force` deletes a deployment that is there.
    """
    try:
        with _held(folder):
            _prepare(folder, values, resume=resume, force=force)
            yield
    except OSError as error:
        raise RunFolderError(f"{folder}: cannot hold a deployment ({error.strerror}); choose another --out") from error


def refuse_nesting(app: Path, folder: Path) -> None:
    """An app is packed with all that lies below it, and a deployment's folder is deleted with all that lies in it."""
    inner, outer = app.resolve(), folder.resolve()
    if outer.is_relative_to(inner):
        raise ConfigError(f"--out {folder}: lies in the app {app}; choose a folder outside of it")
    if inner.is_relative_to(outer):
        raise ConfigError(f"--app {app}: lies in --out {folder}; choose another --out")


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Two commands in one folder would stop each other's processes; the lock lies beside it, so it can be deleted."""
    folder.absolute().parent.mkdir(parents=True, exist_ok=True)
    lock = folder.absolute().parent / f".{folder.name}.lock"
    lock.touch()
    try:
        descriptor = acquire_lock(lock)
    except BlockingIOError:
        raise RunFolderError(f"{folder}: another `deploy local` is at work here; wait for it") from None
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        release_lock(descriptor)


def _prepare(folder: Path, values: Mapping[str, Any], *, resume: bool, force: bool) -> None:
    manifest = folder / _MANIFEST
    if resume and not manifest.exists():
        raise RunFolderError(f"{folder}: holds no deployment to go on with; leave --resume out to begin one")
    if manifest.exists() and not (resume or force):
        raise RunFolderError(
            f"{folder}: holds a deployment; add --resume to go on, --force to replace it, or choose --out"
        )
    if not manifest.exists() and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunFolderError(f"{folder}: holds something that is no deployment; choose another --out")
    if resume:
        _check_the_same(manifest, values)
    elif force and manifest.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(manifest, json.dumps(dict(values), indent=2) + "\n")


def _check_the_same(manifest: Path, values: Mapping[str, Any]) -> None:
    try:
        before = json.loads(manifest.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{manifest}: cannot be read ({error})") from error
    for key in {**before, **values}:
        if key not in _MAY_CHANGE and before.get(key) != values.get(key):
            raise RunFolderError(
                f"{manifest.parent}: was begun with {key}={before.get(key)}, not {values.get(key)}; "
                "go on with that, or choose another --out"
            )
