"""How samples lie on the device: 8-bit pixels as bytes, to the same bits; texts as numbers of words."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from fedlatest.data.features import STEP, Pixels, Words, look_up, pixels


def compact(features: Any) -> Any:
    """Arrays of float32 that are 8-bit pixels in [0, 1] become `Pixels`; everything else stays as it is.

    >>> compact(pixels(np.array([0, 51, 255], np.uint8)))
    Pixels(levels=array([  0,  51, 255], dtype=uint8))
    """
    return jax.tree.map(lambda leaf: Pixels(_levels(leaf)) if _is_pixels(leaf) else leaf, features)


def expand(features: Any, table: Any = None) -> Any:
    """Features as a model takes them: what `compact` was given, and the vectors of words."""

    def values(leaf: Any) -> Any:
        if isinstance(leaf, Words):
            return look_up(leaf, table)
        return leaf.levels.astype(jnp.float32) * STEP if isinstance(leaf, Pixels) else leaf

    return jax.tree.map(values, features, is_leaf=lambda leaf: isinstance(leaf, Pixels | Words))


def _is_pixels(leaf: Any) -> bool:
    if leaf.dtype != np.float32:
        return False
    few = leaf[:100]
    return _survives(few) and _survives(leaf)


def _survives(leaf: npt.NDArray[np.float32]) -> bool:
    if leaf.size == 0 or leaf.min() < 0 or leaf.max() > 1:
        return False
    return np.array_equal(pixels(_levels(leaf)), leaf)


def _levels(leaf: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    return np.rint(leaf / STEP).astype(np.uint8)
