"""Annotations of training curves: names at the ends of lines, and the rounds in which the second group is available."""

from collections.abc import Sequence
from itertools import groupby

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.typing import ColorType

from fedlatest.report.run_records import RunRecord
from fedlatest.runs import ClientRecord, RunFolder

MOST_BLOCKS = 60  # blocks of rounds; more would be narrower than a line
LARGEST_ERROR = 0.1  # mean share of clients by which availability may differ from that of two groups
SHADE = (0.0, 0.0, 0.0, 0.08)  # a transparent black: a figure with light lines shows it as a transparent white
SOME_GROUPS = ("the first group of clients", "the other clients")
DARKEST_TEXT = 0.55  # names in lighter colours than this are darkened, so that they can be read on white


def label_line_ends(axes: Axes) -> None:
    """Write the label of every line of `axes` next to its last point; labels that would overlap are moved apart.

    Call it when the limits of the axes are final. A legend is not needed then.
    """
    lines = [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
    axes.autoscale_view()  # of limits that are not set
    to_axes = axes.transData + axes.transAxes.inverted()
    ends = np.nan_to_num([to_axes.transform(_last_point(line)) for line in lines])
    height = axes.figure.get_figure(root=True).get_size_inches()[1] * 72 * 0.75  # points, about that of the axes
    size = 9.0
    for line, end, place in zip(lines, ends, spread(np.clip(ends[:, 1], 0, 1), 1.25 * size / height), strict=True):
        colour = line.get_color()
        axes.annotate(
            str(line.get_label()), xy=tuple(end), xytext=(1.06, float(place)), xycoords="axes fraction",
            color=_readable(colour), va="center", fontsize=size, annotation_clip=False,
            arrowprops={
                "arrowstyle": "-", "color": colour, "linewidth": 0.7, "shrinkA": 1, "shrinkB": 1, "relpos": (0, 0.5)
            },
        )  # fmt: skip


def spread(places: npt.ArrayLike, gap: float) -> npt.NDArray[np.float64]:
    """Return places that are at least `gap` apart, in the same order, as near as possible to the given ones.

    Places that are too near to each other are moved by equal amounts around their mean.

    >>> spread([0.5, 0.1, 0.52], 0.1).round(2).tolist()
    [0.46, 0.1, 0.56]
    """
    wanted = np.asarray(places, float)
    order = np.argsort(wanted, kind="stable")
    groups: list[list[float]] = []  # wanted places minus what the gap adds; a group shares its mean
    for number, place in enumerate(wanted[order]):
        groups.append([place - number * gap])
        while len(groups) > 1 and np.mean(groups[-1]) < np.mean(groups[-2]):
            groups[-2:] = [groups[-2] + groups[-1]]
    found = np.empty(len(wanted))
    found[order] = [np.mean(group) for group in groups for _ in group] + np.arange(len(wanted)) * gap
    return found


def shade_second_group(panels: Sequence[tuple[Axes, Sequence[RunRecord]]]) -> list[Patch]:
    """Shade the rounds in which the second of two groups of clients is available, if the runs' clients are two groups.

    This is the availability of `diurnal` and `alternating`: one group, then all others, and so on. A panel is not
    shaded if its runs differ in the groups, the groups alternate too often, or no run has a record of its clients.

    Returns:
        The entries of a legend; none if nothing was shaded.
    """
    names = set()
    for axes, runs in panels:
        records = [clients for run in runs if (clients := RunFolder(run.path).clients()) is not None]
        found = {(_names_of_groups(clients), tuple(second_group_rounds(clients))) for clients in records}
        if len(found) != 1:
            continue
        [(groups, rounds)] = found
        limits = axes.get_xlim()
        for start, stop in rounds:
            axes.axvspan(start, stop, facecolor=SHADE, linewidth=0, zorder=0)
        axes.set_xlim(limits)
        names |= {groups} if rounds else set()
    if not names:
        return []
    first, second = names.pop() if len(names) == 1 else SOME_GROUPS
    return [
        Patch(facecolor="none", edgecolor="#777777", linewidth=0.6, label=f"only {first} available"),
        Patch(facecolor=SHADE, edgecolor="#777777", linewidth=0.6, label=f"only {second} available"),
    ]


def second_group_rounds(clients: ClientRecord) -> list[tuple[int, int]]:
    """Return the rounds [start, stop) in which exactly those clients are available that were not in round 0.

    The list is empty unless in all rounds either these or the other clients are available.
    """
    picture = clients.available / 255
    weights = np.diff(clients.row_edges) / clients.labels.size
    distance = weights @ np.abs(picture - picture[:, :1])  # [columns] from the first one: 0 or 1 for two groups
    if distance.max() < 0.5 or np.minimum(distance, 1 - distance).mean() > LARGEST_ERROR:
        return []
    blocks = [list(group) for _, group in groupby(range(distance.size), key=lambda column: distance[column] > 0.5)]
    if len(blocks) > MOST_BLOCKS:
        return []
    edges = clients.column_edges
    return [(int(edges[block[0]]), int(edges[block[-1] + 1])) for block in blocks[1::2]]


def _names_of_groups(clients: ClientRecord) -> tuple[str, str]:
    """Return how the legend names the two groups: by their labels, if they have none in common."""
    sizes = np.diff(clients.row_edges)
    is_first = np.repeat(clients.available[:, 0] > 127, sizes)
    first, second = (np.unique(clients.labels[clients.order[which]]) for which in (is_first, ~is_first))
    if first.size == 0 or second.size == 0 or np.intersect1d(first, second).size:
        return SOME_GROUPS
    return f"clients with {_ranges(first)}", f"clients with {_ranges(second)}"


def _ranges(labels: npt.NDArray[np.int32]) -> str:
    """Return ascending labels as a text.

    >>> _ranges(np.array([0])), _ranges(np.array([0, 1, 2, 7]))
    ('label 0', 'labels 0-2, 7')
    """
    starts = np.flatnonzero(np.diff(labels, prepend=labels[0] - 2) > 1)
    runs = np.split(labels, starts[1:])
    parts = [f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return f"{'label' if len(labels) == 1 else 'labels'} {', '.join(parts)}"


def _last_point(line: Line2D) -> tuple[float, float]:
    x, y = (np.asarray(values, float) for values in line.get_data())
    last = np.flatnonzero(np.isfinite(y))[-1:]
    return (float(x[last[0]]), float(y[last[0]])) if last.size else (float(x[-1]), float("nan"))


def _readable(colour: ColorType) -> tuple[float, ...]:
    """Return a colour that is dark enough for text on white."""
    parts = np.array(to_rgb(colour))
    lightness = float(parts @ (0.213, 0.715, 0.072))
    return tuple(parts * min(1.0, DARKEST_TEXT / max(lightness, 1e-9)))
