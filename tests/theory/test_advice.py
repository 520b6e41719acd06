"""Advice: its numbers are those of the theorems, and its sentences state what holds and what does not."""

import math

import numpy as np
import pytest

from fedlatest import ConfigError
from fedlatest.theory import Problem, needed_rounds, staleness_bound, step_size, theorem4
from fedlatest.theory.advice import Resonance, TrainingSetting, advise
from fedlatest.theory.stability import StableGain

MNIST = TrainingSetting(1000, 100, 101, 4000, num_local_steps=10)
PROBLEM = Problem(smoothness=10, gradient=5, noise=2, distance=2.3)


def test_numbers_are_those_of_the_theorems() -> None:
    advice = advise(MNIST, smoothness=10, problem=PROBLEM)
    clients = {"num_clients": 1000, "cohort_size": 100, "smallest_e": 101}
    assert advice.staleness == staleness_bound(**clients) == 1009
    assert advice.needed_rounds == needed_rounds(**clients)
    assert advice.step == step_size(**clients, rounds=4000, smoothness=10, num_local_steps=10)
    assert advice.bound == theorem4(
        PROBLEM, num_clients=1000, staleness=1009, learning_rate=advice.step.learning_rate, rounds=4000,
        num_local_steps=10,
    )  # fmt: skip
    assert advice.bound is not None
    assert advice.best_bound is not None
    assert advice.best_bound.total < advice.bound.total


def test_sentences_about_the_papers_setting() -> None:
    """Too few rounds for the speed-up, a bound above G^2, staleness the largest part; a step and a bound exist."""
    text = " ".join(advise(MNIST, smoothness=10, problem=PROBLEM, learning_rate=0.01).sentences)
    assert "too few rounds for the speed-up N^(1/4): Theorem 4 promises it from E N^(3/2) / beta = 31,939,005" in text
    held = (
        "there are 4,000. Its step size and its bound still hold from the round on in which all clients have taken part"
    )
    assert f"{held} (the rounds before add at most 31.5)" in text  # (5 + 2 gamma C L) I G^2 / R
    assert "The largest part of the bound is staleness, 95%: smaller steps, larger cohorts or shorter" in text
    assert "above G^2 = 25, which Assumption 3 already guarantees" in text
    assert "With 200 clients per round instead of 100, I falls from 1009 to 504." in text
    assert "Your step 0.01 is 715 times the theorem's." in text


def test_enough_rounds_and_a_cohort_of_all_clients() -> None:
    advice = advise(TrainingSetting(16, 16, 1, 10**6), smoothness=1, problem=Problem(1, 1, 1, 1), learning_rate=1e-6)
    assert advice.sentences[0] == "There are enough rounds: Theorem 4 promises the speed-up N^(1/4) from 64 rounds on."
    assert "it could be larger" in advice.sentences[1]
    assert "The largest part of the bound is distance" in advice.sentences[2]
    assert advice.sentences[-1] == "The cohort can contain all clients, so only their absence causes staleness (I = 0)."


def test_steps_that_the_theorem_does_not_allow() -> None:
    """With few rounds the formula's step is limited to 1/(4L). A user's step above 1/(2L) is reported."""
    advice = advise(TrainingSetting(100, 100, 1, 10), smoothness=2, learning_rate=0.3)
    assert advice.bound is None
    assert advice.step.learning_rate == 0.125
    assert advice.sentences[1].startswith("The formula's step 0.25 is above 1/(4L) = 0.125, the largest step that the")
    assert advice.sentences[2].startswith("Your step 0.3 is not below 1/(2L) = 0.25: Theorems 3 and 4 do not apply")


def test_invalid_settings_are_rejected() -> None:
    with pytest.raises(ConfigError, match="cohort_size=5"):
        advise(TrainingSetting(4, 5, 1, 10), smoothness=1)
    with pytest.raises(ConfigError, match="smoothness=0"):
        advise(TrainingSetting(4, 2, 1, 10), smoothness=0)


def test_a_bound_of_zero() -> None:
    advice = advise(TrainingSetting(4, 4, 1, 10), smoothness=1, problem=Problem(1, 0, 0, 0))
    assert advice.bound is not None
    assert advice.bound.total == 0
    assert any("nothing to learn" in sentence for sentence in advice.sentences)


def test_the_bound_is_not_said_to_hold_for_a_step_above_the_limit() -> None:
    """beta^(1/2) N^(1/4) / (2 L C (E R)^(1/2)) = 2^(1/2) / 2 > 1/4."""
    advice = advise(TrainingSetting(4, 4, 1, 1), smoothness=1)
    assert not advice.step.allowed
    assert not any("still hold" in sentence for sentence in advice.sentences)


def test_sentences_about_resonance() -> None:
    """The threshold, the swing and the remedy; whether the own gain is above it, below it or unknown."""
    grid = np.array([0.5, 1.0])
    unstable, stable = StableGain(0.69, 24.1, grid, -grid), StableGain(0.96, math.nan, grid, -grid)

    def sentence(resonance: Resonance) -> str:
        return advise(MNIST, smoothness=10, resonance=resonance).sentences[-1]

    above = sentence(Resonance(unstable, stable, 18.0, 0.8, 15.0, 11.0, rounds_per_day=24))
    assert "visits the rarest client every 18 rounds (0.8 days)" in above
    assert "a deviation grows above a gain of 0.69, and swings with a period of 24 rounds (1.0 days)" in above
    assert "a gain of about 0.8 for a curvature of 15, so FedLaAvg may swing" in above
    assert "use fedlaavg_fresh (stable for all gains examined) or more clients" in above
    below = sentence(Resonance(unstable, unstable, 18.0, 0.03, 0.31, 11.0))
    assert "swings with a period of 24 rounds. Your step has a gain of about 0.03" in below
    assert "it would have to grow to 11" in below
    assert "use fedlaavg_fresh (stable up to 0.69)" in below
    assert "Give the step to compare its gain" in sentence(Resonance(unstable, stable, 18.0))
    assert sentence(Resonance(stable, stable, 18.0)).startswith("FedLaAvg does not resonate with this availability")


def test_one_local_step_has_the_constants_of_theorem_3() -> None:
    """With N = K = E = C = 1 there is no staleness, so no part of the bound is due to it."""
    advice = advise(TrainingSetting(1, 1, 1, 100), smoothness=1, problem=Problem(1, 1, 1, 1))
    assert advice.bound is not None
    assert advice.bound.staleness == 0
    assert advice.cold_start == 0


def test_a_distance_of_zero_has_no_best_step() -> None:
    advice = advise(TrainingSetting(1, 1, 1, 100), smoothness=1, problem=Problem(1, 1, 1, 0))
    assert advice.best_step is None
    assert any("With B = 0 the initial model is optimal already" in sentence for sentence in advice.sentences)
    assert not any("the bound is smallest with" in sentence for sentence in advice.sentences)
