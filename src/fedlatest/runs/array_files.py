"""Files of named arrays (safetensors and .npz); loading them never executes code."""

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError, safe_open

from fedlatest.errors import RunFolderError
from fedlatest.files import write_atomically


def save_arrays(path: Path, arrays: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
    """Save named arrays as a safetensors file, atomically.

    Args:
        path: The file to write.
        arrays: Arrays (NumPy or JAX) by name.
        metadata: Texts by name, stored in the file's header.
    """
    content = {name: np.asarray(array) for name, array in arrays.items()}
    write_atomically(path, lambda draft: safetensors.numpy.save_file(content, draft, dict(metadata)))


def load_arrays(path: Path) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, str]]:
    """Return the arrays and the metadata of a safetensors file."""
    try:
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise RunFolderError(f"{path}: cannot be read ({error})") from error


def load_metadata(path: Path) -> dict[str, str]:
    """Return the metadata of a safetensors file without reading its arrays."""
    try:
        with safe_open(path, framework="numpy") as file:
            return dict(file.metadata() or {})
    except (OSError, SafetensorError) as error:
        raise RunFolderError(f"{path}: cannot be read ({error})") from error


def save_npz(path: Path, arrays: Mapping[str, Any]) -> None:
    """Save named arrays as a compressed .npz file, atomically."""

    def write(draft: Path) -> None:
        with draft.open("wb") as file:
            np.savez_compressed(file, **arrays)

    write_atomically(path, write)


def load_npz(
    path: Path, names: Sequence[str], defaults: Mapping[str, np.ndarray[Any, Any]] | None = None
) -> list[np.ndarray[Any, Any]]:
    """Return named arrays of a .npz file.

    Args:
        path: The file to read; pickled content is rejected.
        names: The arrays to return, in this order.
        defaults: Arrays to use for names that the file does not contain.

    Raises:
        RunFolderError: If the file cannot be read, or lacks an array that has no default.
    """
    optional = defaults or {}
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
            return [optional[name] if name in optional and name not in content else content[name] for name in names]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise RunFolderError(f"{path}: cannot be read ({error})") from error
