"""The noise of a plan: sensitivity by brute force, epsilon by another accountant, covariance by its formula."""

import importlib
import itertools
import json
import math
from collections.abc import Iterator
from typing import Any

import dp_accounting
import numpy as np
import pytest
from jax_privacy.matrix_factorization import optimization, toeplitz

from fedlatest.errors import ConfigError, MissingExtraError
from fedlatest.privacy import NoisePlan, Privacy, plan_noise
from fedlatest.privacy.planning import worst_contribution


def make(mechanism: Any = "auto", *, epsilon: float = 2.0, rounds: int = 12, **limits: Any) -> NoisePlan:
    uploads = "remembered" if mechanism == "total" else "fresh"
    privacy = Privacy(epsilon=epsilon, delta=1e-5, clip_norm=0.5, rounds=rounds, mechanism=mechanism, **limits)
    return plan_noise(privacy, uploads)  # type: ignore[arg-type]


def schedules(rounds: int, separation: int, most: int) -> Iterator[tuple[int, ...]]:
    """Yield all sets of rounds in which a client may take part."""
    for count in range(1, most + 1):
        for chosen in itertools.combinations(range(rounds), count):
            if all(later - earlier >= separation for earlier, later in itertools.pairwise(chosen)):
                yield chosen


def strategy(plan: NoisePlan) -> np.ndarray[Any, Any]:
    """Return C, the inverse of the matrix of the plan's coefficients."""
    noising = sum(c * np.eye(plan.rounds, k=-age) for age, c in enumerate(plan.coefficients))
    return np.linalg.inv(noising)


@pytest.mark.parametrize("mechanism", ["independent", "correlated"])
@pytest.mark.parametrize(("separation", "most"), [(1, 3), (2, None), (3, 2), (3, None), (5, 2), (9, None)])
def test_no_schedule_exceeds_the_sensitivity_of_fresh_updates(
    mechanism: str, separation: int, most: int | None
) -> None:
    """The largest norm of C g over all schedules and signs g = +-1 is the sensitivity; directions cannot add more.

    The entries of C^T C are not negative, so that the norm of sum_i C[:, t_i] v_i, v_i of norm 1, is largest if all v_i
    are equal.
    """
    plan = make(mechanism, rounds=9, min_separation=separation, max_participations=most)
    matrix = strategy(plan)
    largest = 0.0
    for chosen in schedules(9, separation, plan.max_participations):
        for signs in itertools.product([1.0, -1.0], repeat=len(chosen) - 1):
            largest = max(largest, float(np.linalg.norm(matrix[:, chosen] @ np.array([1.0, *signs]))))
    assert plan.sensitivity == pytest.approx(largest)


def test_no_schedule_exceeds_the_sensitivity_of_remembered_updates() -> None:
    """C g of a client is its remembered update in each round: of norm 1 at most, whatever it was in other rounds."""
    plan, random = make("total", rounds=6), np.random.default_rng(0)
    matrix, largest = strategy(plan), 0.0
    for chosen in schedules(6, 1, 6):
        for trial in range(5):
            updates = random.normal(size=(len(chosen), 3))
            updates = updates[:1].repeat(len(chosen), axis=0) if trial == 0 else updates
            updates /= np.linalg.norm(updates, axis=1, keepdims=True)
            differences = np.zeros((6, 3))
            differences[list(chosen)] = np.diff(updates, axis=0, prepend=0.0)
            largest = max(largest, float(np.linalg.norm(matrix @ differences)))
    assert plan.sensitivity == pytest.approx(math.sqrt(6)) == pytest.approx(largest)


@pytest.mark.parametrize(("rounds", "separation", "most"), [(40, 3, 5), (41, 7, 6), (10, 1, 10)])
def test_sensitivity_is_that_of_jax_privacy(rounds: int, separation: int, most: int) -> None:
    column = 0.8 ** np.arange(rounds)
    expected = optimization.jax_enable_x64(toeplitz.minsep_sensitivity_squared)(column, separation, most)
    assert np.sum(worst_contribution(0.8, rounds, separation, most) ** 2) == pytest.approx(float(expected))


@pytest.mark.parametrize("rounds", [1, 2, 12, 100])
def test_correlated_noise_has_a_smaller_error_than_independent_noise(rounds: int) -> None:
    def error(plan: NoisePlan) -> float:
        prefix_sums = np.tri(rounds) @ np.linalg.inv(strategy(plan))
        return plan.stddev * float(np.linalg.norm(prefix_sums))

    limits = {"min_separation": min(5, rounds)}
    independent, correlated = (make(name, rounds=rounds, **limits) for name in ("independent", "correlated"))
    assert error(correlated) <= error(independent)
    if rounds == 100:
        assert error(correlated) < 0.7 * error(independent)


