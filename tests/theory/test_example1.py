"""The closed forms of Example 1, compared with the recursion and with values computed by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlatest import ConfigError
from fedlatest.theory import Example1

MEANS = st.floats(-10, 10)
STEPS = st.floats(1e-6, 0.49)
BLOCKS = st.integers(1, 60)


@given(BLOCKS, BLOCKS, MEANS, MEANS, STEPS)
def test_limit_is_the_fixed_point_of_a_period(t1: int, t2: int, e1: float, e2: float, gamma: float) -> None:
    """Simulate a period from X round by round: it ends at X and passes through the turning point."""
    example = Example1(t1, t2, e1, e2)
    x = example.fedavg_limit(gamma)
    for _ in range(t1):
        x = x - 2 * gamma * (x - e1)
    assert x == pytest.approx(example.fedavg_turning_point(gamma), abs=1e-9)
    for _ in range(t2):
        x = x - 2 * gamma * (x - e2)
    assert x == pytest.approx(example.fedavg_limit(gamma), abs=1e-9)


@given(BLOCKS, BLOCKS, MEANS, MEANS, STEPS)
def test_limit_equals_the_papers_formula(t1: int, t2: int, e1: float, e2: float, gamma: float) -> None:
    """The paper's formula for X; it loses digits for very small steps, hence the tolerance."""
    q = 1 - 2 * gamma
    written = (q**t2 * (e1 - e2) + e2 - e1 * q ** (t1 + t2)) / (1 - q ** (t1 + t2))
    assert Example1(t1, t2, e1, e2).fedavg_limit(gamma) == pytest.approx(
        written, abs=1e-13 / (gamma * (t1 + t2)) + 1e-12
    )


@given(BLOCKS, BLOCKS, MEANS, MEANS)
def test_limit_for_small_steps(t1: int, t2: int, e1: float, e2: float) -> None:
    example = Example1(t1, t2, e1, e2)
    assert example.fedavg_limit(1e-12) == pytest.approx(example.small_step_limit, abs=1e-8)


@given(BLOCKS, BLOCKS, MEANS, STEPS)
def test_fedavg_converges_to_the_optimum_if_the_means_are_equal(t1: int, t2: int, e: float, gamma: float) -> None:
    example = Example1(t1, t2, e, e)
    assert example.fedavg_limit(gamma) == pytest.approx(example.optimum, abs=1e-12)


@given(BLOCKS, STEPS)
def test_with_equal_blocks_the_limit_is_the_optimum_only_for_small_steps(t: int, gamma: float) -> None:
    """q^t / (1 + q^t) e1 + 1 / (1 + q^t) e2: client 2, which is last in every period, has the larger weight."""
    example = Example1(t, t, -1, 1)
    assert example.small_step_limit == example.optimum == 0
    q = (1 - 2 * gamma) ** t
    assert example.fedavg_limit(gamma) == pytest.approx((1 - q) / (1 + q), abs=1e-9)
    assert example.fedavg_limit(gamma) > 0


def test_limits_by_hand() -> None:
    """q = 1/2, one round each: X = (1/4 e1 + 1/2 e2) / (3/4); half of the way to e1 = 0 from there is 1."""
    example = Example1(1, 1, 0, 3)
    assert example.fedavg_limit(0.25) == pytest.approx(2)
    assert example.fedavg_turning_point(0.25) == pytest.approx(1)
    assert example.optimum == 1.5
    assert Example1(3, 1, 0, 4).small_step_limit == 1
    assert Example1(3, 1, 0, 1e9).optimum - Example1(3, 1, 0, 1e9).small_step_limit == 2.5e8  # the error has no bound


def test_bound_of_theorem_2_by_hand() -> None:
    """G = max(2 |3 - 0|, 2) = 6, I = 4: 36/4 / 10 + 16 * 36 / 400."""
    assert Example1(2, 4, -1, 1).fedlaavg_bound(100, start=3) == pytest.approx(0.9 + 1.44)


@pytest.mark.parametrize("gamma", [0.0, -0.1, 0.5, 0.7, math.nan, math.inf])
def test_steps_outside_the_range_of_the_theorem_are_rejected(gamma: float) -> None:
    with pytest.raises(ConfigError, match="below 1/2"):
        Example1().fedavg_limit(gamma)


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(ConfigError, match=r"t2=0: .*client 2 is never available, which violates Assumption 4"):
        Example1(t2=0)
    with pytest.raises(ConfigError, match="e1=nan"):
        Example1(e1=math.nan)
    with pytest.raises(ConfigError, match=r"rounds=30: .*round 31"):
        Example1().fedlaavg_bound(30)
