"""Fixed point: values as whole numbers of a unit, so that sums are exact in any order.

A value is bounded to less than 2^30 units, so that the difference of two fits 32 bits (no more on the wire than
float32); the server adds in 64 bits.
"""

import math

import numpy as np
import numpy.typing as npt

from fedlatest.errors import ConfigError, DivergedError

Vector = npt.NDArray[np.int32]
Total = npt.NDArray[np.int64]

MOST_UNITS = 2**30 - 1
ON_THE_WIRE = np.dtype("<i4")
IN_THE_LEDGER = np.dtype("<i8")


def to_units(values: npt.NDArray[np.floating], unit: float) -> Vector:
    """Round to the nearest whole number of units.

    >>> to_units(np.array([0.26, -1.0]), 0.25).tolist()
    [1, -4]
    """
    scaled = np.rint(np.asarray(values, np.float64) / unit)
    largest = float(np.max(np.abs(scaled), initial=0.0))
    if not math.isfinite(largest):
        raise DivergedError("the update is not finite; try a smaller learning rate")
    if largest > MOST_UNITS:
        raise ConfigError(
            f"unit={unit:g}: the update reaches {largest * unit:.3g}, beyond the {MOST_UNITS * unit:.3g} that fits; "
            "choose a larger unit for the job, or look why the update is so large"
        )
    return scaled.astype(ON_THE_WIRE)


def from_units(total: Total | Vector, unit: float) -> npt.NDArray[np.float32]:
    """What so many units are worth, in single precision."""
    worth = np.empty(total.shape, np.float32)
    np.multiply(total, unit, out=worth, casting="unsafe")
    return worth


def norm(vector: Vector | Total, unit: float) -> float:
    """The Euclidean norm of a vector of units."""
    values = vector.astype(np.float64)
    return math.sqrt(float(values @ values)) * unit
