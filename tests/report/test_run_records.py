"""Numbers of a curve on hand-sized curves."""

import math

import numpy as np
import pytest

from fedlatest.report.run_records import arrives_below, cycle, stays_above

ROUNDS = np.array([0, 20, 40, 60])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.1, 0.95, 0.95, 0.95], 20),
        ([0.1, 0.95, 0.89, 0.90], 60),  # falls once more; the level itself counts as above
        ([0.95, 0.95, 0.95, 0.95], 0),
        ([0.95, 0.95, 0.95, 0.89], math.inf),
    ],
)
def test_stays_above(values: list[float], expected: float) -> None:
    assert stays_above(ROUNDS, np.array(values), 0.9) == expected


def test_arrives_below() -> None:
    """Once is enough: a loss that rises again has been there."""
    losses = np.array([2.0, 0.5, 0.9, 0.4])
    assert arrives_below(ROUNDS, losses, 0.5) == 20
    assert arrives_below(ROUNDS, losses, 0.45) == 60
    assert arrives_below(ROUNDS, losses, 0.1) == math.inf


@pytest.mark.parametrize("length", [100, 200, 400])
def test_cycle_of_a_sawtooth_on_a_slope(length: int) -> None:
    rounds = np.arange(2020, 4020, 20)
    sawtooth = (rounds % length) / length
    assert cycle(rounds, sawtooth - 0.0005 * rounds) == pytest.approx(length, rel=0.1)


def test_no_cycle() -> None:
    assert math.isnan(cycle(ROUNDS, np.zeros(4)))
    assert math.isnan(cycle(np.array([0, 20, 50, 60]), np.array([0.0, 1, 0, 1])))  # not evenly spaced
    assert math.isnan(cycle(ROUNDS[:2], np.array([0.0, 1])))
