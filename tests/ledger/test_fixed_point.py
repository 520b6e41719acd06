"""Fixed-point numbers: rounding, range and conversion back."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedlatest.errors import ConfigError, DivergedError
from fedlatest.ledger.fixed_point import MAX_UNITS, from_fixed_point, norm, to_fixed_point


def test_values_are_rounded_to_the_nearest_multiple() -> None:
    """0.3 / 0.25 = 1.2, 0.125 / 0.25 = 0.5 is rounded to the even 0, 0.375 / 0.25 = 1.5 to the even 2."""
    assert to_fixed_point(np.array([0.3, 0.125, 0.375, -0.3, -1.0]), 0.25).tolist() == [1, 0, 2, -1, -4]
    assert to_fixed_point(np.zeros(0, np.float32), 0.25).tolist() == []


def test_largest_value_fits_and_the_next_raises() -> None:
    largest = np.array([MAX_UNITS, -MAX_UNITS], np.float64)
    numbers = to_fixed_point(largest, 1.0)
    assert numbers.tolist() == [MAX_UNITS, -MAX_UNITS]
    assert int(numbers[0]) - int(numbers[1]) < 2**31
    with pytest.raises(ConfigError, match=r"unit=1: the update reaches 1\.07e"):
        to_fixed_point(largest + 1.0, 1.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_value_that_is_not_finite_raises(bad: float) -> None:
    with pytest.raises(DivergedError, match="not finite"):
        to_fixed_point(np.array([0.0, bad]), 1.0)


@given(arrays.arrays(np.float32, 5, elements=st.floats(-1000, 1000, width=32)))
def test_rounding_error_is_at_most_half_a_unit(values: npt.NDArray[np.float32]) -> None:
    unit = 2.0**-16
    assert np.abs(to_fixed_point(values, unit) * unit - values).max() <= unit / 2


def test_conversion_back_and_norm() -> None:
    total = np.array([2**40, -3], np.int64)
    values = from_fixed_point(total, 0.5)
    assert values.dtype == np.float32
    assert values.tolist() == [2.0**39, -1.5]
    assert norm(np.array([3, 4], np.int32), 0.5) == 2.5
    assert norm(np.array([2**30, 0], np.int32), 1.0) == 2.0**30
