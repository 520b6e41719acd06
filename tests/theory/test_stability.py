"""Growth rates, Floquet multipliers and thresholds against dense matrices, closed forms and simulated training."""

import math
import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest

from fedlatest.algorithms import fedlaavg, fedvarp
from fedlatest.algorithms.base import Algorithm
from fedlatest.availability import windows
from fedlatest.errors import ConfigError
from fedlatest.simulation.iterates import equal_clients, observe_params, observe_rounds
from fedlatest.simulation.program import Program, Trial, initial_state
from fedlatest.streams import Purpose, bits
from fedlatest.theory.stability import (
    Fresh,
    Selection,
    client_gains,
    delay_weights,
    floquet_multipliers,
    growth,
    round_robin_threshold,
    select_cohorts,
    stable_fresh,
    stable_gain,
    staleness,
)

Cohorts = npt.NDArray[np.bool_]
SLEEP = windows([22, 23, 1, 2, 6, 14], hours=8, rounds_per_day=6)


def in_blocks(repeats: int) -> Cohorts:
    """Return cohorts of five clients that repeat every four rounds; one round is empty."""
    block = np.array([[1, 1, 0, 0, 0], [0, 0, 1, 0, 1], [0, 0, 0, 0, 0], [1, 0, 0, 1, 0]], bool)
    return np.tile(block, (repeats, 1))


def full_map(cohorts: Cohorts, gains: npt.NDArray[np.float64], fresh: Fresh) -> npt.NDArray[np.float64]:
    """Return the map of (x, u_1, ..., u_N) over all rounds, written down from the algorithm with centres e_i = 0."""
    num_clients = cohorts.shape[1]
    product = np.eye(1 + num_clients)
    for members in cohorts:
        weight = {"average": 1 / num_clients, "cohort": 1 / max(members.sum(), 1)}.get(str(fresh), fresh)
        train = np.eye(1 + num_clients)  # u_i_new = -g_i x for the cohort
        train[1:][members] = 0
        train[1:, 0] = np.where(members, -gains, 0)
        move = np.zeros((1 + num_clients, 1 + num_clients))  # x += mean of the old u_i + a (new - old)
        move[0, 0] = 1
        move[0, 1:] = 1 / num_clients
        difference = train - np.eye(1 + num_clients)
        move[0] += float(weight) * difference[1:].sum(axis=0)
        move[1:] = train[1:]
        product = move @ product
    return product


@pytest.mark.parametrize("fresh", ["average", "cohort", 0.3])
def test_multipliers_and_growth_are_those_of_the_full_map(fresh: Fresh) -> None:
    """The history of x carries all that the remembered updates carry: equal multipliers, up to zeros."""
    gains = np.array([0.3, 0.9, 0.5, 1.1, 0.7])
    expected = np.linalg.eigvals(full_map(in_blocks(1), gains, fresh))
    expected = expected[np.argsort(-np.abs(expected))]
    found = floquet_multipliers(delay_weights(in_blocks(6), gains, fresh=fresh)[-4:])
    number = min(len(found), len(expected))
    np.testing.assert_allclose(np.abs(found[:number]), np.abs(expected[:number]), atol=1e-6)
    rate = growth(in_blocks(200), gains[None], fresh=fresh).rate
    assert rate == pytest.approx(math.log(abs(expected[0])) / 4, rel=0.02)


@pytest.mark.parametrize("delay", [1, 2, 5])
def test_threshold_of_a_constant_delay(delay: int) -> None:
    """z_{r+1} = z_r - g z_{r-d} is stable exactly for 0 < g < 2 sin(pi / (2 (2 d + 1))).

    At the threshold the largest multiplier is exp(i w) with w = pi / (2 d + 1).
    """
    threshold = 2 * math.sin(math.pi / (2 * (2 * delay + 1)))
    weights = np.zeros((1, delay + 1))
    weights[0, delay] = threshold
    largest = floquet_multipliers(weights)[0]
    assert abs(largest) == pytest.approx(1, abs=1e-9)
    assert abs(np.angle(largest)) == pytest.approx(math.pi / (2 * delay + 1))
    assert abs(floquet_multipliers(0.99 * weights)[0]) < 1 < abs(floquet_multipliers(1.01 * weights)[0])


@pytest.mark.parametrize("num_groups", [2, 3, 10])
def test_threshold_of_clients_in_turn(num_groups: int) -> None:
    """m groups of two clients in turn: g = 2 m sin^2(pi / (2 m)), and the swing takes 2 m rounds."""
    cohorts = select_cohorts(np.ones((1200, 2 * num_groups), bool), cohort_size=2)
    assert (staleness(cohorts)[num_groups:].max(axis=1) == num_groups - 1).all()
    threshold = round_robin_threshold(num_groups)
    weights = delay_weights(cohorts, threshold)[-num_groups:]
    assert abs(floquet_multipliers(weights)[0]) == pytest.approx(1, abs=1e-7)
    found = stable_gain(cohorts, largest=3)
    assert found.exists
    assert found.gain == pytest.approx(threshold, rel=0.01)
    assert found.swing == pytest.approx(2 * num_groups, rel=0.02)


