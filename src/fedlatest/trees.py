"""Trees of arrays as named arrays and back; the names are the paths to the leaves."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedlatest.errors import ConfigError, RunFolderError


def named_leaves(tree: Any) -> dict[str, Any]:
    """Return the leaves of a tree by their path, such as `server.params.weight`."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    named = {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}
    if len(named) < len(leaves):
        raise ConfigError("two arrays of the state have the same path; do not use dots in the names of parts")
    return named


def from_named_leaves(arrays: Mapping[str, np.ndarray[Any, Any]], like: Any, *, source: Path) -> Any:
    """Return a tree with the structure of `like` from arrays by path, the inverse of `named_leaves`.

    Args:
        arrays: Arrays by path.
        like: A tree of arrays or of shapes; every leaf must be present with its shape and type.
        source: The file that the arrays come from, named in the error message.

    Raises:
        RunFolderError: If an array is missing or has another shape or type.
    """
    leaves = [checked(arrays, name, leaf, source=source) for name, leaf in named_leaves(like).items()]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def checked(arrays: Mapping[str, np.ndarray[Any, Any]], name: str, like: Any, *, source: Path) -> np.ndarray[Any, Any]:
    """Return the array of a name; raise RunFolderError if it is missing or has another shape or type than `like`."""
    return check_array(arrays.get(name), name, like, source=source)


def check_array(found: np.ndarray[Any, Any] | None, name: str, like: Any, *, source: Path) -> np.ndarray[Any, Any]:
    """Return an array that was read; raise RunFolderError if it is None or has another shape or type than `like`."""
    if found is None or found.shape != like.shape or found.dtype != like.dtype:
        seen = "nothing" if found is None else f"{found.dtype}{list(found.shape)}"
        raise RunFolderError(f"{source}: holds {seen} for {name}, expected {like.dtype}{list(like.shape)}")
    return found
