"""The results of a sweep: one point per combination of values, as a table and as a figure."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from fedlatest.files import write_csv
from fedlatest.report.figures import OTHER_STYLES, algorithm_styles, canvas, save
from fedlatest.report.run_records import RunRecord
from fedlatest.report.statistics import half_width, interval_note, with_interval
from fedlatest.runs import RunFolder

LOG_RATIO = 20  # values that span more than this ratio are drawn on a logarithmic axis
MOST_LINES_IN_PANEL = 12
SHIFT = 0.12  # between the points of a category, so that they do not cover each other


class SweepPoint(NamedTuple):
    """The result for one combination of values; the numbers are NaN if the run diverged."""

    keys: tuple[str, ...]
    values: tuple[str, ...]  # one per key; empty where the key does not apply
    seeds: int
    accuracy: float  # late mean test accuracy
    interval: float  # half the width of its 95% confidence interval; NaN with one seed
    swing: float
    staleness: float
    algorithm: str
    diverged: str

    @property
    def cells(self) -> list[str]:
        """The results as text."""
        if self.diverged:
            return ["diverged", "-", "-"]
        return [
            with_interval(self.accuracy, self.interval),
            "-" if math.isnan(self.swing) else f"{self.swing:.4f}",
            f"{self.staleness:.0f}",
        ]


def read_points(folders: Sequence[Path], keys: Sequence[str]) -> list[SweepPoint]:
    """Return the results of finished and diverged runs.

    Args:
        folders: the run folders, in the order of the table.
        keys: the keys that the sweep changes.
    """
    points = []
    for folder in map(RunFolder, folders):
        run = RunRecord(folder.path, folder.manifest, folder.metrics())
        values = tuple(str(run.recipe[key]) if key in run.recipe else "" for key in keys)
        about = (tuple(keys), values, len(run.manifest["seeds"]))
        if not folder.finished:
            unknown = (math.nan,) * 4
            points.append(SweepPoint(*about, *unknown, run.algorithm, run.manifest.get("diverged", "")))
            continue
        accuracy = run.late("test_accuracy").mean(axis=1)
        numbers = float(accuracy.mean()), half_width(accuracy), run.swing, float(run.largest_staleness)
        points.append(SweepPoint(*about, *numbers, run.algorithm, ""))
    return points


def write_points(points: Sequence[SweepPoint], path: Path) -> Path:
    """Write the table as CSV; return `path`."""
    numbers = ("late_accuracy", "late_accuracy_ci95_half_width", "swing", "largest_staleness")
    rows = [[*point.values, point.seeds, *map(_plain, point[3:7]), point.diverged] for point in points]
    header = [*points[0].keys, "seeds", *numbers, "diverged"]
    write_csv(path, [header, *rows])
    return path


def draw_sweep(points: Sequence[SweepPoint], keys: Sequence[str], path: Path) -> Path:
    """Draw accuracy and swing over the key with the most numeric values; the other keys distinguish the lines.

    Points are joined by lines only if that key is numeric.

    Args:
        points: the results.
        keys: the keys that the sweep changes.
        path: the file to write, .png or .pdf.

    Returns:
        `path`.
    """
    axis = _axis_key(points, keys)
    others = [i for i, key in enumerate(keys) if key != axis]
    column = list(keys).index(axis)
    lines: dict[tuple[str, ...], list[SweepPoint]] = {}
    for point in points:
        if not point.diverged:
            lines.setdefault(tuple(point.values[i] for i in others), []).append(point)
    numbers = [_number(point.values[column]) for point in points]
    numeric = all(number is not None for number in numbers)
    categories = list(dict.fromkeys(point.values[column] for point in points))
    styles = algorithm_styles(point.algorithm for point in points)
    by_algorithm = "algorithm" in keys and [keys[i] for i in others] == ["algorithm"]
    with canvas(9, 3.4) as figure:
        axes = figure.subplots(1, 2)
        for number, (name, members) in enumerate(lines.items()):
            colour, dashes = styles[members[0].algorithm] if by_algorithm else OTHER_STYLES[number % len(OTHER_STYLES)]
            label = ", ".join(f"{keys[i]}={text}" for i, text in zip(others, name, strict=True) if text)
            where = [_position(member.values[column], categories, numeric=numeric) for member in members]
            order = np.argsort(where, kind="stable")
            x = np.array(where)[order]
            style = {"color": colour, "linestyle": dashes}
            if not numeric:
                style["linestyle"] = "none"
                x += min(SHIFT, 0.6 / len(lines)) * (number - (len(lines) - 1) / 2)
            for each, values, errors in (
                (axes[0], [m.accuracy for m in members], [m.interval for m in members]),
                (axes[1], [m.swing for m in members], None),
            ):
                bars = None if errors is None else np.nan_to_num(np.array(errors)[order])
                each.errorbar(
                    x, np.array(values)[order], yerr=bars, **style, marker="o", markersize=3.5,
                    linewidth=1.2, capsize=2, label=label or None,
                )  # fmt: skip
        note = interval_note([point.seeds for point in points])
        accuracy = "late test accuracy" + (f"\n({note})" if note else "")
        for each, title in zip(axes, (accuracy, "swing in the last quarter"), strict=True):
            each.set(xlabel=axis, ylabel=title)
            _set_ticks(each, [number for number in numbers if number is not None] if numeric else None, categories)
        if 1 < len(lines) <= MOST_LINES_IN_PANEL:
            axes[0].legend(frameon=False, fontsize=7)
        return save(figure, path)


def _plain(number: float) -> str:
    return "" if math.isnan(number) else f"{number:.9g}"


def _axis_key(points: Sequence[SweepPoint], keys: Sequence[str]) -> str:
    """Return the key for the horizontal axis: of the numeric ones, or else of all, that with the most values."""
    values = {key: {point.values[i] for point in points} for i, key in enumerate(keys)}
    numeric = [key for key in keys if all(_number(value) is not None for value in values[key])]
    return max(numeric or list(keys), key=lambda key: len(values[key]))


def _position(text: str, categories: Sequence[str], *, numeric: bool) -> float:
    return float(text) if numeric else float(categories.index(text))


def _set_ticks(axes: Axes, numbers: Sequence[float] | None, categories: Sequence[str]) -> None:
    if numbers is None:
        axes.set_xticks(range(len(categories)), [text or "-" for text in categories], rotation=20, ha="right")
        return
    if min(numbers) > 0 and max(numbers) / min(numbers) > LOG_RATIO:
        axes.set_xscale("log")
    if len(set(numbers)) <= 8:
        axes.set_xticks(sorted(set(numbers)), [f"{number:g}" for number in sorted(set(numbers))])
        axes.minorticks_off()


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