def test_step_of_fedvarp_is_stable_where_that_of_fedlaavg_is_not() -> None:
    """Ten groups in turn, a gain between the two thresholds: `stable_fresh` finds the stable weights."""
    cohorts = select_cohorts(np.ones((800, 20), bool), cohort_size=2)
    gain = 1.15 * round_robin_threshold(10)
    assert growth(cohorts, gain).rate > 0
    assert growth(cohorts, gain, fresh="cohort").rate < 0
    fresh, stable = stable_fresh(cohorts, gain)
    assert fresh[[0, -1]] == pytest.approx([1 / 20, 1 / 2])
    assert not stable[0]
    assert stable[-1]
    np.testing.assert_array_equal(stable, np.concatenate([growth(cohorts, gain, fresh=a).rate < 0 for a in fresh]))


def test_everyone_in_every_round_is_gradient_descent() -> None:
    """Then all weights a = 1/N: z is multiplied by 1 - g, and the method is stable below 2."""
    cohorts = np.ones((320, 3), bool)
    for fresh in ("average", "cohort"):
        found = growth(cohorts, [0.5, 1.5, 2.5], fresh=fresh)
        np.testing.assert_allclose(found.rate, np.log([0.5, 0.5, 1.5]), rtol=1e-6)
        assert found.swing[1:] == pytest.approx([2, 2])
        assert found.swing[0] == np.inf
    assert not stable_gain(cohorts, largest=1.9).exists


def quadratic_program(algorithm: Algorithm, cohort_size: int) -> Program:
    """Return the program of three local steps on (x - e)^2 / 2."""
    return Program(algorithm, _half_square, cohort_size, num_steps=3, batch_size=1, clients_at_once=cohort_size)


def _half_square(x: jax.Array, centres: jax.Array, labels: jax.Array) -> jax.Array:
    del labels
    return jnp.mean((x - centres) ** 2) / 2


@pytest.mark.parametrize(
    ("algorithm", "selection", "fresh"),
    [
        (fedlaavg(), "oldest", "average"),
        (fedvarp(), "uniform", "cohort"),
        (fedlaavg(selection="weighted"), "weighted", "average"),
    ],
)
def test_simulated_training_grows_as_predicted(algorithm: Algorithm, selection: Selection, fresh: Fresh) -> None:
    """The cohorts equal the simulator's, and so do the iterates: x follows the delay equation from the optimum 0.

    Six clients of different weights sleep at similar hours; all centres are 0, so that x itself is a deviation.
    """
    weights, rounds, learning_rate = np.array([1.5, 1.0, 0.5, 1.0, 1.25, 0.75]), 96, 0.4
    with jax.enable_x64(True):
        program = quadratic_program(algorithm, 2)
        data = equal_clients(np.zeros(6), 6)._replace(weights=jnp.asarray(weights))
        numbers = {name: jnp.float64(number) for name, number in algorithm.numbers.items()}
        trial = Trial(jnp.uint32(5), SLEEP, jnp.float64(learning_rate), numbers)
        state = initial_state(program, jnp.float64(1.0), 6)
        _, iterates, record = observe_rounds(program, data, trial, state, rounds, observe_params)

    def draw(when: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.asarray(bits(5, Purpose.SELECTION, np.arange(6), when) >> 2, np.int64)

    cohorts = select_cohorts(SLEEP.table(rounds), cohort_size=2, selection=selection, draw=draw)
    simulated = np.zeros_like(cohorts)
    for round, (clients, valid) in enumerate(zip(record.cohort.clients, record.cohort.mask, strict=True)):
        simulated[round, clients[valid]] = True
    np.testing.assert_array_equal(cohorts, simulated)
    gains = client_gains([1 - (1 - learning_rate) ** 3], weights=weights, num_local_steps=3)
    delays = delay_weights(cohorts, gains[0], fresh=fresh)
    expected = [1.0]
    for row in delays:
        past = np.array(expected[::-1][: len(row)])
        expected.append(expected[-1] - row[: len(past)] @ past)
    np.testing.assert_allclose(iterates, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: select_cohorts(np.ones((3, 2), bool), cohort_size=3), "cohort_size=3: must be in 1 .. 2"),
        (
            lambda: select_cohorts(np.ones((3, 2), bool), cohort_size=1, selection="newest"),  # type: ignore[arg-type]
            "selection='newest': choose 'oldest', 'uniform' or 'weighted'",
        ),
        (lambda: growth(np.ones((9, 2), bool), 0.1), "cohorts: have 9 rounds"),
        (lambda: growth(np.ones((99, 2), bool), 0.1, fresh="all"), "fresh='all': choose"),
        (lambda: client_gains([1.2], weights=[1], num_local_steps=2), "gains=1.2: with 2 local steps"),
        (lambda: round_robin_threshold(0.5), "num_rounds=0.5: must be at least 1"),
    ],
)
def test_invalid_arguments_are_rejected(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        call()


def test_remembered_updates_of_clients_that_left_are_no_swing() -> None:
    """Its update never changes, so a deviation does not decay to 0. The tolerance hardly moves other thresholds."""
    available = np.ones((800, 20), bool)
    available[60:, 0] = False
    cohorts = select_cohorts(available, cohort_size=10)
    assert abs(growth(cohorts, 0.5).rate[0]) < 1e-6
    assert not stable_gain(cohorts, tolerance=1 / 800).exists
    in_turn = select_cohorts(np.ones((800, 20), bool), cohort_size=2)
    assert stable_gain(in_turn, tolerance=1 / 800).gain == pytest.approx(round_robin_threshold(10), abs=0.01)
