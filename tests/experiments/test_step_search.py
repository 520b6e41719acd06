"""The search for step sizes: where it goes, and that it finds the optimum of smooth functions."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlatest.experiments.step_search import FIRST, Point, best_point, is_at_edge, next_points

scores = st.dictionaries(
    st.builds(Point, st.integers(-3, 3), st.integers(-3, 3)),
    st.one_of(st.just(-math.inf), st.floats(0, 1)),
    max_size=12,
)


@given(scores, st.integers(1, 4), st.booleans())
def test_it_always_returns_new_points(tried: dict[Point, float], number: int, has_server_step: bool) -> None:
    found = next_points(tried, number=number, has_server_step=has_server_step)
    if tried or number <= len(FIRST):
        assert len(found) == len(set(found)) == number
    assert not set(found) & set(tried)


def test_without_a_server_step_only_the_client_step_changes() -> None:
    tried: dict[Point, float] = {}
    for _ in range(4):
        new = next_points(tried, number=3, has_server_step=False)
        assert {point.server for point in new} == {0}
        tried |= {point: -((point.client - 0.4) ** 2) for point in new}
    assert abs(best_point(tried).client - 0.4) < 0.2


@pytest.mark.parametrize("optimum", [Point(2, 0), Point(-3, 0), Point(0, 2), Point(1, -2), Point(-1, 1), Point(0, 0)])
def test_nine_trials_come_within_one_factor_of_an_optimum(optimum: Point) -> None:
    """The function falls by 1 per factor away from the optimum, in each of the two steps."""
    tried: dict[Point, float] = {}
    for _ in range(3):
        for point in next_points(tried, number=3):
            tried[point] = -abs(point.client - optimum.client) - abs(point.server - optimum.server)
    assert tried[best_point(tried)] >= -1


def test_if_all_trials_diverge_the_steps_become_smaller() -> None:
    tried = dict.fromkeys(FIRST, -math.inf)
    assert next_points(tried, number=1) == [Point(-2, 0)]


def test_the_edge_is_reported() -> None:
    middle = {Point(0, 0): 0.9, Point(1, 0): 0.8, Point(-1, 0): 0.7, Point(0, 1): 0.6, Point(0, -1): 0.5}
    assert not is_at_edge(middle)
    assert is_at_edge(middle | {Point(0, 2): 0.95})


def test_the_server_step_stays_below_its_limit() -> None:
    """The largest server step is the best, and half a factor more is allowed."""
    tried: dict[Point, float] = {}
    for _ in range(5):
        new = next_points(tried, number=3, largest_server=0.5)
        assert len(new) == 3
        tried |= {point: point.server - abs(point.client) for point in new}
    assert best_point(tried) == Point(0, 0.5)
    assert max(point.server for point in tried) == 0.5
