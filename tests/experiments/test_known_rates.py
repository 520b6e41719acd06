"""Participation rates of uniformly drawn cohorts under availability models."""

import numpy as np
import pytest

from fedlatest import ConfigError, always, bernoulli, lifetime
from fedlatest.data import load_digits
from fedlatest.experiments import FederationBuilder, known_rates
from fedlatest.experiments.experiment import Experiment
from fedlatest.experiments.known_rates import participation_rates
from fedlatest.experiments.mnist import DEFAULTS
from fedlatest.experiments.settings import resolve


def test_everyone_available_shares_the_cohort() -> None:
    np.testing.assert_allclose(participation_rates(always(8), rounds=5, cohort_size=2), 0.25)


def test_independent_draws_with_room_for_all_have_their_own_rate() -> None:
    rates = np.array([0.1, 0.5, 0.9])
    found = participation_rates(bernoulli(rates), rounds=2000, cohort_size=3)
    np.testing.assert_allclose(found, rates, atol=5 * np.sqrt(0.25 / (2000 * known_rates.NUM_SEEDS)))


def test_a_client_that_is_never_available_has_the_smallest_rate() -> None:
    found = participation_rates(lifetime([0, 0], departure=[10, 0]), rounds=10, cohort_size=2)
    assert found.tolist() == [1.0, 0.1]


def test_experiments_provide_the_rates_that_an_algorithm_requires() -> None:
    """Label i is available with probability 0.1 + 0.8 i / 9; all available clients take part."""
    overrides = [
        "algorithm=inverse_probability", "rates=known", "availability=labels", "num_clients=20", "participation=1.0",
        "rounds=500",
    ]  # fmt: skip
    builder = FederationBuilder(load_digits())
    spec = Experiment("x", resolve(DEFAULTS, overrides)).spec(builder)
    expected = 0.1 + 0.8 * spec.federation.client_labels() / 9
    np.testing.assert_allclose(np.asarray(spec.rates), expected, atol=0.05)
    counted = Experiment("x", resolve(DEFAULTS, ["algorithm=inverse_probability", "num_clients=20"])).spec(builder)
    assert counted.rates is None
    with pytest.raises(ConfigError, match="rates"):
        resolve(DEFAULTS, ["rates=known"])
