"""A search for the best client and server step size with a fixed number of trials.

The candidates are points (i, j) on a grid: the client's step is FACTOR^i times its default, and the server's step
FACTOR^j times its default. The search starts with three client steps around the default. Then it tries untried
neighbours of the best point so far, so that it moves as far as the results suggest. Once all neighbours were tried, the
distance is halved.
"""

import math
from collections.abc import Mapping
from itertools import count
from typing import NamedTuple

FACTOR = 10**0.5  # ratio of neighbouring step sizes
TRIALS_AT_ONCE = 3


class Point(NamedTuple):
    """Powers of FACTOR by which the default step sizes are multiplied."""

    client: float = 0.0
    server: float = 0.0


FIRST = (Point(0, 0), Point(1, 0), Point(-1, 0))
# Steps to neighbours, in the order in which they are tried; (1, -1) and (-1, 1) keep the product of the steps.
DIRECTIONS = (
    Point(1, 0), Point(-1, 0), Point(0, 1), Point(0, -1), Point(1, -1), Point(-1, 1), Point(1, 1), Point(-1, -1)
)  # fmt: skip


def next_points(
    scores: Mapping[Point, float],
    *,
    number: int,
    has_server_step: bool = True,
    largest_server: float = math.inf,
) -> list[Point]:
    """Return the points to try next.

    Args:
        scores: The points that were tried, with their scores; larger is better, and minus infinity means diverged.
        number: How many points to return.
        has_server_step: Whether the algorithm has a server step; if not, only the client's is changed.
        largest_server: The largest power of the server step, 0 or larger.

    >>> next_points({}, number=3)
    [Point(client=0, server=0), Point(client=1, server=0), Point(client=-1, server=0)]
    >>> scores = {Point(0, 0): 0.8, Point(1, 0): 0.9, Point(-1, 0): 0.7}
    >>> [tuple(point) for point in next_points(scores, number=3)]
    [(2.0, 0.0), (1.0, 1.0), (1.0, -1.0)]
    """
    untried = [point for point in FIRST if point not in scores][:number]
    directions = [each for each in DIRECTIONS if has_server_step or each.server == 0]
    # Of points with equal scores, the one with the smallest steps comes first: all are -inf if every trial diverged.
    by_score = sorted(scores, key=lambda point: (-scores[point], point.client + point.server))
    for halvings in count():
        for start in by_score[: 1 + halvings]:  # further points are considered when the distance shrinks
            for direction in directions:
                point = Point(
                    start.client + direction.client / 2**halvings, start.server + direction.server / 2**halvings
                )
                is_new = point not in scores and point not in untried
                if len(untried) < number and is_new and point.server <= largest_server:
                    untried.append(point)
        if len(untried) >= number or not by_score:
            return untried
    raise AssertionError("unreachable")


def best_point(scores: Mapping[Point, float]) -> Point:
    """Return the point with the highest score; of several, the one that was tried first."""
    return max(scores, key=lambda point: scores[point])


def is_at_edge(scores: Mapping[Point, float]) -> bool:
    """Return whether the best point has the smallest or largest client or server step that was tried.

    A better one may then lie further out, and more trials may find it.

    >>> is_at_edge({Point(0, 0): 0.8, Point(1, 0): 0.9, Point(-1, 0): 0.7})
    True
    """
    best = best_point(scores)
    for axis, own in enumerate(best):
        tried = {point[axis] for point in scores}
        if len(tried) > 1 and own in (min(tried), max(tried)):
            return True
    return False
