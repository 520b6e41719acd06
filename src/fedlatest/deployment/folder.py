"""A deployment's folder: begun anew, gone on with, or replaced; never mixed up with something else."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedlatest.errors import RunFolderError
from fedlatest.files import write_text

_MANIFEST = "deployment.json"
_MAY_CHANGE = ("rounds", "chaos")  # with --resume


def open_folder(folder: Path, values: Mapping[str, Any], *, resume: bool = False, force: bool = False) -> None:
    """Make the folder ready for a deployment with these values, or say what is in the way.

    `resume` goes on with the same values (rounds and chaos may change), `force` deletes a deployment that is there.
    """
    manifest = folder / _MANIFEST
    if manifest.exists() and not (resume or force):
        raise RunFolderError(
            f"{folder}: holds a deployment; add --resume to go on, --force to replace it, or choose --out"
        )
    if not manifest.exists() and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunFolderError(f"{folder}: holds something that is no deployment; choose another --out")
    if resume and manifest.exists():
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
