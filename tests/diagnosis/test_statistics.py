"""Statistics of hand-sized fleets, and correlations against their definitions."""

import numpy as np
import pytest

from fedlatest.diagnosis import diagnose, fleet_of_spells
from fedlatest.diagnosis.correlation import (
    autocorrelation,
    between_clients,
    correlation_facts,
    label_association,
    size_association,
)
from fedlatest.diagnosis.statistics import availability_facts
from tests.diagnosis.fleets import DAY, by_day_and_night, fleet, halves, random_fleet


def test_facts_of_a_small_fleet() -> None:
    """Client 0 is absent for 2 rounds between spells of 1 and 3, client 1 never comes back, client 2 never comes."""
    table = np.array([[1, 1, 0], [0, 1, 0], [0, 0, 0], [1, 0, 0], [1, 0, 0], [1, 0, 0]], bool)
    facts = availability_facts(fleet(table))
    assert facts.shares == [0.0, pytest.approx(1 / 6), pytest.approx(1 / 3), 0.5, pytest.approx(2 / 3)]
    assert (facts.num_never, facts.never, facts.num_seen, facts.num_left) == (1, ["2"], 2, 1)
    assert (facts.longest_absence, facts.smallest_e, facts.median_longest_absence) == (4, 5, 3.0)
    assert facts.most_absent == [("1", 4), ("0", 2)]
    assert (facts.median_spell, facts.median_gap) == (2.0, 2.0)
    assert facts.available[0] == 0
    assert facts.available[-1] == 2
    assert (facts.round_seconds, facts.days) == (None, None)


def test_spells_and_gaps_are_not_those_of_the_rounds() -> None:
    """Spells of 10 and 100 s, 20 s apart, with rounds of 60 s; client c is available between two rounds only."""
    spells = np.array([[0, 0, 10], [0, 30, 40], [1, 0, 100], [1, 120, 220], [1, 240, 300], [2, 70, 80]], float)
    made = fleet_of_spells(
        spells[:, 0].astype(int), spells[:, 1], spells[:, 2], names=list("abcd"), source="", unit=1, round_length=60
    )
    facts = availability_facts(made)
    assert (facts.median_spell * 60, facts.median_gap * 60) == pytest.approx((35, 20))
    assert (facts.num_never, facts.num_between, facts.never, facts.num_seen) == (2, 1, ["d"], 2)
    text = " ".join(diagnose(made).recommendation.warnings)
    assert "1 of 4 clients were available, but not at the start of any round; use shorter rounds" in text
    assert "1 of 4 clients were never available (d)" in text


def test_autocorrelation_is_that_of_the_definition() -> None:
    table = random_fleet([0.2, 0.5, 0.9, 0.0], rounds=31)
    deviations = table - table.mean(axis=0)
    variance = (deviations**2).sum() / 31
    direct = [(deviations[: 31 - lag] * deviations[lag:]).sum() / (31 - lag) / variance for lag in range(16)]
    assert np.allclose(autocorrelation(table), direct)


def test_mean_correlation_of_pairs() -> None:
    rng = np.random.default_rng(0)
    table = random_fleet([0.3, 0.5, 0.6, 0.7], rounds=50) | (rng.random((50, 1)) < 0.3)
    pairs, dispersion = between_clients(np.c_[table, np.ones(50, bool)])  # the last client never changes
    matrix = np.asarray(np.corrcoef(table.T))
    assert pairs == pytest.approx(matrix[~np.eye(4, dtype=bool)].mean())
    assert dispersion == pytest.approx(table.sum(axis=1).var() / table.var(axis=0).sum())


def test_independent_clients_are_not_overdispersed() -> None:
    facts = correlation_facts(fleet(random_fleet(np.full(50, 0.4), rounds=4000)))
    assert facts.overdispersion == pytest.approx(1, abs=0.1)
    assert facts.pair_correlation == pytest.approx(0, abs=0.005)
    assert (facts.cycle, facts.correlation_time) == (None, 1.0)


def test_always_available_clients_have_no_correlation() -> None:
    facts = correlation_facts(fleet(np.ones((20, 3), bool)))
    assert (facts.pair_correlation, facts.overdispersion, facts.cycle, facts.correlation_time) == (None,) * 4


def test_a_cycle_is_found_although_the_number_available_is_constant() -> None:
    """As in Example 1: one half of the clients by day, the other by night."""
    facts = correlation_facts(fleet(by_day_and_night()))
    assert (facts.cycle, facts.cycle_is_day) == (DAY, False)
    assert facts.day_to_day == pytest.approx(1)


def test_a_weak_daily_cycle_is_found_and_none_in_noise() -> None:
    """Rates of 0.3 + 0.2 sin, and of 0.3; the rounds last half an hour."""
    rounds = np.arange(DAY * 8)
    rates = 0.3 + 0.2 * np.sin(2 * np.pi * rounds / DAY)
    rng = np.random.default_rng(0)
    weak = rng.random((rounds.size, 200)) < rates[:, None]
    found = correlation_facts(fleet(weak, round_seconds=1800))
    assert (found.cycle, found.cycle_is_day) == (DAY, True)
    assert correlation_facts(fleet(rng.random((rounds.size, 200)) < 0.3, round_seconds=1800)).cycle is None


def test_labels_and_sizes() -> None:
    """Labels that determine the share of time explain all of it; labels in turn explain nothing."""
    shares = np.repeat([0.2, 0.8], 20)
    strong = label_association(shares, halves())
    assert strong is not None
    assert (strong.strength, strong.p_value) == pytest.approx((1, 0.001))
    weak = label_association(shares, ["0", "1"] * 20)
    assert weak is not None
    assert weak.strength == pytest.approx(0)
    assert weak.p_value > 0.5
    assert label_association(np.full(40, 0.5), halves()) is None
    growing = size_association(np.arange(10.0), np.arange(10.0) ** 3)
    assert growing is not None
    assert (growing.strength, growing.p_value) == pytest.approx((1, 0.001))
    assert size_association(np.arange(10.0), np.ones(10)) is None
