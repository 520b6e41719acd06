"""Files that are either whole or not there, and trees of arrays in a format that never executes code."""

import csv
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors.numpy
from safetensors import SafetensorError, safe_open

from fedlatest.errors import RunFolderError

DRAFT = ".draft"


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Write beside `path`, force it to the disk, then take its place; a failure leaves what was there before."""
    draft = path.with_name(f".{path.name}{DRAFT}")
    try:
        write(draft)
        draft.chmod(0o644)
        sync(draft)
        draft.replace(path)
        sync(path.parent)
    except BaseException as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        if not isinstance(error, OSError | SafetensorError):
            raise
        raise RunFolderError(f"{path}: could not be written ({error}); what was there before is intact") from error


def save_tree(path: Path, tree: Any, metadata: Mapping[str, str]) -> None:
    """Save a tree of arrays under the names of its paths, atomically."""
    arrays = {name: np.asarray(leaf) for name, leaf in named_leaves(tree).items()}
    write_atomically(path, lambda draft: safetensors.numpy.save_file(arrays, draft, dict(metadata)))


def load_tree(path: Path, like: Any) -> tuple[Any, dict[str, str]]:
    """Load a tree saved by `save_tree` into the structure of `like`; names, shapes and types must agree."""
    arrays, metadata = load_arrays(path)
    wanted = named_leaves(like)
    for name, leaf in wanted.items():
        found = arrays.get(name)
        if found is None or found.shape != leaf.shape or found.dtype != leaf.dtype:
            seen = "nothing" if found is None else f"{found.dtype}{list(found.shape)}"
            raise RunFolderError(f"{path}: holds {seen} for {name}, expected {leaf.dtype}{list(leaf.shape)}")
    leaves = [arrays[name] for name in wanted]
    return jax.tree.unflatten(jax.tree.structure(like), leaves), metadata


def load_arrays(path: Path) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, str]]:
    """The named arrays and the metadata in a safetensors file."""
    try:
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise RunFolderError(f"{path}: cannot be read ({error})") from error


def write_text(path: Path, text: str) -> None:
    """Write a text, atomically."""

    def write(draft: Path) -> None:
        draft.write_text(text, encoding="utf-8")

    write_atomically(path, write)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object, atomically."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def write_csv(path: Path, rows: Iterable[Sequence[Any]]) -> None:
    """Write a CSV, atomically."""

    def write(draft: Path) -> None:
        with draft.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)

    write_atomically(path, write)


def save_npz(path: Path, arrays: Mapping[str, Any]) -> None:
    """Save named arrays as a compressed .npz, atomically."""

    def write(draft: Path) -> None:
        with draft.open("wb") as file:
            np.savez_compressed(file, **arrays)

    write_atomically(path, write)


def load_npz(
    path: Path, names: Sequence[str], defaults: Mapping[str, np.ndarray[Any, Any]] | None = None
) -> list[np.ndarray[Any, Any]]:
    """The named arrays of a .npz, or the defaults of those that it lacks; nothing in it is executed."""
    absent = defaults or {}
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
            return [absent[name] if name in absent and name not in content else content[name] for name in names]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise RunFolderError(f"{path}: cannot be read ({error})") from error


def load_metadata(path: Path) -> dict[str, str]:
    """The metadata in a safetensors file, without its arrays."""
    try:
        with safe_open(path, framework="numpy") as file:
            return dict(file.metadata() or {})
    except (OSError, SafetensorError) as error:
        raise RunFolderError(f"{path}: cannot be read ({error})") from error


def named_leaves(tree: Any) -> dict[str, Any]:
    """Leaves by the path that leads to them, such as `server.params.weight`."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def sync(path: Path) -> None:
    """Force a file or a folder's entries to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
