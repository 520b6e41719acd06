"""Clipping of updates in NumPy, as a deployed client does it; the simulator's is in `simulation/private_rounds.py`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = Sequence[npt.NDArray[Any]]


def clip_to_norm(arrays: Arrays, clip_norm: float) -> list[npt.NDArray[Any]]:
    """Return the arrays of one update, scaled down together so that their joint Euclidean norm is at most `clip_norm`.

    The norm is computed in 64 bits, and the result is scaled until its norm, as computed, does not exceed the limit.
    Rounding its entries towards zero afterwards keeps the limit; rounding to the nearest number may not.

    >>> [array.tolist() for array in clip_to_norm([np.array([3.0]), np.array([4.0])], 10.0)]
    [[3.0], [4.0]]
    """
    clipped, norm = list(arrays), joint_norm(arrays)
    if not np.isfinite(norm):
        return clipped  # left to the check for updates that are not finite
    while norm > clip_norm:
        factor = clip_norm / norm * (1 - 1e-7)
        clipped = [(array * factor).astype(array.dtype) for array in clipped]
        norm = joint_norm(clipped)
    return clipped


def joint_norm(arrays: Arrays) -> float:
    """Return the Euclidean norm of all numbers of some arrays."""
    return float(np.sqrt(sum(float(np.sum(np.square(array, dtype=np.float64))) for array in arrays)))
