"""Shades of the cells of leaderboards, which show how far a number is from the best of its column."""

import re
from collections.abc import Sequence

DISTANCES = (0.005, 0.01, 0.02, 0.05)  # from the best accuracy or swing, up to which a cell has the shade 0, 1, ...
RATIOS = (1.1, 1.5, 2.0, 4.0)  # to the shortest time or the fewest rounds, up to which a cell has the shade 0, 1, ...
HIGHER_IS_BETTER = {"test accuracy", "worst label"}
LOWER_IS_BETTER = {"swing"}
SOONER_IS_BETTER = {"hours to target", "mean hours", "first reached", "rounds to target"}
EXPLANATION = (
    "The stronger the colour of a cell, the nearer its number is to the best of its column: accuracies and swings "
    "that differ from it by at most {}, {}, {} and {}, and times and rounds of at most {}, {}, {} and {} times the "
    "shortest."
).format(*DISTANCES, *RATIOS)

NUMBER = re.compile(r"\W*(?P<number>\d[\d,]*(?:\.\d+)?)")


def shades(measures: Sequence[str], rows: Sequence[Sequence[str]]) -> list[list[int | None]]:
    """Return the shade of every cell: 0 is nearest to the best of the column; None has no shade.

    Args:
        measures: What each column shows; only accuracies, swings and times to a target are shaded.
        rows: The cells as text, which may be bold in Markdown. Their first number counts; a cell without a
            number, such as "diverged" and "never", has no shade.

    >>> shades(["test accuracy", "hours to target", "MB up"], [["**0.92 ± 0.01**", "2.0", "9"], ["0.91", "never", "9"]])
    [[0, 0, None], [1, None, None]]
    """
    columns = [_of_column(measure, [row[i] for row in rows]) for i, measure in enumerate(measures)]
    return [list(row) for row in zip(*columns, strict=True)]


def _of_column(measure: str, cells: Sequence[str]) -> list[int | None]:
    found = [NUMBER.match(cell) for cell in cells]
    numbers = [None if each is None else float(each["number"].replace(",", "")) for each in found]
    known = [number for number in numbers if number is not None]
    if not known or measure not in HIGHER_IS_BETTER | LOWER_IS_BETTER | SOONER_IS_BETTER:
        return [None] * len(cells)
    best = max(known) if measure in HIGHER_IS_BETTER else min(known)
    limits = [ratio * best for ratio in RATIOS] if measure in SOONER_IS_BETTER else [best + each for each in DISTANCES]
    return [None if number is None else _first_above(best + abs(number - best), limits) for number in numbers]


def _first_above(number: float, limits: Sequence[float]) -> int | None:
    """Return the position of the first limit that a number does not exceed; None if it exceeds all."""
    return next((i for i, limit in enumerate(limits) if number <= limit + 1e-9), None)  # numbers have few decimals
