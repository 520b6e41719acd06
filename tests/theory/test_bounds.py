"""Lemma 1, Theorems 3 and 4, the step sizes and M_R: values computed by hand, and relations between them."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlatest import ConfigError, alternating, always, diurnal
from fedlatest.theory import (
    Problem,
    accumulated_bias,
    best_step,
    cold_start,
    needed_rounds,
    staleness_bound,
    step_size,
    theorem3,
    theorem4,
)
from fedlatest.theory.bounds import bound_for

PROBLEM = Problem(smoothness=2, gradient=3, noise=1, distance=5)
ONE: dict[str, Any] = {"num_clients": 1, "staleness": 0, "learning_rate": 0.1, "rounds": 1}


def test_lemma_1_by_hand() -> None:
    """ceil(10 / 3) * 5 - 1 = 19; with all clients in every round the staleness is 0."""
    assert staleness_bound(num_clients=10, cohort_size=3, smallest_e=5) == 19
    assert staleness_bound(num_clients=10, cohort_size=10, smallest_e=1) == 0


@given(st.integers(1, 8), st.data())
def test_lemma_1_holds_if_the_stalest_clients_are_selected(num_clients: int, data: st.DataObject) -> None:
    """Simulate any availability table, with ties broken against low client numbers: no staleness exceeds I."""
    cohort_size = data.draw(st.integers(1, num_clients))
    rounds = 40
    available = np.array(data.draw(st.lists(st.lists(st.booleans(), min_size=num_clients, max_size=num_clients),
                                       min_size=rounds, max_size=rounds)))  # fmt: skip
    absence, longest = np.zeros(num_clients, int), np.zeros(num_clients, int)
    for row in available:
        absence = np.where(row, 0, absence + 1)
        longest = np.maximum(longest, absence)
    last = np.full(num_clients, -1)
    largest_staleness = 0
    for round, row in enumerate(available):
        chosen = sorted(np.flatnonzero(row), key=lambda client: (last[client], -client))[:cohort_size]
        last[chosen] = round
        largest_staleness = max(largest_staleness, int((round - last).max()))
    smallest_e = int(longest.max()) + 1
    assert largest_staleness <= staleness_bound(num_clients=num_clients, cohort_size=cohort_size, smallest_e=smallest_e)


def test_theorem_3_by_hand() -> None:
    """g L = 1/5, I = 3, drift g I L = 3/5; N = 4, T = 50.

    staleness 2 (3/5) 10 / 2 + 2 (9/5)^2 / (3/5) + 4 (9/5)^2 = 6 + 10.8 + 12.96; variance 4/5 / 4; distance 20 / 5.
    """
    bound = theorem3(PROBLEM, num_clients=4, staleness=3, learning_rate=0.1, rounds=50)
    assert bound == pytest.approx((29.76, 0.2, 4.0))
    assert bound.total == pytest.approx(33.96)
    assert bound.dominant == "staleness"
    assert cold_start(PROBLEM, staleness=3, learning_rate=0.1, rounds=50) == pytest.approx(5.4 * 27 / 50)
    several = cold_start(PROBLEM, staleness=3, learning_rate=0.1, rounds=50, num_local_steps=2)
    assert several == pytest.approx(5.8 * 27 / 50)


def test_noise_above_the_gradient_and_huge_constants_are_refused() -> None:
    """E ||g||^2 = ||mean||^2 + variance, so sigma <= G; and a square of 1e300 is no number."""
    for problem, message in (
        (Problem(1, 1, 2, 1), "noise=2: is above gradient=1"),
        (Problem(1, 1e300, 1, 1), r"gradient=1e\+300: must be a number from 0 to 1e\+100"),
        (Problem(1e-200, 1, 1, 1), r"smoothness=1e-200: must be a number from 1e-100"),
    ):
        with pytest.raises(ConfigError, match=message):
            theorem3(problem, **ONE)
    with pytest.raises(ConfigError, match="distance=0: the smaller the step"):
        best_step(Problem(1, 1, 1, 0), num_clients=1, staleness=0, rounds=1)


def test_theorem_3_without_staleness_is_the_bound_of_parallel_sgd() -> None:
    """K = N and E = 1, so I = 0: 4 g s^2 L / N + 4 B / (g T), as the paper notes."""
    bound = theorem3(PROBLEM, num_clients=4, staleness=0, learning_rate=0.1, rounds=50)
    assert bound == pytest.approx((0.0, 0.2, 4.0))


def test_theorem_4_by_hand() -> None:
    """C = 2, so g C L = 2/5; I = 3: 2 * 3 (2/5) 10 / 2 + (18 / (3/5) + 18 + 32) (6/5)^2; distance 20 / (0.1 * 100)."""
    bound = theorem4(PROBLEM, num_clients=4, staleness=3, learning_rate=0.1, rounds=50, num_local_steps=2)
    assert bound == pytest.approx((12 + 80 * 1.44, 0.2, 2.0))


@pytest.mark.parametrize(("staleness", "local_drift"), [(0, 1.8), (1, 1.8), (2, 2)])
def test_theorem_4_counts_local_drift(staleness: int, local_drift: float) -> None:
    """C = 10: local models move away from the global model by up to 2 (C - 1) = 18 steps, that is 1.8 rounds."""
    bound = theorem4(PROBLEM, num_clients=4, staleness=staleness, learning_rate=0.01, rounds=50, num_local_steps=10)
    first = 2 * staleness * 0.2 * 10 / 2
    factor = 2 * staleness**2 / 0.96 + 2 * local_drift**2 + 2 * (staleness + 1) ** 2
    assert bound.staleness == pytest.approx(first + factor * 0.36)


@given(st.integers(1, 10**4), st.integers(0, 500), st.floats(1e-6, 0.24), st.integers(1, 10**6))
def test_theorem_4_with_one_step_is_theorem_3_with_one_more_round_of_staleness(
    num_clients: int, staleness: int, rate: float, rounds: int
) -> None:
    """C = 1: 2 (I + 1)^2 instead of 2 I^2, that is (4 I + 2) g^2 L^2 G^2 more; the rest is the same."""
    setting = {"num_clients": num_clients, "staleness": staleness, "learning_rate": rate, "rounds": rounds}
    three, four = theorem3(PROBLEM, **setting), theorem4(PROBLEM, **setting)  # type: ignore[arg-type]
    more = (4 * staleness + 2) * (rate * 2 * 3) ** 2
    assert four == pytest.approx((three.staleness + more, three.variance, three.distance))


def test_step_size_by_hand() -> None:
    """beta = 1/4, N = 16: sqrt(1/4 * 4 / (4 * 100)) / (2 * 2 * 5) = 0.05 / 20; limit 1/8."""
    step = step_size(num_clients=16, cohort_size=4, smallest_e=4, rounds=100, smoothness=2, num_local_steps=5)
    assert step == pytest.approx((0.0025, 0.125))
    assert step.allowed
    assert step.learning_rate == step.formula
    early = step_size(num_clients=16, cohort_size=16, smallest_e=1, rounds=1, smoothness=2)
    assert not early.allowed
    assert early.learning_rate == 0.125


@given(st.integers(2, 10**4), st.integers(1, 300), st.data())
def test_enough_rounds_for_the_speed_up_allow_the_step(num_clients: int, e: int, data: st.DataObject) -> None:
    """T >= E N^(3/2) / beta implies gamma <= 1 / (4 L) from four clients on: E^2 N >= 4 beta^2."""
    setting = {"num_clients": max(num_clients, 4), "smallest_e": e}
    cohort_size = data.draw(st.integers(1, setting["num_clients"]))
    rounds = needed_rounds(**setting, cohort_size=cohort_size)
    assert step_size(**setting, cohort_size=cohort_size, rounds=rounds, smoothness=1).allowed


def test_the_papers_settings_have_too_few_rounds() -> None:
    """MNIST: N = 1000, K = 100, blocks of 100 rounds, so E = 101: 101 * 31623 * 10 > 4000."""
    assert needed_rounds(num_clients=1000, cohort_size=100, smallest_e=101) == math.ceil(101 * 1000**1.5 * 10)
    assert needed_rounds(num_clients=1000, cohort_size=100, smallest_e=101) > 4000


@given(st.integers(2, 1000), st.integers(0, 100), st.integers(10, 10**6), st.sampled_from([1, 10]))
def test_best_step_is_not_worse_than_its_neighbours(n: int, staleness: int, rounds: int, local_steps: int) -> None:
    setting = {"num_clients": n, "staleness": staleness, "rounds": rounds, "num_local_steps": local_steps}
    best = best_step(PROBLEM, **setting)
    assert 0 < best <= 1 / 8

    def at(step: float) -> float:
        return bound_for(PROBLEM, **setting, learning_rate=step).total

    for factor in (0.5, 0.99, 1.01, 2.0):
        if best * factor <= 1 / 8:
            assert at(best) <= at(best * factor) * (1 + 1e-9)


def test_accumulated_bias() -> None:
    """In Example 1 one client is always unavailable, so M_R = R; if one client is removed, M_R = 0."""
    two = alternating([True, False], t1=3, t2=2).table(20)
    assert accumulated_bias(two) == 20
    assert accumulated_bias(two, kept=[True, False]) == 0
    assert accumulated_bias(always(3).table(9)) == 0
    assert accumulated_bias(diurnal([True, True, False], period=4).table(16), kept=[True, True, False]) == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theorem3(PROBLEM, num_clients=4, staleness=1, learning_rate=0.25, rounds=9), r"below 1/\(2L\) = 0.25"),
        (lambda: theorem3(PROBLEM, num_clients=4, staleness=1, learning_rate=0.0, rounds=9), "learning_rate=0"),
        (lambda: theorem3(PROBLEM._replace(smoothness=0), **ONE), "smoothness=0"),
        (lambda: theorem3(PROBLEM._replace(noise=-1), **ONE), "noise=-1"),
        (lambda: theorem4(PROBLEM, **ONE, num_local_steps=0), "num_local"),
        (lambda: staleness_bound(num_clients=4, cohort_size=5, smallest_e=1), "cohort_size=5: choose 1 .. 4"),
        (lambda: staleness_bound(num_clients=4, cohort_size=1, smallest_e=0), "E=0: Assumption 4"),
        (lambda: step_size(num_clients=4, cohort_size=1, smallest_e=None, rounds=9, smoothness=1), "E is unknown"),  # type: ignore[arg-type]
        (lambda: accumulated_bias([[1, 0]]), "available"),
        (lambda: accumulated_bias([[True, False]], kept=[False, False]), "at least one client"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_rejected(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(ConfigError, match=message):
        call()
