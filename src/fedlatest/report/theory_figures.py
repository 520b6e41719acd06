"""The picture of Example 1: iterates that circle the wrong point, and errors that fall."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from fedlatest.report.figures import SHADES, STYLE, Dashes, canvas, save

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


class Measured(NamedTuple):
    """One point: where it is, what each seed measured, and the bound."""

    num_clients: int
    rounds: int
    values: npt.NDArray[np.float64]  # [seeds]
    bound: float


def draw_rate(points: Sequence[Measured], path: Path) -> Path:
    """Left over T, a line for each N; right over N, a line for each T; dashed the slope that the theorem promises."""
    with canvas(9, 3.6) as figure:
        left, right = figure.subplots(1, 2, sharey=True)
        _lines(left, points, over="rounds", each="num_clients", name="N = {}", slope=-1 / 2)
        _lines(right, points, over="num_clients", each="rounds", name="T = {}", slope=-1 / 4)
        left.set(xlabel="rounds T", ylabel="mean squared gradient")
        right.set(xlabel="clients N")
        for axes, name in ((left, "rounds"), (right, "num_clients")):
            places = sorted({int(getattr(point, name)) for point in points})
            axes.set_xticks(places, [f"{place:,}" for place in places])
            axes.set_xticks([], minor=True)
        return save(figure, path)


def _lines(axes: Axes, points: Sequence[Measured], *, over: str, each: str, name: str, slope: float) -> None:
    for number, value in enumerate(sorted({getattr(point, each) for point in points})):
        own = sorted((point for point in points if getattr(point, each) == value), key=lambda p: int(getattr(p, over)))
        colour, _ = SHADES[number % len(SHADES)]
        x = np.array([getattr(point, over) for point in own], float)
        seen = np.array([point.values for point in own])  # [points, seeds]
        axes.loglog(x, seen.mean(axis=1), color=colour, marker="o", markersize=3, label=name.format(value))
        axes.fill_between(x, seen.min(axis=1), seen.max(axis=1), color=colour, alpha=0.3, linewidth=0)
        axes.loglog(x, [point.bound for point in own], color=colour, linestyle=(0, (4, 2)), linewidth=1)
        axes.loglog(x, 0.8 * seen[0].mean() * (x / x[0]) ** slope, color="#888888", linestyle=":", linewidth=1)
    handles, labels = axes.get_legend_handles_labels()
    handles += [Line2D([], [], color="#333333", linestyle=(0, (4, 2))), Line2D([], [], color="#888888", linestyle=":")]
    axes.legend(handles, [*labels, "Theorem 3's bound", f"slope {slope:g}"], frameon=False, fontsize=7, ncols=3,
                loc="upper center", bbox_to_anchor=(0.5, -0.14), columnspacing=1, handlelength=1.6)  # fmt: skip
