"""How samples lie on the device: 8-bit pixels as bytes, to the same bits; texts as numbers of words."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from fedlatest.data.features import STEP, Pixels, Words, look_up, pixels

VALUES_AT_ONCE = 80_000


def compact(features: Any) -> Any:
    """Arrays of float32 that are 8-bit pixels in [0, 1] become `Pixels`; everything else stays as it is.

    >>> compact(pixels(np.array([0, 51, 255], np.uint8)))
    Pixels(levels=array([  0,  51, 255], dtype=uint8))
    """
    return jax.tree.map(lambda leaf: leaf if (levels := _levels(leaf)) is None else Pixels(levels), features)


def expand(features: Any, table: Any = None) -> Any:
    """Features as a model takes them: what `compact` was given, and the vectors of words."""

    def values(leaf: Any) -> Any:
        if isinstance(leaf, Words):
            return look_up(leaf, table)
        return leaf.levels.astype(jnp.float32) * STEP if isinstance(leaf, Pixels) else leaf

    return jax.tree.map(values, features, is_leaf=lambda leaf: isinstance(leaf, Pixels | Words))


def _levels(leaf: Any) -> npt.NDArray[np.uint8] | None:
    """Return the bytes from which `data.pixels` makes these values; None if there are none, as most data sets show at
    once. Works on a few rows at a time, whose temporary copies fit the cache."""
    if leaf.dtype != np.float32 or leaf.size == 0:
        return None
    levels = np.empty(leaf.shape, np.uint8)
    rows = max(1, VALUES_AT_ONCE * len(leaf) // leaf.size)
    for first in range(0, len(leaf), rows):
        part = leaf[first : first + rows]
        if part.min() < 0 or part.max() > 1:
            return None
        found = np.rint(part / STEP).astype(np.uint8)
        if not np.array_equal(pixels(found), part):
            return None
        levels[first : first + rows] = found
    return levels
