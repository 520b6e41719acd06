"""The folder of a deployment: created, resumed or replaced, and locked while a command uses it."""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedlatest.deployment import private_files
from fedlatest.deployment.scaffold import app_config
from fedlatest.errors import ConfigError, RunFolderError
from fedlatest.files import acquire_lock, release_lock, write_atomically

_MANIFEST = "deployment.json"
_MAY_CHANGE = ("rounds", "chaos")  # with --resume


@contextmanager
def open_folder(
    folder: Path, values: Mapping[str, Any], *, resume: bool = False, force: bool = False
) -> Iterator[None]:
    """Prepare the folder of a deployment and lock it for the duration of the context.

    Args:
        folder: The folder.
        values: The settings of the deployment, which are written to its manifest.
        resume: Continue the deployment in the folder. The settings must be the same, except rounds and chaos.
        force: Delete the deployment in the folder first.

    Raises:
        RunFolderError: The folder cannot be used; the message says why. An OSError that is raised in the body of the
            context is not changed.
    """
    lock = folder.absolute().parent / f".{folder.name}.lock"  # beside the folder, which may be deleted
    with _explaining_os_errors(folder):
        descriptor = _take_lock(folder, lock)
    try:
        with _explaining_os_errors(folder):
            _prepare(folder, values, resume=resume, force=force)
        yield
    finally:
        lock.unlink(missing_ok=True)
        release_lock(descriptor)


def read_app_config(folder: Path) -> dict[str, Any] | None:
    """Return the run config with which a deployment runs its app; None if the folder holds no deployment.

    Raises:
        ConfigError: The app can no longer be read.
        RunFolderError: The manifest of the deployment cannot be read.
    """
    manifest = folder / _MANIFEST
    if not manifest.is_file():
        return None
    values = _read_manifest(manifest)
    app = folder / "app" if values["app"] == "digits" else Path(values["app"])
    return {**app_config(app), **values["config"]}


def check_not_nested(app: Path, folder: Path) -> None:
    """Raise ConfigError if the app lies in the deployment's folder or the other way round.

    Flower packs an app with everything below it, and `--force` deletes a deployment's folder with everything in it.
    """
    inner, outer = app.resolve(), folder.resolve()
    if outer.is_relative_to(inner):
        raise ConfigError(f"--out {folder}: lies in the app {app}; choose a folder outside of it")
    if inner.is_relative_to(outer):
        raise ConfigError(f"--app {app}: lies in --out {folder}; choose another --out")


@contextmanager
def _explaining_os_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        hint = (
            "; choose another --out"
            if isinstance(error, PermissionError | NotADirectoryError | FileExistsError)
            else ""
        )
        raise RunFolderError(f"{error.filename or folder}: {error.strerror}{hint}") from error


def _take_lock(folder: Path, lock: Path) -> int | None:
    """Lock the folder: two commands in one folder would stop each other's processes."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()
    try:
        return acquire_lock(lock)
    except BlockingIOError:
        raise RunFolderError(f"{folder}: another `deploy local` is running in this folder; wait for it") from None


def _prepare(folder: Path, values: Mapping[str, Any], *, resume: bool, force: bool) -> None:
    manifest = folder / _MANIFEST
    if resume and not manifest.exists():
        raise RunFolderError(f"{folder}: contains no deployment to resume; leave out --resume to start one")
    if manifest.exists() and not (resume or force):
        raise RunFolderError(
            f"{folder}: contains a deployment; add --resume to continue it, --force to replace it, or choose another "
            "--out"
        )
    if not manifest.exists() and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunFolderError(f"{folder}: contains something that is not a deployment; choose another --out")
    if resume:
        _check_same_values(manifest, values)
    elif force and manifest.exists():
        shutil.rmtree(folder)
    private_files.make_folder(folder)
    text = json.dumps(dict(values), indent=2) + "\n"
    write_atomically(manifest, lambda draft: private_files.write(draft, text), mode=0o600)


def _read_manifest(manifest: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(manifest.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{manifest}: cannot be read ({error})") from error


def _check_same_values(manifest: Path, values: Mapping[str, Any]) -> None:
    before = _read_manifest(manifest)
    for key in {**before, **values}:
        if key not in _MAY_CHANGE and before.get(key) != values.get(key):
            raise RunFolderError(
                f"{manifest.parent}: was started with {key}={before.get(key)}, not {values.get(key)}; "
                "use the same value, or choose another --out"
            )
