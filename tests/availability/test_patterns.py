"""Patterns and compositions, compared with numbers computed by hand and with a clock in exact arithmetic."""

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedlatest import (
    ConfigError,
    alternating,
    always,
    both,
    diurnal,
    either,
    lifetime,
    restrict,
    shift,
    windows,
)
from fedlatest.availability.patterns import MAX_ROUNDS_PER_DAY

DAY = 24 * 60 * 60
available = jax.jit(lambda model, round: model.available(round, 0))


def available_rounds(column: Any) -> list[int]:
    return np.flatnonzero(column).tolist()


@pytest.mark.parametrize("period", [1, 2, 5, 100])
def test_blocks_of_e_satisfy_assumption_4_with_e_plus_1(period: int) -> None:
    """A group is absent for E rounds in a row, so E consecutive rounds can miss it and E + 1 cannot."""
    assumption = diurnal([True, False, True], period=period).assumption(4 * period)
    assert assumption.smallest_e == period + 1
    assert assumption.longest_absence.tolist() == [period] * 3


@given(t1=st.integers(1, 40), t2=st.integers(1, 40))
def test_alternating_satisfies_assumption_4_with_the_longer_block_plus_1(t1: int, t2: int) -> None:
    """The first group is absent for t2 rounds at a time, the others for t1; two periods contain each absence."""
    horizon = 2 * (t1 + t2)
    assumption = alternating([True, False], t1=t1, t2=t2).assumption(horizon)
    assert assumption.smallest_e == max(t1, t2) + 1
    assert assumption.longest_absence.tolist() == [t2, t1]
    assert alternating([True, True], t1=t1, t2=t2).assumption(horizon).smallest_e == t2 + 1
    assert alternating([False, False], t1=t1, t2=t2).assumption(horizon).smallest_e == t1 + 1


def test_a_group_with_a_block_of_0_rounds_is_never_available() -> None:
    assert alternating([True, False], t1=0, t2=3).assumption(9).never_available.tolist() == [0]
    assert alternating([True, False], t1=3, t2=0).assumption(9).never_available.tolist() == [1]
    assert alternating([True, False], t1=0, t2=3).assumption(9).smallest_e is None


def test_alternating_by_hand() -> None:
    table = alternating([True, False], t1=3, t2=2).table(11)
    assert available_rounds(table[:, 0]) == [0, 1, 2, 5, 6, 7, 10]
    assert available_rounds(table[:, 1]) == [3, 4, 8, 9]


def test_always() -> None:
    assert always(3).table(50).all()
    assert always(3).assumption(50).smallest_e == 1


def test_windows_by_hand() -> None:
    """48 rounds a day, so round 2h is the hour h. 23:00 for 2 h, 08:30 for 1 h, 00:00 for half an hour, all day."""
    table = windows([23, 8.5, 0, 7], hours=[2, 1, 0.5, 24], rounds_per_day=48).table(96)
    assert available_rounds(table[:, 0]) == [0, 1, 46, 47, 48, 49, 94, 95]
    assert available_rounds(table[:, 1]) == [17, 18, 65, 66]
    assert available_rounds(table[:, 2]) == [0, 48]
    assert table[:, 3].all()


def test_windows_round_their_start_to_the_nearest_second() -> None:
    """23.9999 h is 23:59:59.64, rounded to midnight; 23.9998 h is 23:59:59.28, rounded to one second before it."""
    assert available_rounds(windows([23.9999], hours=1, rounds_per_day=24).table(24)[:, 0]) == [0]
    assert available_rounds(windows([23.9998], hours=1 / 3600, rounds_per_day=24).table(24)[:, 0]) == []


def test_windows_of_eight_hours_satisfy_assumption_4_with_two_thirds_of_a_day_plus_1() -> None:
    """120 rounds a day: available for 40 of them, then absent for 80."""
    assert windows([0, 5, 20]).assumption(360).smallest_e == 81


@given(
    window=st.tuples(st.integers(0, DAY - 1), st.integers(1, DAY)),
    rounds_per_day=st.integers(1, 200) | st.integers(1, MAX_ROUNDS_PER_DAY),
    rounds=st.lists(st.integers(0, 200) | st.integers(0, 2**31 - 1), min_size=5, max_size=5),
)
@example(window=(DAY - 1, 2), rounds_per_day=MAX_ROUNDS_PER_DAY, rounds=[MAX_ROUNDS_PER_DAY - 1, 0, 1, 2, 3])
def test_windows_equal_an_exact_clock(window: tuple[int, int], rounds_per_day: int, rounds: list[int]) -> None:
    """The reference computes seconds after midnight as a fraction: no rounding, no overflow."""
    start, length = window
    model = windows([start / 3600], hours=length / 3600, rounds_per_day=rounds_per_day)
    for round in rounds:
        since_start = (Fraction(round * DAY, rounds_per_day) - start) % DAY
        assert available(model, round).tolist() == [since_start < length]


