"""Figures of runs: the same colour for the same algorithm everywhere, legible without colour too."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fedlatest.errors import RunFolderError
from fedlatest.report.records import RunRecord

Dashes = str | tuple[int, tuple[float, ...]]  # as matplotlib takes them
STYLE: dict[
    str, tuple[str, Dashes]
] = {  # Okabe and Ito's colours, which colour-blind readers tell apart; and a dash pattern each
    "fedlaavg": ("#0072B2", "-"),
    "fedavg": ("#D55E00", "-"),
    "fedprox": ("#CC79A7", (0, (5, 2))),
    "fedsgd": ("#E69F00", (0, (3, 1.5))),
    "naive": ("#009E73", (0, (6, 2, 1, 2))),
    "sequential": ("#000000", (0, (1.2, 1.4))),
}
OTHER: tuple[str, Dashes] = ("#7f7f7f", "-")


def draw_curves(runs: list[RunRecord], path: Path, *, title: str = "") -> Path:
    """Training loss and test accuracy over rounds, mean and band over seeds; PNG or PDF by the file's ending."""
    if not runs:
        raise RunFolderError("nothing to draw: no runs were given")
    with mpl.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        FigureCanvasAgg(figure)
        loss, accuracy = figure.subplots(1, 2)
        labels = _labels(runs)
        for run, label in zip(runs, labels, strict=True):
            _curve(loss, run, "train_loss", label)
            _curve(accuracy, run, "test_accuracy", label)
        loss.set(xlabel="round", ylabel="training loss", yscale="log")
        accuracy.set(xlabel="round", ylabel="test accuracy")
        accuracy.legend(frameon=False, loc="lower right")
        if title:
            figure.suptitle(title)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, dpi=150)
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{path}: the figure could not be written ({error})") from error
    return path


def _curve(axes: Axes, run: RunRecord, column: str, label: str) -> None:
    colour, dashes = STYLE.get(run.algorithm, OTHER)
    values, rounds = run.metrics.column(column), run.metrics.rounds
    above = run.algorithm == "fedlaavg"
    axes.plot(
        rounds, values.mean(axis=0), color=colour, linestyle=dashes, label=label, linewidth=1.8 if above else 1.2,
        zorder=3 if above else 2,
    )  # fmt: skip
    if len(values) > 1:
        axes.fill_between(rounds, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.2, linewidth=0)


def _labels(runs: list[RunRecord]) -> list[str]:
    """Algorithms by their title; runs of one algorithm by their folder as well."""
    titles = [run.title for run in runs]
    counts = dict(zip(*np.unique(titles, return_counts=True), strict=True))
    return [run.title if counts[run.title] == 1 else f"{run.title} ({run.path.name})" for run in runs]
