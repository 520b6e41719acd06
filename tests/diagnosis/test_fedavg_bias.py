"""The weights of FedAvg's limit, against Theorem 1 and against simulations of FedAvg on quadratics."""

import numpy as np
import pytest

from fedlatest.diagnosis.fedavg_bias import fedavg_bias, fedavg_weights
from fedlatest.theory import Example1
from tests.diagnosis.fleets import by_day_and_night, fleet, halves, random_fleet


@pytest.mark.parametrize(("t1", "t2"), [(30, 10), (1, 1), (7, 2)])
def test_two_clients_in_turn_give_theorem_1(t1: int, t2: int) -> None:
    example = Example1(t1=t1, t2=t2, e1=-1.0, e2=4.0)
    table = np.arange(3 * (t1 + t2)) % (t1 + t2) < t1
    weights = fedavg_weights(np.c_[table, ~table], np.array([0.5, 0.5]))
    assert weights @ [example.e1, example.e2] == pytest.approx(example.small_step_limit)


@pytest.mark.parametrize("cohort_size", [1, 3, 20])
def test_fedavg_on_quadratics_reaches_the_minimum_with_these_weights(cohort_size: int) -> None:
    """Eight clients with rates 0.1 to 0.9, f_i = w_i N (x - e_i)^2 / 2: often fewer than three are available.

    The mean of x over the second half of 60,000 rounds with steps of 0.01; its error is the noise of the draws.
    Weights proportional to the participation rates, without the division by the size of the cohort, would give 10.2
    instead of 9.4 with K = 3.
    """
    rng = np.random.default_rng(1)
    table = random_fleet(np.linspace(0.1, 0.9, 8), rounds=60_000) & (rng.random((60_000, 1)) < 0.6)
    table[::3, 4:] = False  # in every third round only the rare clients
    centres, sizes = np.linspace(-3, 5, 8) ** 2, np.array([1, 2, 1, 1, 3, 1, 1, 2.0])
    fair = sizes / sizes.sum()
    x, mean = 0.0, 0.0
    for number, available in enumerate(table):
        clients = np.flatnonzero(available)
        if clients.size:
            cohort = rng.permutation(clients)[:cohort_size]
            x -= 0.01 * (8 * fair[cohort] * (x - centres[cohort])).mean()
        if number >= 30_000:
            mean += x / 30_000
    predicted = fedavg_weights(table, fair) @ centres
    assert mean == pytest.approx(predicted, abs=0.12)
    assert abs(predicted - fair @ centres) > 1


def test_the_distance_bounds_the_error() -> None:
    table = random_fleet(np.linspace(0.1, 0.9, 10))
    bias, centres = fedavg_bias(fleet(table)), np.random.default_rng(0).random(10)
    error = abs((fedavg_weights(table, np.full(10, 0.1)) - 0.1) @ centres)
    assert 0 < error <= bias.total_variation * np.ptp(centres)


@pytest.mark.parametrize("cycle", [None, 48.0])
@pytest.mark.parametrize(("num_clients", "rate"), [(60, 0.5), (300, 0.15), (1000, 0.05)])
def test_clients_with_equal_rates_differ_by_chance(num_clients: int, rate: float, cycle: float | None) -> None:
    """Independent draws: both distances are those by chance, whatever is divided into windows."""
    bias = fedavg_bias(fleet(random_fleet(np.full(num_clients, rate))), cycle=cycle)
    assert bias.chance == pytest.approx(bias.total_variation, rel=0.1)
    assert bias.window_chance == pytest.approx(bias.window_variation, rel=0.1)
    assert bias.window_variation > 0.045
    assert bias.excess < 0.015


def test_spells_of_equal_clients_differ_by_chance() -> None:
    """Clients that stay for 5 rounds and are away for 20, on average: fewer independent draws than rounds."""
    rng = np.random.default_rng(0)
    state, rows = rng.random(200) < 0.2, []
    for _ in range(2000):
        state = np.where(state, rng.random(200) >= 1 / 5, rng.random(200) < 1 / 20)
        rows.append(state)
    bias = fedavg_bias(fleet(np.array(rows)))
    assert bias.chance == pytest.approx(bias.total_variation, rel=0.1)
    assert bias.window_chance == pytest.approx(bias.window_variation, rel=0.1)


@pytest.mark.parametrize(("num_clients", "rate", "rounds"), [(100, 0.05, 100), (1000, 0.01, 100), (50, 0.1, 40)])
def test_weights_of_clients_that_are_rarely_available_count_as_chance(
    num_clients: int, rate: float, rounds: int
) -> None:  # fmt: skip
    bias = fedavg_bias(fleet(random_fleet(np.full(num_clients, rate), rounds=rounds)))
    assert bias.window_variation > 0.45
    assert bias.excess < 0.02


def test_parts_with_clients_without_samples_only() -> None:
    """Client 0 has no samples and is alone in the first quarter: FedAvg has no weights there."""
    table = np.ones((64, 4), bool)
    table[:16, 1:] = False
    bias = fedavg_bias(fleet(table, sizes=np.array([0, 1, 1, 2.0])))
    assert (bias.total_variation, bias.chance, bias.window_variation, bias.window_chance) == pytest.approx((0,) * 4)


def test_a_bias_is_more_than_chance() -> None:
    """Rates of 0.1 to 0.9, and halves by day and by night, which repeat exactly."""
    rates = fedavg_bias(fleet(random_fleet(np.linspace(0.1, 0.9, 60))))
    assert (rates.chance < 0.03, rates.excess > 0.17) == (True, True)
    night = fedavg_bias(fleet(by_day_and_night()), cycle=48)
    assert (night.chance, night.window_chance, night.excess) == pytest.approx((0, 0, 0.5))


def test_always_available_clients_have_fair_weights() -> None:
    bias = fedavg_bias(fleet(np.ones((50, 20), bool), sizes=np.arange(1.0, 21)))
    assert bias.total_variation == pytest.approx(0)
    assert bias.window_variation == pytest.approx(0)
    assert bias.effective_clients == pytest.approx(bias.fair_clients)
    assert bias.top_share == pytest.approx(bias.fair_top_share)


def test_day_and_night_by_label() -> None:
    """Both labels have their fair weight over all rounds, and all or nothing in each eighth of the day."""
    bias = fedavg_bias(fleet(by_day_and_night(), labels=halves()), cycle=48)
    assert bias.total_variation == pytest.approx(0)
    assert bias.window_variation == pytest.approx(0.5)
    assert bias.label_variation is not None
    assert bias.label_window_variation is not None
    assert bias.label_variation.strength == pytest.approx(0)
    assert (bias.label_window_variation.strength, bias.label_window_variation.p_value) == pytest.approx((0.5, 0.001))
    assert bias.labels is not None
    assert [(shift.label, shift.clients) for shift in bias.labels] == [("0", 20), ("1", 20)]
    for shift in bias.labels:
        assert (shift.lowest, shift.highest, shift.fedavg) == pytest.approx((0, 1, 0.5))


def test_effective_clients_and_top_share() -> None:
    """One of ten clients is always alone: it has half of the weight if it has half of the rounds."""
    table = np.zeros((20, 10), bool)
    table[::2, 0] = True
    table[1::2] = True
    bias = fedavg_bias(fleet(table))
    assert bias.top_share == pytest.approx(0.55)
    assert bias.fair_top_share == pytest.approx(0.1)
    assert bias.total_variation == pytest.approx(0.45)
    assert bias.effective_clients == pytest.approx(1 / (0.55**2 + 9 * 0.05**2))
