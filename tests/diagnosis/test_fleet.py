"""Fleets from spells and tables, against the availability model of the simulator."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlatest import ConfigError, DataError, Interval, trace
from fedlatest.diagnosis import fleet_of_spells, fleet_of_table

SPELL = st.tuples(st.integers(0, 3), st.floats(0, 40), st.floats(0.1, 20))


@given(st.lists(SPELL, min_size=1, max_size=12), st.sampled_from([1.0, 0.7, 2.5]))
def test_the_table_is_that_of_the_simulator(spells: list[tuple[int, float, float]], round_length: float) -> None:
    clients, starts, lengths = (np.array(column) for column in zip(*spells, strict=True))
    ends = starts + lengths
    try:
        model = trace(
            [Interval(*row) for row in zip(clients.tolist(), starts.tolist(), ends.tolist(), strict=True)],
            num_clients=4, round_length=round_length,
        )  # fmt: skip
    except ConfigError:  # no interval contains a round
        with pytest.raises(ConfigError, match="shorter rounds"):
            fleet_of_spells(clients, starts, ends, names=list("abcd"), source="", round_length=round_length)
        return
    fleet = fleet_of_spells(clients, starts, ends, names=list("abcd"), source="", round_length=round_length)
    assert np.array_equal(fleet.available, model.table(fleet.num_rounds))
    moments = np.random.default_rng(0).random(50) * fleet.length
    for client in range(4):
        own = clients == client
        inside = [bool(((starts[own] <= moment) & (moment < ends[own])).any()) for moment in moments]
        merged = fleet.spells.clients == client
        first, last = fleet.spells.starts[merged], fleet.spells.ends[merged]
        assert [bool(((first <= moment) & (moment < last)).any()) for moment in moments] == inside
        assert (first[1:] > last[:-1]).all()


def test_a_trace_of_a_day_or_longer_is_in_seconds() -> None:
    names = ["a", "b"]
    short = fleet_of_spells(np.array([0, 1]), np.array([0.0, 5]), np.array([9.0, 90]), names=names, source="")
    assert (short.unit, short.num_rounds, short.day) == (None, 90, None)
    long = fleet_of_spells(np.array([0, 1]), np.array([0.0, 5]), np.array([9e3, 2e5]), names=names, source="")
    assert (long.unit, long.num_rounds, long.day) == (1.0, 667, 288.0)
    hours = fleet_of_spells(
        np.array([0, 1]), np.array([0.0, 5]), np.array([30.0, 48]), names=names, source="", unit=3600
    )
    assert (hours.num_rounds, hours.day) == (576, 288.0)


def test_rounds_begin_with_the_first_day() -> None:
    """A trace in seconds since 1970 has no rounds before its first day."""
    start = 1_700_000_000.0
    fleet = fleet_of_spells(
        np.array([0, 1]), np.array([start, start]), np.array([start + 9e4, start + 50]), names=["a", "b"], source=""
    )
    assert fleet.moments[0] == 0
    assert fleet.num_rounds == (start % 86400 + 9e4) // 300 + 1


def test_a_table_keeps_its_times() -> None:
    fleet = fleet_of_table(
        np.array([[True, False], [True, True], [False, True]]), names=["a", "b"], source="", moments=[0, 10, 30, 35]
    )
    assert fleet.spells.starts.tolist() == [0, 10]
    assert fleet.spells.ends.tolist() == [30, 35]


def test_errors() -> None:
    none, one = np.zeros(0), np.zeros(1)
    with pytest.raises(DataError, match="no interval"):
        fleet_of_spells(none.astype(int), none, none, names=["a", "b"], source="t.csv")
    with pytest.raises(DataError, match=r"t\.csv.*one client"):
        fleet_of_spells(one.astype(int), one, one + 1, names=["a"], source="t.csv")
    with pytest.raises(ConfigError, match="round_length=-1"):
        fleet_of_spells(one.astype(int), one, one + 1, names=["a", "b"], source="", round_length=-1)
    with pytest.raises(ConfigError, match="too many; use rounds of at least"):
        fleet_of_spells(one.astype(int), one, one + 1e12, names=["a", "b"], source="")
    with pytest.raises(DataError, match="no client has been available"):
        fleet_of_table(np.zeros((3, 2), bool), names=["a", "b"], source="job")
