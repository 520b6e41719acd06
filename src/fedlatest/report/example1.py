"""The picture of Example 1: iterates that circle the wrong point, and errors that fall."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.report.canvas import Dashes, canvas, save
from fedlatest.report.figures import STYLE

Values = npt.NDArray[np.float64]
LEVELS: tuple[tuple[str, Dashes], ...] = (("#000000", "-"), ("#666666", (0, (4, 2))), ("#666666", (0, (1, 1.5))))
ERRORS: tuple[tuple[str, Dashes], ...] = (("#666666", (0, (4, 2))), STYLE["fedlaavg"])


class Path1(NamedTuple):
    """The iterates of one algorithm."""

    title: str
    algorithm: str
    iterates: Values


def draw_example1(
    paths: Sequence[Path1],
    levels: Mapping[str, float],
    rounds: npt.NDArray[np.int64],
    errors: Mapping[str, Values],
    path: Path,
    *,
    shown: int,
) -> Path:
    """Iterates over the first `shown` rounds with levels to compare, and beside them errors over numbers of rounds."""
    with canvas(9.5, 3.6) as figure:
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
        for index, each in enumerate(paths):
            colour, dashes = STYLE[each.algorithm]
            again = any(other.algorithm == each.algorithm for other in paths[:index])
            left.plot(
                each.iterates[: shown + 1], color=colour, linestyle=(0, (1, 1)) if again else dashes, label=each.title,
                linewidth=1.6 if each.algorithm == "fedlaavg" else 1.0,
            )  # fmt: skip
        for (title, level), (colour, dashes) in zip(levels.items(), LEVELS, strict=False):
            left.axhline(level, color=colour, linestyle=dashes, linewidth=0.8, label=title, zorder=1)
        left.set(xlabel="round", ylabel="x", xlim=(0, shown))
        left.legend(frameon=False, fontsize=7, loc="upper left", bbox_to_anchor=(0, -0.15), ncols=3)
        for (title, values), (colour, dashes) in zip(errors.items(), ERRORS, strict=False):
            right.loglog(rounds, values, color=colour, linestyle=dashes, marker="o", markersize=3, label=title)
        right.set(xlabel="rounds T, with gamma = 1 / (2 sqrt T)", ylabel="squared error of FedLaAvg")
        right.legend(frameon=False, fontsize=7)
        return save(figure, path)
