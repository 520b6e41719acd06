"""Units: rounded to the nearest, bounded so that a difference of two fits 32 bits."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedlatest.errors import ConfigError, DivergedError
from fedlatest.ledger.fixed_point import MOST_UNITS, from_units, norm, to_units


def test_values_are_rounded_to_the_nearest_unit() -> None:
    """0.3 / 0.25 = 1.2, 0.125 / 0.25 = 0.5 goes to the even 0, 0.375 / 0.25 = 1.5 to the even 2."""
    assert to_units(np.array([0.3, 0.125, 0.375, -0.3, -1.0]), 0.25).tolist() == [1, 0, 2, -1, -4]
    assert to_units(np.zeros(0, np.float32), 0.25).tolist() == []


def test_the_largest_value_fits_and_the_next_does_not() -> None:
    most = np.array([MOST_UNITS, -MOST_UNITS], np.float64)
    units = to_units(most, 1.0)
    assert units.tolist() == [MOST_UNITS, -MOST_UNITS]
    assert int(units[0]) - int(units[1]) < 2**31
    with pytest.raises(ConfigError, match=r"unit=1: the update reaches 1\.07e"):
        to_units(most + 1.0, 1.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_not_rounded(bad: float) -> None:
    with pytest.raises(DivergedError, match="not finite"):
        to_units(np.array([0.0, bad]), 1.0)


@given(arrays.arrays(np.float32, 5, elements=st.floats(-1000, 1000, width=32)))
def test_a_value_moves_by_half_a_unit_at_most(values: npt.NDArray[np.float32]) -> None:
    unit = 2.0**-16
    assert np.abs(to_units(values, unit) * unit - values).max() <= unit / 2


def test_units_are_worth_their_sum() -> None:
    total = np.array([2**40, -3], np.int64)
    worth = from_units(total, 0.5)
    assert worth.dtype == np.float32
    assert worth.tolist() == [2.0**39, -1.5]
    assert norm(np.array([3, 4], np.int32), 0.5) == 2.5
    assert norm(np.array([2**30, 0], np.int32), 1.0) == 2.0**30
