"""The figure of a case in virtual time: test accuracy over hours, and over bytes."""

import math
from collections import Counter
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedlatest.report.figures import Style, algorithm_styles, canvas, image_source, save, variant
from fedlatest.report.leaderboard import Board, Entry, Leaderboard
from fedlatest.report.run_summaries import Values, megabytes
from fedlatest.report.timed_results import HOUR
from fedlatest.runs.timed_curves import at

MOMENTS = 240  # at which the curves of all seeds are read
WIDTH, HEIGHT, LINE = 10.0, 3.6, 0.2  # inches
GIGABYTE = 1000.0  # megabytes


def draw_time_and_bytes(board: Board, path: Path) -> Path:
    """Draw the accuracy of the methods of a case over virtual time and over bytes, as PNG or PDF; return `path`.

    Lines are means over seeds of the last evaluation before each moment, and areas their range. The bytes of a moment
    are those that all clients have sent and received, mean over seeds.

    Args:
        board: The methods of a case with virtual time.
        path: The file to write.
    """
    with canvas(WIDTH, _height(board)) as figure:
        draw_case(figure, board)
        return save(figure, path)


def curve_sources(leaderboard: Leaderboard) -> dict[str, str]:
    """Return the figure of every case as a data URI for an image element; nothing without virtual time."""
    found = {}
    for board in leaderboard.boards:
        if board.until is not None and any(entry.timed for entry in board.entries):
            with canvas(WIDTH, _height(board)) as figure:
                draw_case(figure, board)
                found[board.case] = image_source(figure)
    return found


def _height(board: Board) -> float:
    return HEIGHT + LINE * math.ceil(len(board.entries) / _columns(board))


def _columns(board: Board) -> int:
    return max(1, 130 // (max(len(entry.title) for entry in board.entries) + 8))


def draw_case(figure: Figure, board: Board) -> None:
    """Draw both panels and the legend into an empty figure."""
    assert board.until is not None
    left, right = figure.subplots(1, 2, sharey=True)
    shown = [entry for entry in board.entries if entry.timed is not None]
    styles, used = algorithm_styles(entry.run.algorithm for entry in shown), Counter[Style]()
    moments = np.linspace(0, board.until, MOMENTS)
    traffic = {entry.method: _traffic(entry, moments) for entry in shown}
    largest = max((float(np.nanmax(each)) for each in traffic.values() if np.isfinite(each).any()), default=0.0)
    unit, name = (GIGABYTE, "GB") if largest >= GIGABYTE else (1.0, "MB")
    for entry in shown:
        style = styles[entry.run.algorithm]
        colour, dashes = variant(style, used[style])
        used[style] += 1
        values = _curves(entry, entry.run.metrics.column("test_accuracy"), moments)
        for axes, over in ((left, moments / HOUR), (right, traffic[entry.method] / unit)):
            axes.plot(over, values.mean(axis=0), color=colour, linestyle=dashes, linewidth=1.1, label=entry.title)
            if len(values) > 1:
                axes.fill_between(
                    over, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.12, linewidth=0
                )  # fmt: skip
    left.set(xlabel="virtual time, hours", ylabel="test accuracy")
    right.set(xlabel=f"sent and received by all clients, {name}")
    _mark_target(left, right, board.target)
    _fit(left, shown, moments)
    figure.suptitle(board.case)
    columns = min(_columns(board), len(shown))
    figure.legend(*left.get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=columns)


def _mark_target(left: Axes, right: Axes, target: float) -> None:
    """Draw a line at the target in both axes, with its name at the right of them, where no curve is."""
    if not math.isfinite(target):
        return
    for axes in (left, right):
        axes.axhline(target, color="#777777", linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
    place = (1.01, target)
    right.annotate(f"target {target:.2f}", place, xycoords=("axes fraction", "data"), va="center", fontsize=7)


def _fit(axes: Axes, shown: list[Entry], moments: Values) -> None:
    """Fit the y axis to the curves after the first tenth of the time."""
    late = moments[moments >= 0.1 * moments[-1]]
    curves = [_curves(entry, entry.run.metrics.column("test_accuracy"), late).mean(axis=0) for entry in shown]
    values = np.concatenate(curves) if curves else np.zeros(0)
    low, high = float(values.min(initial=1.0)), float(values.max(initial=0.0))
    if low < high:
        axes.set_ylim(max(0.0, low - 0.05 * (high - low)), min(1.0, high + 0.08 * (high - low)))


def _curves(entry: Entry, values: Values, moments: Values) -> Values:
    """Return a column of the metrics at some moments, [seeds, moments]."""
    return np.array(
        [at(times, own, moments) for times, own in zip(entry.run.metrics.column("time"), values, strict=True)]
    )


def _traffic(entry: Entry, moments: Values) -> Values:
    """Return the megabytes that all clients have sent and received at some moments, mean over seeds."""
    found = megabytes(entry.run, None)
    return np.full(moments.shape, math.nan) if found is None else _curves(entry, found, moments).mean(axis=0)
