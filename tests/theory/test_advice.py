"""Advice: the numbers are the theorems', and the words say what holds and what does not."""

import pytest

from fedlatest import ConfigError
from fedlatest.theory import Problem, needed_rounds, staleness_bound, step_size, theorem4
from fedlatest.theory.advice import Setting, advise

MNIST = Setting(1000, 100, 101, 4000, num_local_steps=10)
PROBLEM = Problem(smoothness=10, gradient=5, noise=2, distance=2.3)


def test_numbers_are_the_theorems() -> None:
    advice = advise(MNIST, smoothness=10, problem=PROBLEM)
    who = {"num_clients": 1000, "cohort_size": 100, "smallest_e": 101}
    assert advice.staleness == staleness_bound(**who) == 1009
    assert advice.needed_rounds == needed_rounds(**who)
    assert advice.step == step_size(**who, rounds=4000, smoothness=10, num_local_steps=10)
    assert advice.bound == theorem4(
        PROBLEM, num_clients=1000, staleness=1009, learning_rate=advice.step.learning_rate, rounds=4000,
        num_local_steps=10,
    )  # fmt: skip
    assert advice.bound is not None
    assert advice.best_bound is not None
    assert advice.best_bound.total < advice.bound.total


def test_the_papers_setting_is_told_plainly() -> None:
    """Too few rounds for the speed-up, a bound above G^2, staleness in the way; and still a step and a bound."""
    words = " ".join(advise(MNIST, smoothness=10, problem=PROBLEM, learning_rate=0.01).words)
    assert "too few rounds: Theorem 4 promises its speed-up N^(1/4) from E N^(3/2) / beta = 31,939,005 on" in words
    assert "there are 4,000. Its step size and its bound hold all the same" in words
    assert "Of the bound, staleness is 95%: smaller steps, more participants a round or shorter absences" in words
    assert "above G^2 = 25, which Assumption 3 gives for nothing" in words
    assert "With 200 participants a round, not 100, I falls from 1009 to 504." in words
    assert "Your step 0.01 is 715 times the theorem's." in words


def test_enough_rounds_and_everybody() -> None:
    advice = advise(Setting(16, 16, 1, 10**6), smoothness=1, problem=Problem(1, 1, 1, 1), learning_rate=1e-6)
    assert advice.words[0] == "There are enough rounds: the speed-up N^(1/4) is promised from 64 on."
    assert "it could be larger" in advice.words[1]
    assert "Of the bound, distance is" in advice.words[2]
    assert advice.words[-1] == "Everybody may take part in every round; staleness comes from absence alone (I = 0)."


def test_steps_beyond_the_theorem() -> None:
    """Few rounds: the formula's step is cut at 1/(4L). A user's step beyond 1/(2L) is told so."""
    advice = advise(Setting(100, 100, 1, 10), smoothness=2, learning_rate=0.3)
    assert advice.bound is None
    assert advice.step.learning_rate == 0.125
    assert advice.words[1].startswith("The formula's step 0.25 is above 1/(4L) = 0.125, which the theorem asks for, so")
    assert advice.words[2].startswith("Your step 0.3 is not below 1/(2L) = 0.25: Theorems 3 and 4 say nothing")


def test_nonsense() -> None:
    with pytest.raises(ConfigError, match="cohort_size=5"):
        advise(Setting(4, 5, 1, 10), smoothness=1)
    with pytest.raises(ConfigError, match="smoothness=0"):
        advise(Setting(4, 2, 1, 10), smoothness=0)


def test_nothing_to_learn_is_no_division_by_zero() -> None:
    advice = advise(Setting(4, 4, 1, 10), smoothness=1, problem=Problem(1, 0, 0, 0))
    assert advice.bound is not None
    assert advice.bound.total == 0
    assert any("nothing to learn" in sentence for sentence in advice.words)


def test_a_step_beyond_the_limit_is_not_said_to_hold() -> None:
    """beta^(1/2) N^(1/4) / (2 L C (E R)^(1/2)) = 2^(1/2) / 2 > 1/4."""
    advice = advise(Setting(4, 4, 1, 1), smoothness=1)
    assert not advice.step.allowed
    assert not any("hold all the same" in sentence for sentence in advice.words)
