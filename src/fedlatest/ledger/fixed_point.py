"""Fixed-point numbers: integers that count multiples of the job's `unit`, so that sums are exact in any order.

A number has a magnitude below 2^30 units, so the difference of two fits in 32 bits: an upload is no larger than one in
float32. The server adds in 64 bits.
"""

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from fedlatest.errors import ConfigError, DivergedError

FixedPoint = npt.NDArray[np.int32]
FixedPointSum = npt.NDArray[np.int64]

MAX_UNITS = 2**30 - 1
UPLOAD_DTYPE = np.dtype("<i4")
SUM_DTYPE = np.dtype("<i8")
_CHUNK = 2**20  # numbers converted at a time, so that large updates need no second copy in double precision


def to_fixed_point(values: npt.NDArray[np.floating], unit: float) -> FixedPoint:
    """Round values to the nearest multiples of `unit` and return the factors.

    >>> to_fixed_point(np.array([0.26, -1.0]), 0.25).tolist()
    [1, -4]

    Raises:
        DivergedError: a value is not finite.
        ConfigError: a value needs more than `MAX_UNITS` units.
    """
    values = np.asarray(values)
    numbers = np.empty(values.size, UPLOAD_DTYPE)
    for chunk, part in _chunks(values):
        scaled = np.rint(part.astype(np.float64) / unit)
        largest = float(np.max(np.abs(scaled), initial=0.0))
        if not math.isfinite(largest):
            raise DivergedError("the update is not finite; try a smaller learning rate")
        if largest > MAX_UNITS:
            raise ConfigError(
                f"unit={unit:g}: the update reaches {largest * unit:.3g}, above the maximum of {MAX_UNITS * unit:.3g}; "
                "choose a larger unit for the job, or find out why the update is so large"
            )
        numbers[chunk] = scaled
    return numbers.reshape(values.shape)


def to_fixed_point_within(values: npt.NDArray[np.floating], unit: float, max_norm: float) -> FixedPoint:
    """Scale values down to a Euclidean norm of at most `max_norm`, round them towards zero, and return the factors.

    The limit holds for the result exactly: the norm is checked in integers.

    >>> to_fixed_point_within(np.array([3.0, 4.0]), 0.5, 2.6).tolist()
    [3, 4]

    Raises:
        DivergedError: a value is not finite.
    """
    length = norm(values, 1.0)
    if not math.isfinite(length):
        raise DivergedError("the update is not finite; try a smaller learning rate")
    factor = min(1.0, max_norm / length) if length > 0 else 1.0
    most = int(Fraction(max_norm) ** 2 / Fraction(unit) ** 2)  # largest sum of squares, in units
    numbers = np.empty(values.size, UPLOAD_DTYPE)
    while True:
        for chunk, part in _chunks(values):
            numbers[chunk] = np.clip(np.trunc(part.astype(np.float64) * (factor / unit)), -MAX_UNITS, MAX_UNITS)
        if sum_of_squares(numbers) <= most:
            return numbers.reshape(values.shape)
        factor *= 1 - 1e-9  # the error of floating point


def sum_of_squares(numbers: FixedPoint) -> int:
    """Return the exact sum of the squares of integers.

    >>> sum_of_squares(np.array([2**30, -1], np.int32)) == 2**60 + 1
    True
    """
    total = 0
    for _, part in _chunks(numbers):
        high, low = np.divmod(part.astype(np.int64), 2**15)  # each sum below fits in 64 bits
        total += (int(high @ high) << 30) + (int(high @ low) << 16) + int(low @ low)
    return total


def from_fixed_point(
    numbers: FixedPointSum | FixedPoint,
    unit: float,
    *,
    plus: FixedPointSum | None = None,
    minus: FixedPointSum | None = None,
) -> npt.NDArray[np.float32]:
    """Return `(numbers + plus - minus) * unit` in single precision, without a temporary array of that size.

    >>> from_fixed_point(np.array([1, 2]), 0.5, plus=np.array([3, 3])).tolist()
    [2.0, 2.5]
    """
    values = np.empty(numbers.size, np.float32)
    for chunk, part in _chunks(numbers):
        part = part if plus is None else part + plus[chunk]
        part = part if minus is None else part - minus[chunk]
        np.multiply(part, unit, out=values[chunk], casting="unsafe")
    return values.reshape(numbers.shape)


def norm(numbers: npt.NDArray[Any], unit: float) -> float:
    """Return the Euclidean norm of `numbers * unit`."""
    return math.sqrt(sum(float(values @ values) for values in _in_double_precision(numbers))) * unit


def largest_magnitude(numbers: FixedPoint) -> int:
    """Return the largest absolute value; 0 for an empty array.

    >>> largest_magnitude(np.array([3, -(2**31)], np.int32)) == 2**31
    True
    """
    return max(int(numbers.max()), -int(numbers.min())) if numbers.size else 0


def _chunks(values: npt.NDArray[Any]) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
    flat = values.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        yield slice(start, start + _CHUNK), flat[start : start + _CHUNK]


def _in_double_precision(values: npt.NDArray[Any]) -> Iterator[npt.NDArray[np.float64]]:
    return (part.astype(np.float64) for _, part in _chunks(values))