def test_clipping_whole_updates_has_a_smaller_error_than_clipping_differences() -> None:
    """The error of the model, a double prefix sum of differences of norm 1, is 4 times larger at the best c."""
    rounds, separation = 100, 10
    model = np.tri(rounds) @ np.tri(rounds)

    def error(c: float) -> float:
        inverse = np.eye(rounds) - c * np.eye(rounds, k=-1)
        contribution = worst_contribution(c, rounds, separation, rounds // separation)
        return float(np.linalg.norm(contribution) * np.linalg.norm(model @ inverse))

    whole = math.sqrt(rounds) * float(np.linalg.norm(np.tri(rounds)))
    assert min(error(c) for c in np.linspace(0, 1, 101)) > 4 * whole


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_epsilon_is_that_of_the_accountant_of_privacy_loss_distributions(epsilon: float) -> None:
    plan = make("independent", epsilon=epsilon, rounds=20, min_separation=4)
    accountant = dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_SPECIAL)
    per_round = dp_accounting.GaussianDpEvent(plan.stddev / plan.clip_norm)
    accountant.compose(per_round, count=plan.max_participations)
    assert plan.max_participations == 5
    assert plan.epsilon == pytest.approx(epsilon, rel=1e-6)
    assert accountant.get_epsilon(plan.delta) == pytest.approx(epsilon, rel=1e-3)


def test_a_known_gaussian_mechanism() -> None:
    """Balle and Wang (2018): sigma = 3.7306 gives (1, 1e-5) for sensitivity 1."""
    plan = make("independent", epsilon=1.0, rounds=1)
    assert plan.noise_multiplier == pytest.approx(3.730632, abs=1e-5)
    assert plan.stddev == pytest.approx(0.5 * plan.noise_multiplier)


@pytest.mark.parametrize("mechanism", ["independent", "correlated", "total"])
def test_epsilon_is_spent_round_by_round(mechanism: str) -> None:
    plan = make(mechanism, rounds=100, min_separation=10)
    spent = [plan.epsilon_after(rounds) for rounds in range(101)]
    assert spent == sorted(spent)
    assert (spent[0], spent[-1]) == (0.0, plan.epsilon)
    for rounds in (10, 25, 60):  # what a plan of fewer rounds with the same noise spends is within the bound
        shorter = make(mechanism, rounds=rounds, min_separation=10)
        if mechanism != "correlated":
            sigma = plan.stddev / (shorter.sensitivity * plan.clip_norm)
            exact = dp_accounting.get_epsilon_gaussian(sigma, plan.delta)
            assert exact <= plan.epsilon_after(rounds) * (1 + 1e-9)
    with pytest.raises(ConfigError, match=r"round=100: the privacy budget is for rounds 0 \.\. 99"):
        plan.epsilon_after(101)


@pytest.mark.parametrize("mechanism", ["independent", "correlated", "total"])
def test_a_plan_survives_json(mechanism: str) -> None:
    plan = make(mechanism)
    assert NoisePlan.from_dict(json.loads(json.dumps(plan.as_dict(), allow_nan=False))) == plan
    with pytest.raises(ConfigError, match="noise plan: expected the keys"):
        NoisePlan.from_dict({"epsilon": 1.0})


def test_without_noise_no_extra_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    plan = make("total", epsilon=math.inf)
    assert (plan.epsilon, plan.stddev) == (math.inf, 0.0)
    assert NoisePlan.from_dict(json.loads(json.dumps(plan.as_dict(), allow_nan=False))) == plan
    with pytest.raises(MissingExtraError, match=r"a plan .* needs packages .* pip install '\.\[privacy\]'"):
        make("total")


@pytest.mark.parametrize("mechanism", ["independent", "correlated", "total"])
def test_noise_of_a_round_is_the_inverse_of_the_strategy(mechanism: str) -> None:
    plan = make(mechanism, rounds=7, min_separation=2)
    normals = np.random.default_rng(1).normal(size=(7, 4))
    noise = np.stack([plan.round_noise(round, lambda number: normals[number]) for round in range(7)])
    np.testing.assert_allclose(strategy(plan) @ noise, plan.stddev * normals, atol=1e-12)
    if mechanism == "total":
        total = np.stack([plan.total_noise(round, lambda number: normals[number]) for round in range(7)])
        np.testing.assert_allclose(total, np.cumsum(noise, axis=0), atol=1e-12)
        np.testing.assert_array_equal(total, plan.stddev * normals)
    else:
        with pytest.raises(ConfigError, match="is for fresh updates, which have no total"):
            plan.total_noise(0, lambda number: normals[number])
    with pytest.raises(ConfigError, match="round=7: the privacy budget"):
        plan.round_noise(7, lambda number: normals[0])
