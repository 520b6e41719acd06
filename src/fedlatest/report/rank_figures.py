"""The critical-difference diagram: mean ranks of methods, and which of them do not differ significantly."""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.textpath import TextPath

from fedlatest.report.figure_annotations import spread
from fedlatest.report.figures import algorithm_styles, canvas, image_source, save
from fedlatest.report.leaderboard import Leaderboard
from fedlatest.report.statistics import Ranking

LINE, BAR = 0.21, 0.09  # inches between two names, and between the bars of two groups
TOP, MARGIN = 0.62, 0.12  # inches above the axis, and around the diagram
AXIS, LEADER = 0.55, 0.3  # inches from the left to the axis, and in which lines turn towards their names
TITLE_SIZE, NAME_SIZE = 8.0, 9.0


def draw_ranks(board: Leaderboard, path: Path) -> Path:
    """Draw the diagram of an arena as PNG or PDF; return `path`."""
    return draw_mean_ranks(*_methods(board), path)


def rank_diagram_source(board: Leaderboard) -> str:
    """Return the diagram of an arena as a data URI for an image element; empty for a single method."""
    if len(board.methods) < 2:
        return ""
    diagram = Diagram(*_methods(board))
    with diagram.canvas() as figure:
        diagram.draw(figure)
        return image_source(figure)


def draw_mean_ranks(titles: Sequence[str], algorithms: Sequence[str], ranking: Ranking, path: Path) -> Path:
    """Draw mean ranks from the best at the top to the worst, as PNG or PDF.

    Each method is a line from its mean rank on the axis to its name; the names are as near to their ranks as they can
    be without overlapping. A bar crosses the lines of methods whose mean ranks differ by less than the critical
    difference.

    Args:
        titles: The name of each method.
        algorithms: The algorithm of each method, which has the line's colour.
        ranking: The ranks of the methods.
        path: The file to write.

    Returns:
        `path`.
    """
    diagram = Diagram(titles, algorithms, ranking)
    with diagram.canvas() as figure:
        diagram.draw(figure)
        return save(figure, path)


def _methods(board: Leaderboard) -> tuple[list[str], list[str], Ranking]:
    algorithms = {entry.method: entry.run.algorithm for entry in board.boards[0].entries}
    return [board.titles[each] for each in board.methods], [algorithms[each] for each in board.methods], board.ranking


class Diagram:
    """The places of all parts of a diagram, in inches from its top left corner.

    Args:
        titles: The name of each method.
        algorithms: The algorithm of each method.
        ranking: The ranks of the methods.
    """

    def __init__(self, titles: Sequence[str], algorithms: Sequence[str], ranking: Ranking) -> None:
        order = np.argsort(ranking.mean, kind="stable")
        styles = algorithm_styles(algorithms)
        self.mean = ranking.mean[order]
        self.names = [f"{mean:.1f}  {titles[i]}" for i, mean in zip(order, self.mean, strict=True)]
        self.colours = [styles[algorithms[i]][0] for i in order]
        self.groups, self.difference = ranking.groups(), ranking.critical_difference
        self.low = math.floor(self.mean[0])
        self.high = max(math.ceil(self.mean[-1]), self.low + 1)
        self.length = LINE * max(len(titles) - 1, 4)
        places = spread(self.heights(self.mean), LINE)
        self.lift = max(0.0, TOP - float(places[0]))  # names of methods with the best rank may be above the axis
        self.places = places + self.lift
        self.edge = AXIS + BAR * (len(self.groups) + 1)  # where the lines leave the bars
        self.title = "\n".join(self._title())
        widths = [self.edge + LEADER + _width(name, NAME_SIZE) for name in self.names]
        self.width = max(*widths, *(MARGIN + _width(line, TITLE_SIZE) for line in self._title())) + MARGIN
        self.height = max(self.lift + TOP + self.length, float(self.places[-1])) + LINE

    def _title(self) -> list[str]:
        if not math.isfinite(self.difference):
            return ["mean rank"]
        too_long = ", longer than the axis" if self.difference > self.high - self.low else ""
        bars = ["grey bars: not significantly different"] if self.groups else []
        return [f"mean rank; black bar: critical difference {self.difference:.1f}{too_long}", *bars]

    def canvas(self) -> AbstractContextManager[Figure]:
        """Return an empty figure of the diagram's size."""
        return canvas(self.width, self.height)

    def heights(self, ranks: np.typing.ArrayLike) -> np.typing.NDArray[np.float64]:
        """Return where ranks are on an axis that begins at TOP."""
        return TOP + (np.asarray(ranks, float) - self.low) / (self.high - self.low) * self.length

    def draw(self, figure: Figure) -> None:
        """Draw all parts into the figure of `canvas`."""
        figure.set_layout_engine("none")
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, self.width), ylim=(self.height, 0))
        axes.set_axis_off()
        axes.text(MARGIN, MARGIN, self.title, va="top", fontsize=TITLE_SIZE, linespacing=1.4)
        self._draw_axis(axes)
        marks = self.heights(self.mean) + self.lift
        for number, (first, last) in enumerate(self.groups):
            across = AXIS + BAR * (number + 1)
            axes.plot([across, across], marks[[first, last]], color="#999999", linewidth=3, solid_capstyle="round")
        for mark, place, name, colour in zip(marks, self.places, self.names, self.colours, strict=True):
            end = self.edge + LEADER
            axes.plot([AXIS, self.edge, end - 0.04], [mark, mark, place], color=colour, linewidth=1, zorder=3)
            axes.text(end, place, name, va="center", fontsize=NAME_SIZE)

    def _draw_axis(self, axes: Axes) -> None:
        ink, (top, bottom) = mpl.rcParams["axes.edgecolor"], self.heights([self.low, self.high]) + self.lift
        axes.plot([AXIS, AXIS], [top, bottom], color=ink, linewidth=1)
        ranks = range(self.low, self.high + 1)
        every = next(step for step in (1, 2, 5, 10, 20, 50) if self.length / len(ranks) * step > 0.16)
        for rank in ranks:
            height = float(self.heights(rank)) + self.lift
            axes.plot([AXIS - 0.06, AXIS], [height, height], color=ink, linewidth=1)
            if (rank - self.low) % every == 0:
                axes.text(AXIS - 0.09, height, str(rank), ha="right", va="center", fontsize=8)
        if math.isfinite(self.difference):
            end = float(self.heights(min(self.low + self.difference, self.high))) + self.lift
            axes.plot([MARGIN + 0.05] * 2, [top, end], color=ink, linewidth=2, solid_capstyle="butt")


def _width(text: str, size: float) -> float:
    """Return the width of a text in inches."""
    return float(TextPath((0, 0), text, size=size).get_extents().width) / 72