def test_compositions_by_hand() -> None:
    day, pair = alternating([True], t1=3, t2=2), alternating([True], t1=1, t2=1)
    assert available_rounds(day.table(10)[:, 0]) == [0, 1, 2, 5, 6, 7]
    assert available_rounds(pair.table(10)[:, 0]) == [0, 2, 4, 6, 8]
    assert available_rounds(both(day, pair).table(10)[:, 0]) == [0, 2, 6]
    assert available_rounds(either(day, pair).table(10)[:, 0]) == [0, 1, 2, 4, 5, 6, 7, 8]
    assert available_rounds(shift(day, rounds=2).table(10)[:, 0]) == [0, 3, 4, 5, 8, 9]
    assert (day & pair).table(10).tolist() == both(day, pair).table(10).tolist()
    assert (day | pair).table(10).tolist() == either(day, pair).table(10).tolist()


def test_lifetime_by_hand() -> None:
    """Arrival is the first round, departure the first round after the last; by default clients do not depart."""
    table = lifetime([0, 2, 4], departure=[1, 5, 4]).table(8)
    assert [available_rounds(column) for column in table.T] == [[0], [2, 3, 4], []]
    assert available_rounds(lifetime([6]).table(8)[:, 0]) == [6, 7]


def test_restrict_does_not_change_the_marked_clients() -> None:
    table = restrict(diurnal([True, True, False], period=2), [True, False, True]).table(4)
    assert [available_rounds(column) for column in table.T] == [[0, 1], [], [2, 3]]


PAIR = np.array([True, False])
INVALID: list[tuple[str, Callable[[], object]]] = [
    ("num_clients=0:", lambda: always(0)),
    ("num_clients=-3:", lambda: always(-3)),
    ("period=0:", lambda: diurnal(PAIR, period=0)),
    ("period=-1:", lambda: diurnal(PAIR, period=-1)),
    ("t1=-1, t2=3:", lambda: alternating(PAIR, t1=-1, t2=3)),
    ("t1=3, t2=-1:", lambda: alternating(PAIR, t1=3, t2=-1)),
    ("t1=0, t2=0:", lambda: alternating(PAIR, t1=0, t2=0)),
    ("in_first_group:", lambda: diurnal([1, 0], period=2)),
    ("in_first_group:", lambda: diurnal(np.zeros(0, bool), period=2)),
    ("in_first_group:", lambda: diurnal([[True, False]], period=2)),
    ("in_first_group:", lambda: alternating(True, t1=1, t2=1)),
    ("start_hour=24.0:", lambda: windows([1, 24])),
    ("start_hour=-0.5:", lambda: windows([-0.5, 3])),
    ("start_hour=nan:", lambda: windows([np.nan])),
    ("start_hour:", lambda: windows(5)),
    ("start_hour:", lambda: windows([])),
    ("hours=0.0:", lambda: windows([1], hours=0)),
    ("hours=24.5:", lambda: windows([1, 2], hours=[3, 24.5])),
    ("hours=nan:", lambda: windows([1], hours=np.nan)),
    ("rounds_per_day=0:", lambda: windows([1], rounds_per_day=0)),
    ("rounds_per_day=24856:", lambda: windows([1], rounds_per_day=24856)),  # 24856 * 86400 > 2**31
    ("rounds=-1:", lambda: shift(always(1), rounds=-1)),
    ("clients:", lambda: restrict(always(2), [1, 0])),
    ("arrival=-1:", lambda: lifetime([0, -1])),
    ("departure=-1:", lambda: lifetime([0], departure=-1)),
    ("arrival: give one", lambda: lifetime([])),
    ("arrival: give one", lambda: lifetime(3)),
    ("period=1073741824:", lambda: diurnal([True, False], period=2**30)),
    ("cannot combine availability of 2 and of 3 clients", lambda: both(always(2), always(3))),
    ("cannot combine availability of 1 and of 2 clients", lambda: either(always(1), always(2))),
    ("clients: give one true or false for each of the 2 clients", lambda: restrict(always(2), [True])),
]


@pytest.mark.parametrize(("message", "make"), INVALID)
def test_invalid_arguments_are_named(message: str, make: Callable[[], object]) -> None:
    with pytest.raises(ConfigError, match="^" + re.escape(message)):
        make()


OTHER_INVALID: dict[str, tuple[str, Callable[[], object]]] = {
    "a window that rounds to 0 seconds": ("hours=0.0001", lambda: windows([0], hours=0.0001)),
    "hours for another number of clients": ("hours", lambda: windows([0, 1], hours=[1, 2, 3])),
    "departures for another number of clients": ("departure", lambda: lifetime([0, 1], departure=[1, 2, 3])),
    "a departure beyond int32": ("departure", lambda: lifetime([0], departure=2**32)),
    "an arrival that is not a whole number": ("arrival", lambda: lifetime([0.5])),
}


@pytest.mark.parametrize("case", OTHER_INVALID)
def test_other_invalid_arguments_are_rejected(case: str) -> None:
    message, make = OTHER_INVALID[case]
    with pytest.raises(ConfigError, match=re.escape(message)):
        make()
