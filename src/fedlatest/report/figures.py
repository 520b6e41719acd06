"""Curves of runs: the same colour for the same algorithm everywhere, legible without colour too."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedlatest.errors import RunFolderError
from fedlatest.report.published_curves import PublishedCurve
from fedlatest.report.run_records import RunRecord

Dashes = str | tuple[float, tuple[float, ...]]


@contextmanager
def canvas(width: float, height: float) -> Iterator[Figure]:
    """An empty figure of a size in inches, without any global state."""
    with mpl.rc_context(
        {
            "font.size": 9,
            "axes.titlesize": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "pdf.fonttype": 42,  # fonts that printers and journals take
        }
    ):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure


def save(figure: Figure, path: Path) -> Path:
    """Write a figure as PNG or PDF, by the file's ending."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150, metadata={"CreationDate": None} if path.suffix == ".pdf" else None)
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{path}: the figure could not be written ({error})") from error
    return path


STYLE: dict[str, tuple[str, Dashes]] = {  # Okabe and Ito's colours, which colour-blind readers tell apart, and dashes
    "fedlaavg": ("#0072B2", "-"),
    "fedavg": ("#D55E00", "-"),
    "fedprox": ("#CC79A7", (0, (5, 2))),
    "fedsgd": ("#E69F00", (0, (3, 1.5))),
    "fedadam": ("#8C6D1F", (0, (4, 1, 1, 1))),
    "naive": ("#009E73", (0, (6, 2, 1, 2))),
    "flexible": ("#882255", (0, (2, 1, 5, 1))),  # Tol's wine: Okabe and Ito have no more
    "sequential": ("#000000", (0, (1.2, 1.4))),
}
OTHER: tuple[str, Dashes] = ("#7f7f7f", "-")
ONE_STEP: tuple[str, Dashes] = ("#56B4E9", (0, (4, 1.5)))  # FedLaAvg with one local step: a lighter blue
SHADES: tuple[tuple[str, Dashes], ...] = (("#7FC8F8", "-"), ("#0072B2", (0, (4, 1.5))), ("#003B5C", (0, (1.2, 1.2))))
METRICS = {"train_loss": "training loss", "test_accuracy": "test accuracy"}


class Line(NamedTuple):
    """A curve of a figure: a run, and where there is one the published curve behind it."""

    label: str
    run: RunRecord
    published: PublishedCurve | None = None


def draw_curves(runs: list[RunRecord], path: Path, *, title: str = "") -> Path:
    """Training loss and test accuracy over rounds, mean and band over seeds; PNG or PDF by the file's ending."""
    if not runs:
        raise RunFolderError("nothing to draw: no runs were given")
    return draw_both([Line(label, run) for label, run in zip(_labels(runs), runs, strict=True)], path, title=title)


def draw_both(lines: Sequence[Line], path: Path, *, title: str = "") -> Path:
    """Training loss beside test accuracy."""
    with canvas(9, 3.4) as figure:
        axes = figure.subplots(1, 2)
        for each, metric in zip(axes, METRICS, strict=True):
            _draw(each, lines, metric)
        axes[1].legend(frameon=False, loc="lower right")
        if any(line.published for line in lines):
            axes[0].legend(*_published_entry(), frameon=False, loc="upper right")
        if title:
            figure.suptitle(title)
        return save(figure, path)


def draw_panels(panels: Mapping[str, Sequence[Line]], metric: str, path: Path, *, title: str = "") -> Path:
    """One metric in several settings, a panel each, the legend in a cell of its own."""
    columns = 3 if len(panels) > 2 else len(panels) + 1
    rows = math.ceil((len(panels) + 1) / columns)
    with canvas(3.4 * columns, 2.7 * rows) as figure:
        cells = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes, (name, lines) in zip(cells[1:], panels.items(), strict=False):
            _draw(axes, lines, metric)
            axes.set_title(name)
        for axes in (cells[0], *cells[len(panels) + 1 :]):
            axes.set_axis_off()
        shown = [axes.get_legend_handles_labels() for axes in cells[1 : len(panels) + 1]]
        if any(line.published for lines in panels.values() for line in lines):
            shown.append(_published_entry())
        entries = {label: handle for handles, labels in shown for handle, label in zip(handles, labels, strict=True)}
        cells[0].legend(entries.values(), entries.keys(), loc="center", frameon=False, title=title)
        return save(figure, path)


def style_of(run: RunRecord) -> tuple[str, Dashes]:
    """Colour and dashes of a run: its algorithm's, wherever it is drawn."""
    if run.algorithm == "fedlaavg" and run.manifest["config"].get("num_local_steps") == 1:
        return ONE_STEP
    return STYLE.get(run.algorithm, OTHER)


def _draw(axes: Axes, lines: Sequence[Line], metric: str) -> None:
    sweep = len(lines) > 1 and len({style_of(line.run) for line in lines}) == 1
    for number, line in enumerate(lines):
        colour, dashes = SHADES[number % len(SHADES)] if sweep else style_of(line.run)
        _curve(axes, line, metric, colour, dashes)
    axes.set(xlabel="round", ylabel=METRICS[metric])
    if metric == "train_loss":
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
        axes.tick_params(axis="y", which="minor", labelsize=7)
    _zoom(axes, lines, metric)


def _curve(axes: Axes, line: Line, metric: str, colour: str, dashes: Dashes) -> None:
    values, rounds = line.run.metrics.column(metric), line.run.metrics.rounds
    above = line.run.algorithm == "fedlaavg"
    if line.published is not None:
        seen = line.published.rounds <= rounds[-1]
        theirs = getattr(line.published, metric)[seen]
        axes.plot(line.published.rounds[seen], theirs, color=colour, alpha=0.35, linewidth=2.6, zorder=1)
    axes.plot(
        rounds, values.mean(axis=0), color=colour, linestyle=dashes, label=line.label, linewidth=1.6 if above else 1.0,
        zorder=3 if above else 2,
    )  # fmt: skip
    if len(values) > 1:
        axes.fill_between(rounds, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.2, linewidth=0)


def _zoom(axes: Axes, lines: Sequence[Line], metric: str) -> None:
    """Show what happens after the start: the first rounds, where one group of clients is unseen, go off the scale."""
    late = []
    for line in lines:
        rounds = line.run.metrics.rounds
        late.append(line.run.metrics.column(metric)[:, rounds >= 0.1 * rounds[-1]])
    low, high = min(part.min() for part in late), max(part.max() for part in late)
    if not (np.isfinite(low) and np.isfinite(high)) or low >= high:
        return
    if metric == "train_loss":
        axes.set_ylim(max(low, 1e-12) / 1.1, high * 1.1)
    else:
        axes.set_ylim(max(0.0, low - 0.05 * (high - low)), min(1.0, high + 0.08 * (high - low)))


def _published_entry() -> tuple[list[Line2D], list[str]]:
    return [Line2D([], [], color="#555555", alpha=0.35, linewidth=2.6)], ["published"]


def _labels(runs: list[RunRecord]) -> list[str]:
    """Algorithms by their title; runs of one algorithm by their folder as well."""
    titles = [run.title for run in runs]
    counts = dict(zip(*np.unique(titles, return_counts=True), strict=True))
    return [run.title if counts[run.title] == 1 else f"{run.title} ({run.path.name})" for run in runs]
