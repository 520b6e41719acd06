"""Fleets from spells and tables, against the availability model of the simulator."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlatest import ConfigError, DataError, Interval, trace
from fedlatest.diagnosis import Fleet, diagnose, fleet_of_spells, fleet_of_table

SPELL = st.tuples(st.integers(0, 3), st.floats(0, 40), st.floats(0.1, 20))


@given(st.lists(SPELL, min_size=1, max_size=12), st.sampled_from([1.0, 0.7, 2.5]))
def test_the_table_is_that_of_the_simulator(spells: list[tuple[int, float, float]], round_length: float) -> None:
    clients, starts, lengths = (np.array(column) for column in zip(*spells, strict=True))
    ends = starts + lengths
    starts, ends = starts - starts.min(), ends - starts.min()  # the record begins with the first spell
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


def phones(offset: float, *, unit: float | None = None, round_length: float | None = None) -> Fleet:
    """Return 30 clients with one spell on each of six days, at hours of their own, and all times later by `offset`."""
    rng = np.random.default_rng(0)
    clients, days = (grid.ravel() for grid in np.meshgrid(np.arange(30), np.arange(6)))
    starts = np.floor(days * 86400 + clients % 10 * 6000 + 3600 * rng.random(180))
    ends = starts + np.floor(14400 * rng.random(180)) + 600
    starts, ends = starts + offset, ends + offset
    names = [str(client) for client in range(30)]
    return fleet_of_spells(clients, starts, ends, names=names, source="", unit=unit, round_length=round_length)


@pytest.mark.parametrize("offset", [86400.0, 19_675 * 86400.0, 72_000.0, 1_700_000_123.0, -71_234.0])
def test_all_facts_are_those_of_a_trace_that_begins_earlier(offset: float) -> None:
    """Time before the first spell is not a time in which nobody was available. Only the hours of the day move."""
    original, later = diagnose(phones(0)), diagnose(phones(offset))
    assert original.correlation.cycle_is_day
    same_hours = dataclasses.replace(later.pictures, profile=original.pictures.profile)
    assert dataclasses.replace(later, pictures=same_hours) == original
    if offset % 86400 == 0:
        assert later == original
    else:
        assert later.pictures.profile != original.pictures.profile


def test_a_short_trace_of_an_unknown_unit_begins_with_its_first_spell() -> None:
    start = 1_700_000_000.0
    fleet = fleet_of_spells(
        np.array([0, 1]), np.array([start, start + 9]), np.array([start + 36_000, start + 50]), names=["a", "b"],
        source="",
    )  # fmt: skip
    assert (fleet.unit, fleet.num_rounds, fleet.midnight) == (None, 36_000, 0.0)
    assert fleet.available[0].tolist() == [True, False]


def test_the_profile_is_over_hours_since_midnight() -> None:
    """Everyone is available from 6 to 12 o'clock; the record begins at 6."""
    starts = np.repeat(np.arange(5) * 86400.0 + 6 * 3600, 4)
    fleet = fleet_of_spells(
        np.tile(np.arange(4), 5), starts, starts + 6 * 3600, names=list("abcd"), source="", round_length=1800
    )  # fmt: skip
    found = diagnose(fleet)
    busy = [24 * phase for phase, mean, _, _ in found.pictures.profile if mean > 0]
    assert (min(busy), max(busy)) == pytest.approx((6.25, 11.75))


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
