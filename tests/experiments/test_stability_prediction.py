"""Predictions of stability from an availability model, against the closed form for clients in turn."""

from dataclasses import replace

import numpy as np
import pytest

from fedlatest import ConfigError, always, fedlaavg
from fedlatest.experiments.stability_prediction import local_training, predict_resonance, predict_stability
from fedlatest.simulation import ExperimentSpec
from fedlatest.theory.method_stability import METHODS, LocalTraining
from fedlatest.theory.stability import round_robin_threshold
from tests.problems import MODEL, small_federation


def test_always_available_clients_take_turns() -> None:
    """Two of 20 clients in a round: oldest-first is a round robin of ten rounds, whatever the number of local steps.

    Uniform selection gives another threshold; the fresh step is stable at a higher gain than the average.
    """
    threshold = round_robin_threshold(10)
    for num_local_steps in (1, 5):
        training = LocalTraining(np.ones(20), num_local_steps, learning_rate=0.1)
        found = predict_stability(always(20), training, cohort_size=2, rounds=1000)
        by_title = {each.method.title: each for each in found}
        assert list(by_title) == [method.title for method in METHODS]
        average, fresh = by_title["FedLaAvg"], by_title["FedLaAvg, step 1/K"]
        assert average.stable.gain == pytest.approx(threshold, rel=0.01)
        assert average.stable.swing == pytest.approx(20, rel=0.02)
        assert average.mean_staleness == pytest.approx(4.5)
        assert average.rarest_visits == 10
        assert fresh.stable.gain > 1.2 * threshold
        assert not by_title["FedLaAvg, fresh"].stable.exists
        assert 4.5 < by_title["FedLaAvg, fresh"].mean_staleness < 6
        assert by_title["FedLaAvg, uniform"].mean_staleness > 8
    limit = training.curvature(average.stable.gain)
    assert limit is not None
    assert training.gain(limit) == pytest.approx(average.stable.gain)


def test_resonance_compares_the_gain_of_the_step_with_the_threshold() -> None:
    """Five local steps of 0.1 with curvature 2 have a gain of 1 - 0.8^5."""
    training = LocalTraining(np.ones(20), 5, learning_rate=0.1)
    found = predict_resonance(always(20), training, cohort_size=2, curvature=2, rounds_per_day=40)
    assert found is not None
    assert found.gain == pytest.approx(1 - 0.8**5)
    assert found.stable.exists
    assert found.curvature_limit == pytest.approx((1 - (1 - found.stable.gain) ** 0.2) / 0.1)
    assert predict_resonance(always(10**6), LocalTraining(np.ones(10**6), 1), cohort_size=2) is None


def test_weights_of_an_experiment() -> None:
    """Weights count where they multiply the losses; the largest gain examined is limited by the largest weight."""
    spec = ExperimentSpec(
        federation=small_federation(), model=MODEL, algorithm=fedlaavg(), availability=always(6), cohort_size=2,
        num_local_steps=3, batch_size=1, learning_rate=0.1, rounds=5,
    )  # fmt: skip
    training = local_training(spec, 0.1)
    np.testing.assert_allclose(training.weights, spec.federation.weights)
    largest = training.weights.max()
    assert largest > 1.2
    assert training.largest_gain == pytest.approx(1 - (1 - 1 / largest) ** 3)
    unweighted = local_training(replace(spec, algorithm=fedlaavg(weighting="none")), 0.1)
    assert (unweighted.weights == 1).all()


def test_invalid_settings_are_rejected() -> None:
    with pytest.raises(ConfigError, match=r"1,000,000 clients, 4,000 rounds: too many .* use fewer than 67 rounds"):
        predict_stability(always(10**6), LocalTraining(np.ones(10**6), 1), cohort_size=2)
    with pytest.raises(ConfigError, match="learning_rate: is needed"):
        LocalTraining(np.ones(2), 1).gain(1.0)
