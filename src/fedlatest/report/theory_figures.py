"""Figures of the theory: the iterates of Example 1, the rate of Theorem 3, and the stability of a step."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from fedlatest.report.figures import SHADES, STYLES, Style, algorithm_styles, canvas, save

Values = npt.NDArray[np.float64]
LEVEL_STYLES: tuple[Style, ...] = (("#000000", "-"), ("#666666", (0, (4, 2))), ("#666666", (0, (1, 1.5))))
ERROR_STYLES: tuple[Style, ...] = (("#666666", (0, (4, 2))), STYLES["fedlaavg"])


class Iterates(NamedTuple):
    """The iterates of one algorithm, [rounds + 1]."""

    title: str
    algorithm: str
    values: Values


def draw_example1(
    iterates: Sequence[Iterates],
    levels: Mapping[str, float],
    rounds: npt.NDArray[np.int64],
    errors: Mapping[str, Values],
    path: Path,
    *,
    shown: int,
) -> Path:
    """Draw iterates over rounds, and beside them errors over the number of rounds T.

    Args:
        iterates: The iterates of each algorithm.
        levels: Values to mark with horizontal lines, by their label.
        rounds: [numbers of rounds] the values of T.
        errors: Squared errors, each [numbers of rounds], by their label.
        path: The file to write, .png or .pdf.
        shown: Number of rounds for which iterates are drawn.

    Returns:
        `path`.
    """
    with canvas(9.5, 3.6) as figure:
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
        for index, each in enumerate(iterates):
            colour, dashes = STYLES[each.algorithm]
            repeated = any(other.algorithm == each.algorithm for other in iterates[:index])
            left.plot(
                each.values[: shown + 1], color=colour, linestyle=(0, (1, 1)) if repeated else dashes, label=each.title,
                linewidth=1.6 if each.algorithm == "fedlaavg" else 1.0,
            )  # fmt: skip
        for (title, level), (colour, dashes) in zip(levels.items(), LEVEL_STYLES, strict=False):
            left.axhline(level, color=colour, linestyle=dashes, linewidth=0.8, label=title, zorder=1)
        left.set(xlabel="round", ylabel="x", xlim=(0, shown))
        left.legend(frameon=False, fontsize=7, loc="upper left", bbox_to_anchor=(0, -0.15), ncols=3)
        for (title, values), (colour, dashes) in zip(errors.items(), ERROR_STYLES, strict=False):
            right.loglog(rounds, values, color=colour, linestyle=dashes, marker="o", markersize=3, label=title)
        right.set(xlabel="rounds T, with gamma = 1 / (2 sqrt T)", ylabel="squared error of FedLaAvg")
        right.legend(frameon=False, fontsize=7)
        return save(figure, path)


class MeasuredRate(NamedTuple):
    """The mean squared gradient measured with each seed for one N and T, and the bound of Theorem 3."""

    num_clients: int
    rounds: int
    values: npt.NDArray[np.float64]  # [seeds]
    bound: float


def draw_rate(points: Sequence[MeasuredRate], path: Path) -> Path:
    """Draw the mean squared gradient over T with one line per N, and over N with one line per T.

    Dashed lines are the bound of Theorem 3, dotted lines have the slope of the theorem's rate.
    """
    with canvas(9, 3.6) as figure:
        left, right = figure.subplots(1, 2, sharey=True)
        _draw_rates(left, points, over="rounds", each="num_clients", name="N = {}", slope=-1 / 2)
        _draw_rates(right, points, over="num_clients", each="rounds", name="T = {}", slope=-1 / 4)
        left.set(xlabel="rounds T", ylabel="mean squared gradient")
        right.set(xlabel="clients N")
        for axes, name in ((left, "rounds"), (right, "num_clients")):
            ticks = sorted({int(getattr(point, name)) for point in points})
            axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
            axes.set_xticks([], minor=True)
        return save(figure, path)


def _draw_rates(axes: Axes, points: Sequence[MeasuredRate], *, over: str, each: str, name: str, slope: float) -> None:
    for number, value in enumerate(sorted({getattr(point, each) for point in points})):
        same = sorted((point for point in points if getattr(point, each) == value), key=lambda p: int(getattr(p, over)))
        colour, _ = SHADES[number % len(SHADES)]
        x = np.array([getattr(point, over) for point in same], float)
        measured = np.array([point.values for point in same])  # [points, seeds]
        axes.loglog(x, measured.mean(axis=1), color=colour, marker="o", markersize=3, label=name.format(value))
        axes.fill_between(x, measured.min(axis=1), measured.max(axis=1), color=colour, alpha=0.3, linewidth=0)
        axes.loglog(x, [point.bound for point in same], color=colour, linestyle=(0, (4, 2)), linewidth=1)
        axes.loglog(x, 0.8 * measured[0].mean() * (x / x[0]) ** slope, color="#888888", linestyle=":", linewidth=1)
    handles, labels = axes.get_legend_handles_labels()
    handles += [Line2D([], [], color="#333333", linestyle=(0, (4, 2))), Line2D([], [], color="#888888", linestyle=":")]
    axes.legend(handles, [*labels, "Theorem 3's bound", f"slope {slope:g}"], frameon=False, fontsize=7, ncols=3,
                loc="upper center", bbox_to_anchor=(0.5, -0.14), columnspacing=1, handlelength=1.6)  # fmt: skip


class StabilityCurve(NamedTuple):
    """The growth rate of a deviation for several gains, of one method in one setting."""

    setting: str
    title: str
    algorithm: str
    gains: Values  # [M]
    rates: Values  # [M] per round
    threshold: float
    """The gain from which it grows; NaN if there is none among the gains."""


def draw_stability(curves: Sequence[StabilityCurve], path: Path, *, over: str = "", gain: float | None = None) -> Path:
    """Draw the growth rate of the first method over the gain, and the stable gains of all methods over the settings.

    Args:
        curves: Every method in every setting, in the order of the settings.
        path: The file to write, .png or .pdf.
        over: The key in which the settings differ; labels are shortened to its values.
        gain: The gain of the user's step, to be marked in both panels.

    Returns:
        `path`.
    """
    with canvas(9.5, 3.6) as figure:
        left, right = figure.subplots(1, 2)
        _draw_growth(left, curves)
        _draw_thresholds(right, curves, over)
        if gain is not None:
            left.axvline(gain, color="#D55E00", linewidth=1, linestyle=(0, (4, 2)))
            right.axhline(gain, color="#D55E00", linewidth=1, linestyle=(0, (4, 2)), label=f"this step: {gain:.2f}")
        left.legend(frameon=False, fontsize=7)
        right.legend(frameon=False, fontsize=7, loc="lower right")
        return save(figure, path)


def _draw_growth(axes: Axes, curves: Sequence[StabilityCurve]) -> None:
    """Draw the first method in several settings, or all methods in one."""
    several = len({curve.setting for curve in curves}) > 1
    shown = [curve for curve in curves if curve.title == curves[0].title] if several else curves
    styles = algorithm_styles(curve.algorithm for curve in curves)
    for number, curve in enumerate(shown):
        shade = mpl.colormaps["viridis"](0.1 + 0.8 * number / max(len(shown) - 1, 1))
        colour, label = (shade, curve.setting) if several else (styles[curve.algorithm][0], curve.title)
        axes.plot(curve.gains, curve.rates, color=colour, linewidth=1.3, label=label)
    axes.axhline(0, color="#000000", linewidth=0.8)
    lowest = min(float(curve.rates.min()) for curve in shown)
    axes.set(
        xlabel="gain of a round", ylabel="growth of a deviation per round (log)", ylim=(max(lowest, -0.06), None),
        title=f"{curves[0].title}: unstable above 0" if several else "unstable above 0",
    )  # fmt: skip


def _draw_thresholds(axes: Axes, curves: Sequence[StabilityCurve], over: str) -> None:
    """Draw the stable gain of every method over the settings; without one, a hollow mark above the gains examined."""
    settings, titles = (list(dict.fromkeys(getattr(curve, name) for curve in curves)) for name in ("setting", "title"))
    styles = algorithm_styles(curve.algorithm for curve in curves)
    highest = max(float(curve.gains.max()) for curve in curves)
    for number, title in enumerate(titles):
        own = {curve.setting: curve for curve in curves if curve.title == title}
        colour, dashes = styles[own[settings[0]].algorithm]
        values = np.array([own[setting].threshold for setting in settings])
        heights = np.where(np.isnan(values), highest * (1.06 + 0.03 * number), values)
        axes.plot(heights, color=colour, linestyle=dashes, linewidth=1, label=title)
        faces = ["#FFFFFF" if missing else colour for missing in np.isnan(values)]
        axes.scatter(range(len(settings)), heights, s=22, zorder=3, edgecolors=colour, facecolors=faces)
    axes.axhline(highest, color="#888888", linewidth=0.8, linestyle=":")
    axes.set(
        xlabel=over or "setting", ylabel="stable below this gain", ylim=(0, None),
        title="hollow: stable for all gains examined",
    )  # fmt: skip
    axes.set_xticks(range(len(settings)), [setting.removeprefix(f"{over}=") for setting in settings])
