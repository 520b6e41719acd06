"""Named availability models: label-dependent rates, departures, and keys that have no effect."""

import re
from typing import Any

import numpy as np
import pytest

from fedlatest import ConfigError
from fedlatest.availability import AVAILABILITY, ClientInfo

SHARES = np.array([[1, 0, 0, 0], [0, 0, 0, 1], [0.5, 0, 0.5, 0], [0.25, 0.25, 0.25, 0.25]], np.float32)
CLIENTS = ClientInfo(np.array([0, 3, 0, 0]), 4, seed=5, label_shares=SHARES)
MANY = ClientInfo(np.arange(100) // 10, 10, seed=3)


def rates_of(name: str, **keys: Any) -> list[float]:
    """The probabilities in the first round, in which a staircase is at its upper level and a sine at 1 - amplitude."""
    probability = AVAILABILITY[name](CLIENTS, **keys).probability(0)
    assert probability is not None
    return np.asarray(probability, float).tolist()


def test_rates_from_labels_are_means_over_the_samples_of_a_client() -> None:
    """Clients 0 and 1 hold one label each, so their rates are those of labels 0 and 3; client 3 has the mean of all."""
    by_label = ClientInfo(np.arange(4), 4, seed=5).rates_from_labels(1.0, 0.5)
    rates = CLIENTS.rates_from_labels(1.0, 0.5)
    mean_of_two = (by_label[0] + by_label[2]) / 2
    np.testing.assert_allclose(rates, [by_label[0], by_label[3], mean_of_two, by_label.mean()], rtol=1e-6)


def test_rates_of_labels_are_uniform_below_their_bounds() -> None:
    """Of 4000 labels: the mean of n uniform draws in [0, b] has standard deviation b / sqrt(12 n)."""
    info = ClientInfo(np.arange(4000), 4000, seed=1)
    rates = info.rates_from_labels(1.0, 0.5)
    for half, bound in ((rates[:2000], 1.0), (rates[2000:], 0.5)):
        assert 0 <= half.min() < 0.01 < 0.99 * bound < half.max() <= bound
        assert abs(half.mean() - bound / 2) < 6 * bound / np.sqrt(12 * 2000)
    assert info._replace(seed=2).rates_from_labels(1.0, 0.5).tolist() != rates.tolist()


@pytest.mark.parametrize(
    ("name", "factor"),
    [("bernoulli", 1), ("markov", 1), ("staircase", 1), ("sine", 0.7), ("interleaved_sine", 0.7), ("departures", 1)],
)
def test_every_model_with_rates_takes_them_from_the_labels(name: str, factor: float) -> None:
    min_rate = {"min_rate": 0.0} if name == "interleaved_sine" else {}
    expected = factor * CLIENTS.rates_from_labels(0.8, 0.3)
    np.testing.assert_allclose(
        rates_of(name, rate_by="labels", label_max=0.8, label_max_rest=0.3, **min_rate), expected
    )


def test_min_rate_silences_clients_with_a_low_rate() -> None:
    assert rates_of("interleaved_sine", rate=0.1) == [0, 0, 0, 0]
    np.testing.assert_allclose(rates_of("interleaved_sine", rate=0.2), 0.14)


@pytest.mark.parametrize("leavers", ["random", "labels"])
def test_departures(leavers: str) -> None:
    """30 of 100 clients leave in round 8; by label, these are the 30 clients with the labels 0, 1 and 2."""
    table = AVAILABILITY["departures"](MANY, leaving=0.3, departure=8, leavers=leavers, rate=1.0).table(20)
    assert table[:8].all()
    assert (~table[8:]).sum(axis=1).tolist() == [30] * 12
    assert (table[8:] == table[8]).all()
    gone = np.flatnonzero(~table[8])
    assert (gone.tolist() == list(range(30))) == (leavers == "labels")


def test_departures_of_diurnal_clients() -> None:
    """Label 0 in rounds 0-1 and 4-5, the others in 2-3 and 6-7; half of the clients, by label, leave in round 5."""
    keys = {"intermittent": "diurnal", "period": 2, "digits": 1, "leaving": 0.5, "departure": 5, "leavers": "labels"}
    table = AVAILABILITY["departures"](MANY, **keys).table(8)
    assert table.sum(axis=1).tolist() == [10, 10, 90, 90, 10, 0, 50, 50]


def test_departures_of_markov_clients_keep_their_correlation() -> None:
    """A chain is redrawn with a probability of at most 0.01 in 5 of 500 rounds: nearly all clients stay as they are."""
    keys = {"intermittent": "markov", "correlation": 500.0, "leaving": 1.0, "departure": 6}
    table = AVAILABILITY["departures"](MANY, **keys).table(9)
    assert 20 < table[0].sum() < 80
    assert (table[:6] == table[0]).mean() > 0.95
    assert not table[6:].any()


@pytest.mark.parametrize(
    ("name", "keys", "message"),
    [
        ("bernoulli", {"rate_by": "labels", "rate": 0.3}, "rate=0.3: has no effect with rate_by=labels"),
        ("bernoulli", {"rate_by": "labels", "spread": 0.1}, "spread=0.1: has no effect with rate_by=labels"),
        ("markov", {"rate_by": "labels", "share": 0.3}, "share=0.3: has no effect with rate_by=labels"),
        ("staircase", {"label_max": 0.3}, "label_max=0.3: has no effect with rate_by=uniform"),
        ("sine", {"rate_by": "labels", "label_max": 1.5}, "label_max=1.5: must be in [0, 1]"),
        ("sine", {"rate_by": "labels", "label_max_rest": -1.0}, "label_max_rest=-1.0: must be in [0, 1]"),
        ("staircase", {"low": 2.0}, "low=2.0"),
        ("interleaved_sine", {"min_rate": 2.0}, "min_rate=2.0"),
        ("departures", {"leaving": 1.5}, "leaving=1.5: must be in [0, 1]"),
        ("departures", {"departure": -1}, "departure=-1: must be in 0 .."),
        ("departures", {"period": 5}, "period=5: has no effect with intermittent=bernoulli"),
        ("departures", {"correlation": 5.0}, "correlation=5.0: has no effect with intermittent=bernoulli"),
        (
            "departures",
            {"intermittent": "diurnal", "rate_by": "labels"},
            "rate_by=labels: has no effect with intermittent=diurnal",
        ),
        ("departures", {"intermittent": "markov", "digits": 2}, "digits=2: has no effect with intermittent=markov"),
    ],
)
def test_invalid_and_ineffective_keys_are_named(name: str, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match="^" + re.escape(message)):
        AVAILABILITY[name](CLIENTS, **keys)
