"""The critical-difference diagram: mean ranks of methods, and which of them do not differ significantly."""

import math
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedlatest.report.figures import algorithm_styles, canvas, image_source, save
from fedlatest.report.leaderboard import Leaderboard

LINE, BAR = 0.26, 0.16  # inches between the lines to the names, and between the bars of a group
WIDTH = 8.5


def draw_ranks(board: Leaderboard, path: Path) -> Path:
    """Draw the diagram as PNG or PDF; return `path`.

    Each method is a line from its mean rank on the axis to its name. A bar connects methods whose mean ranks differ by
    less than the critical difference.
    """
    with canvas(WIDTH, _height(board)) as figure:
        _draw(figure, board)
        return save(figure, path)


def rank_diagram_source(board: Leaderboard) -> str:
    """Return the diagram as a data URI for an image element; empty for a single method."""
    if len(board.methods) < 2:
        return ""
    with canvas(WIDTH, _height(board)) as figure:
        _draw(figure, board)
        return image_source(figure)


def _height(board: Leaderboard) -> float:
    per_side = math.ceil(len(board.methods) / 2)
    return 0.9 + BAR * len(board.ranking.groups()) + LINE * per_side


def _draw(figure: Figure, board: Leaderboard) -> None:
    """Draw names of the better half on the left and those of the others on the right, the best at the top left."""
    axes, ranking, methods = figure.subplots(), board.ranking, board.by_rank
    mean = np.sort(ranking.mean)
    low, high = math.floor(mean[0]), math.ceil(mean[-1])
    high = max(high, low + 1)
    left, right = low - 0.08 * (high - low), high + 0.08 * (high - low)
    axes.set(xlim=(low - 0.75 * (high - low), high + 0.75 * (high - low)), ylim=(-_height(board) + 0.5, 0.45))
    axes.set_axis_off()
    _draw_axis(axes, low, high, ranking.critical_difference)
    top = -0.12
    for number, (first, last) in enumerate(ranking.groups()):
        height = top - BAR * (number + 0.5)
        axes.plot([mean[first], mean[last]], [height, height], color="#444444", linewidth=3, solid_capstyle="round")
    start = top - BAR * len(ranking.groups()) - 0.1
    half = math.ceil(len(methods) / 2)
    algorithms = {entry.method: entry.run.algorithm for entry in board.boards[0].entries}
    styles = algorithm_styles(algorithms.values())
    for number, method in enumerate(methods):
        on_left = number < half
        line = number if on_left else len(methods) - 1 - number
        height, edge = start - LINE * (line + 0.5), left if on_left else right
        colour = styles[algorithms[method]][0]
        axes.plot([mean[number], mean[number], edge], [0, height, height], color=colour, linewidth=1)
        text = (
            f"{board.titles[method]}  {mean[number]:.1f}" if on_left else f"{mean[number]:.1f}  {board.titles[method]}"
        )
        gap = 0.01 * (high - low)
        axes.text(
            edge - gap if on_left else edge + gap,
            height,
            text,
            ha="right" if on_left else "left",
            va="center",
            fontsize=9,
        )


def _draw_axis(axes: Axes, low: int, high: int, difference: float) -> None:
    axes.plot([low, high], [0, 0], color="black", linewidth=1)
    every = 1 if high - low < 12 else 2 if high - low < 30 else 5
    for rank in range(low, high + 1):
        axes.plot([rank, rank], [0, 0.06], color="black", linewidth=1)
        if (rank - low) % every == 0:
            axes.text(rank, 0.1, str(rank), ha="center", va="bottom", fontsize=8)
    if math.isfinite(difference):
        shown = min(difference, high - low)
        axes.plot([low, low + shown], [0.36, 0.36], color="black", linewidth=2)
        text = f"critical difference {difference:.1f}" + ("" if shown == difference else " (longer than the axis)")
        axes.text(low + shown + 0.01 * (high - low), 0.36, text, ha="left", va="center", fontsize=8)
