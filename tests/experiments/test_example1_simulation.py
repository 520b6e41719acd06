"""Example 1 simulated: the formula of Theorem 1, the rate of Theorem 2, and flexible participation (Appendix A)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlatest import ConfigError
from fedlatest.experiments.example1_simulation import explain_example1, simulate_example1, theorem2_errors
from fedlatest.theory import Example1

MEANS = st.floats(-10, 10)


@settings(max_examples=40)
@given(st.integers(1, 30), st.integers(1, 30), MEANS, MEANS, st.floats(0.01, 0.45))
def test_fedavg_converges_to_the_formula(t1: int, t2: int, e1: float, e2: float, gamma: float) -> None:
    """From any start the period-end iterates reach X to 1e-6; flexible participation reaches X of half the step."""
    example = Example1(t1, t2, e1, e2)
    rounds = example.period * int(np.ceil(1700 / example.period))  # (1 - 0.02)^1700 < 1e-14, (1 - 0.01)^1700 < 1e-7
    fedavg = simulate_example1(example, "fedavg", learning_rate=gamma, rounds=rounds, x0=7.0)
    assert fedavg[-1] == pytest.approx(example.fedavg_limit(gamma), abs=1e-6)
    assert fedavg[-1 - t2] == pytest.approx(example.fedavg_turning_point(gamma), abs=1e-6)
    flexible = simulate_example1(example, "flexible", learning_rate=gamma, rounds=rounds)
    assert flexible[-1] == pytest.approx(example.flexible_limit(gamma), abs=2e-6)
    if e1 == e2:
        assert fedavg[-1] == pytest.approx(example.optimum, abs=1e-6)


def test_fedavg_is_unbiased_in_the_cases_of_the_paper() -> None:
    """e1 = e2: for every step. t1 = t2: only as the step goes to 0, with an error towards e2."""
    equal_means = Example1(7, 3, 2.5, 2.5)
    assert simulate_example1(equal_means, "fedavg", learning_rate=0.1, rounds=1000)[-1] == pytest.approx(2.5, abs=1e-12)
    errors = []
    for gamma in (0.1, 0.01, 0.001):
        example = Example1(5, 5, -1, 1)
        iterates = simulate_example1(example, "fedavg", learning_rate=gamma, rounds=int(20 / gamma) // 10 * 10)
        assert iterates[-1] == pytest.approx(example.fedavg_limit(gamma), abs=1e-6)
        errors.append(iterates[-1] - example.optimum)
    assert errors == pytest.approx([0.5064, 0.0505, 0.005], abs=1e-3)


@settings(max_examples=20)
@given(st.integers(1, 30), st.integers(1, 30), MEANS, MEANS, st.floats(-10, 10))
def test_theorem_2_bounds_the_error(t1: int, t2: int, e1: float, e2: float, x0: float) -> None:
    """The smallest squared error is within the bound, and so is the mean, which is what the proof bounds."""
    example = Example1(t1, t2, e1, e2)
    for rounds in (1024, 4096):
        iterates = simulate_example1(example, "fedlaavg", learning_rate=0.5 / rounds**0.5, rounds=rounds, x0=x0)
        errors = (iterates - example.optimum) ** 2
        assert errors.min() <= example.fedlaavg_bound(rounds, start=x0) + 1e-12
        assert errors[:-1].mean() <= example.fedlaavg_bound(rounds, start=x0) + 1e-12


def test_errors_decrease_at_least_as_fast_as_in_theorem_2() -> None:
    """Four times the rounds at least halve the mean squared error; the smallest error is far below the bound."""
    errors = theorem2_errors(Example1())
    assert (errors.rounds[1:] == 4 * errors.rounds[:-1]).all()
    assert (errors.mean[1:] <= errors.mean[:-1] / 2).all()
    assert (errors.best <= errors.bound).all()
    assert (errors.best[1:] < 1e-20).all()


def test_only_fedlaavg_converges_to_the_optimum() -> None:
    """The others are biased; after the rarer client is excluded, the iterates converge to the mean of the other."""
    example = Example1(6, 2, 1.0, 5.0)
    ends = {ending.title: ending for ending in explain_example1(example, learning_rate=0.02)}
    assert len(ends) == 4
    for ending in ends.values():
        assert ending.simulated == pytest.approx(ending.predicted, abs=1e-6)
    assert ends["FedLaAvg"].simulated == pytest.approx(3.0, abs=1e-6)
    assert ends["... excluding the rarer client"].simulated == pytest.approx(1.0, abs=1e-6)
    assert abs(ends["flexible participation"].simulated - 3) > 0.5
    assert len(explain_example1(Example1(2, 2), learning_rate=0.1)) == 3  # equally often available: none is excluded


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(ConfigError, match="below 1/2"):
        explain_example1(Example1(), learning_rate=0.5)
    with pytest.raises(ConfigError, match="rounds=0"):
        simulate_example1(Example1(), "fedavg", learning_rate=0.1, rounds=0)
