"""Figures of training curves. An algorithm has the same colour and dashes in every figure."""

import base64
import io
import math
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

import matplotlib as mpl
import matplotlib.image
import numpy as np
import numpy.typing as npt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator

from fedlatest.errors import RunFolderError
from fedlatest.report.figure_annotations import label_line_ends, shade_second_group
from fedlatest.report.published_curves import PublishedCurve
from fedlatest.report.run_labels import label_runs
from fedlatest.report.run_records import RunRecord
from fedlatest.report.run_summaries import virtual_time

Dashes = str | tuple[float, tuple[float, ...]]
Style = tuple[str, Dashes]  # colour and dashes

# Colours that colour-blind readers can distinguish (Okabe and Ito; wine is Tol's), and dashes for print without colour.
STYLES: dict[str, Style] = {
    "fedlaavg": ("#0072B2", "-"),
    "fedavg": ("#D55E00", "-"),
    "fedprox": ("#CC79A7", (0, (5, 2))),
    "fedsgd": ("#E69F00", (0, (3, 1.5))),
    "fedadam": ("#8C6D1F", (0, (4, 1, 1, 1))),
    "naive": ("#009E73", (0, (6, 2, 1, 2))),
    "flexible": ("#882255", (0, (2, 1, 5, 1))),
    "sequential": ("#000000", (0, (1.2, 1.4))),
}
WIDTHS = {"fedlaavg": (1.8, 3.0), "fedprox": (2.8, 1.9)}  # and layer; FedProx is behind FedAvg, which it often follows
OTHER_STYLES: list[Style] = [  # of all other algorithms: Tol's muted colours and a grey
    (colour, dashes)
    for dashes in ("-", (0, (5, 1.5)), (0, (2, 1)), (0, (6, 1.5, 1.5, 1.5)))
    for colour in ("#332288", "#AA4499", "#CC6677", "#117733", "#44AA99", "#999933", "#7F7F7F")
]
CHECKSUM_START = 706  # with this value, many algorithms of the literature have different styles
ONE_STEP: Style = ("#56B4E9", (0, (4, 1.5)))  # FedLaAvg with one local step: a lighter blue
SHADES: tuple[Style, ...] = (("#7FC8F8", "-"), ("#0072B2", (0, (4, 1.5))), ("#003B5C", (0, (1.2, 1.2))))
VARIANT_DASHES: tuple[Dashes, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)), (0, (3, 3)))
VARIANT_SHADES = (0.0, -0.45, 0.4, -0.25, 0.2, -0.6, 0.55)  # share of black (negative) or white in the colour
MOST_DIRECT, LONGEST_DIRECT = 6, 24  # lines and characters of labels that fit beside a panel
METRICS = {"train_loss": "training loss", "test_accuracy": "test accuracy"}
Axis = Literal["rounds", "time"]
AXES: dict[Axis, str] = {"rounds": "round", "time": "virtual time, seconds"}


class Line(NamedTuple):
    """A line of a figure: a run and, if there is one, the published curve to draw behind it."""

    label: str
    run: RunRecord
    published: PublishedCurve | None = None


def draw_curves(runs: list[RunRecord], path: Path, *, title: str = "", over: Axis = "rounds") -> Path:
    """Draw training loss and test accuracy over rounds or virtual time, with mean and range over seeds.

    Args:
        runs: The runs; one line each.
        path: The file to write; its ending, .png or .pdf, selects the format.
        title: Title of the figure.
        over: "rounds" or "time"; the virtual time of an evaluation is its mean over seeds.

    Returns:
        `path`.

    Raises:
        RunFolderError: If there are no runs, or one of them has no virtual time.
    """
    if not runs:
        raise RunFolderError("nothing to draw: no runs were given")
    if over == "time" and (without := [run for run in runs if virtual_time(run) is None]):
        raise RunFolderError(f"{without[0].path}: has no virtual time; simulate it with `timing`, or plot over rounds")
    lines = [Line(label, run) for label, run in zip(label_runs(runs), runs, strict=True)]
    return draw_loss_and_accuracy(lines, path, title=title, over=over)


def draw_loss_and_accuracy(lines: Sequence[Line], path: Path, *, title: str = "", over: Axis = "rounds") -> Path:
    """Draw training loss beside test accuracy.

    Args:
        lines: The runs with their labels and published curves.
        path: The file to write, .png or .pdf.
        title: Title of the figure.
        over: "rounds", or "time" if all runs have a virtual time; published curves are then left out.

    Returns:
        `path`.
    """
    is_direct, columns = _fits_beside(lines), max(1, 120 // (max(len(line.label) for line in lines) + 8))
    with canvas(8, 3.2 if is_direct else 3.4 + 0.2 * math.ceil(len(lines) / columns)) as figure:
        axes, styles = figure.subplots(1, 2), algorithm_styles(line.run.algorithm for line in lines)
        for each, metric in zip(axes, METRICS, strict=True):
            draw_metric(each, lines, metric, styles, over)
        _name_lines(figure, dict(zip(axes, (lines, lines), strict=True)), columns, is_direct=is_direct, over=over)
        if title:
            figure.suptitle(title)
        return save(figure, path)


def draw_panels(panels: Mapping[str, Sequence[Line]], metric: str, path: Path, *, title: str = "") -> Path:
    """Draw one metric in several settings, one panel per setting.

    The lines of one or two panels are named at their ends, if the names are few and short; otherwise the legend has a
    panel of its own.

    Args:
        panels: Lines by the title of their panel.
        metric: A key of METRICS.
        path: The file to write, .png or .pdf.
        title: Title of the figure or the legend.

    Returns:
        `path`.
    """
    if len(panels) <= 2 and all(map(_fits_beside, panels.values())):
        return _draw_few_panels(panels, metric, path, title)
    columns = 3 if len(panels) > 2 else len(panels) + 1
    rows = math.ceil((len(panels) + 1) / columns)
    styles = algorithm_styles(line.run.algorithm for lines in panels.values() for line in lines)
    with canvas(3.4 * columns, 2.7 * rows) as figure:
        cells = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes, (name, lines) in zip(cells[1:], panels.items(), strict=False):
            draw_metric(axes, lines, metric, styles)
            axes.set_title(name)
        for axes in (cells[0], *cells[len(panels) + 1 :]):
            axes.set_axis_off()
        entries = [handle for axes in cells[1 : len(panels) + 1] for handle in axes.get_legend_handles_labels()[0]]
        if any(line.published for lines in panels.values() for line in lines):
            entries.append(_published_entry())
        by_label = {handle.get_label(): handle for handle in entries}
        cells[0].legend(handles=by_label.values(), loc="center", frameon=False, title=title)
        return save(figure, path)


def _draw_few_panels(panels: Mapping[str, Sequence[Line]], metric: str, path: Path, title: str) -> Path:
    styles = algorithm_styles(line.run.algorithm for lines in panels.values() for line in lines)
    with canvas(8, 3.2) as figure:
        by_axes = dict(zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.values(), strict=True))
        for (axes, lines), name in zip(by_axes.items(), panels, strict=True):
            draw_metric(axes, lines, metric, styles)
            axes.set_title(name)
        _name_lines(figure, by_axes, 4, is_direct=True, over="rounds")
        figure.suptitle(title)
        return save(figure, path)


def _fits_beside(lines: Sequence[Line]) -> bool:
    """Return whether the labels of lines are few and short enough to be written beside a panel."""
    return len(lines) <= MOST_DIRECT and max(len(line.label) for line in lines) <= LONGEST_DIRECT


def _name_lines(
    figure: Figure, panels: Mapping[Axes, Sequence[Line]], columns: int, *, is_direct: bool, over: Axis
) -> None:
    """Name the lines of the last panel at their ends or in a legend; shade the rounds of the second group."""
    last = list(panels)[-1]
    entries: list[Artist] = [] if is_direct else last.get_legend_handles_labels()[0]
    if is_direct:
        label_line_ends(last)
    if over == "rounds":
        entries += shade_second_group([(axes, [line.run for line in lines]) for axes, lines in panels.items()])
        entries += [_published_entry()] if any(line.published for line in panels[last]) else []
    if entries:
        figure.legend(handles=entries, frameon=False, loc="outside lower center", ncols=min(columns, len(entries)))


@contextmanager
def canvas(width: float, height: float) -> Iterator[Figure]:
    """Yield an empty figure of a size in inches; no global state of Matplotlib is changed."""
    with mpl.rc_context(
        {
            "font.size": 9,
            "axes.titlesize": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "pdf.fonttype": 42,  # TrueType, which printers and journals accept
        }
    ):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure


def save(figure: Figure, path: Path) -> Path:
    """Write a figure as PNG or PDF, depending on the ending of the file name; return `path`.

    A name that ends with "-dark.png" selects the colours for a dark page, on a transparent background.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.name.endswith("-dark.png"):
            content = io.BytesIO()
            figure.savefig(content, format="png", dpi=150, transparent=True)
            content.seek(0)
            mpl.image.imsave(path, for_dark_page(mpl.image.imread(content)))
        else:
            figure.savefig(path, dpi=150, metadata={"CreationDate": None} if path.suffix == ".pdf" else None)
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{path}: the figure could not be written ({error})") from error
    return path


def for_dark_page(image: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return an image, [rows, columns, RGBA] in 0 .. 1, with inverted brightness and the same hues.

    The site does the same with `filter: invert(1) hue-rotate(180deg)`.

    >>> for_dark_page(np.array([[[0, 0, 0, 1], [1, 1, 1, 0]]], np.float32)).round(2).tolist()
    [[[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]]]
    """
    brightness = image[..., :3] @ np.array([0.213, 0.715, 0.072], np.float32)
    inverted = image.copy()
    inverted[..., :3] = np.clip(image[..., :3] + 1 - 2 * brightness[..., None], 0, 1)
    return inverted


def image_source(figure: Figure) -> str:
    """Return a figure as a data URI for an image element."""
    content = io.BytesIO()
    figure.savefig(content, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(content.getvalue()).decode()


def algorithm_styles(names: Iterable[str]) -> dict[str, Style]:
    """Return styles for algorithms that are shown together.

    Algorithms in STYLES have the style given there. The style of any other one is chosen by the checksum of its name,
    or, if another algorithm already has this style, is the next free one.

    >>> styles = algorithm_styles(["fedavg", "scaffold", "fedawe"])
    >>> styles["fedavg"], len(set(styles.values()))
    (('#D55E00', '-'), 3)
    """
    styles: dict[str, Style] = {}
    for name in sorted(set(names)):
        first = zlib.crc32(name.encode(), CHECKSUM_START) % len(OTHER_STYLES)
        candidates = [*OTHER_STYLES[first:], *OTHER_STYLES[:first]]
        free = [style for style in candidates if style not in styles.values()]
        styles[name] = STYLES.get(name) or (free or candidates)[0]
    return styles


def style_of(run: RunRecord, styles: Mapping[str, Style]) -> Style:
    """Return the style of a run, given those of the algorithms."""
    has_one_step = run.algorithm == "fedlaavg" and run.manifest["config"].get("num_local_steps") == 1
    return ONE_STEP if has_one_step else styles[run.algorithm]


def variant(style: Style, number: int) -> Style:
    """Return another shade and other dashes for the run number 1, 2, ... of an algorithm; number 0 has its own style.

    >>> variant(("#0072B2", "-"), 0), variant(("#0072B2", "-"), 1)[0]
    (('#0072B2', '-'), '#003f62')
    """
    colour, dashes = style
    if number == 0:
        return style
    share = VARIANT_SHADES[number % len(VARIANT_SHADES)]
    target = 255 if share > 0 else 0
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    mixed = [round((1 - abs(share)) * part + abs(share) * target) for part in parts]
    others = [each for each in VARIANT_DASHES if each != dashes]
    return "#" + "".join(f"{part:02x}" for part in mixed), others[(number - 1) % len(others)]


def draw_metric(
    axes: Axes, lines: Sequence[Line], metric: str, styles: Mapping[str, Style], over: Axis = "rounds"
) -> None:
    """Draw one metric of several runs into axes.

    Args:
        axes: Where to draw.
        lines: The runs with their labels.
        metric: A key of METRICS.
        styles: The styles of the algorithms: `algorithm_styles`.
        over: "rounds" or "time".
    """
    is_sweep = 1 < len(lines) <= len(SHADES) and len({style_of(line.run, styles) for line in lines}) == 1
    used: Counter[Style] = Counter()
    for number, line in enumerate(lines):
        style = style_of(line.run, styles)
        colour, dashes = SHADES[number] if is_sweep else variant(style, used[style])
        used[style] += 1
        _draw_line(axes, line, metric, colour, dashes, over)
    axes.set(xlabel=AXES[over], ylabel=METRICS[metric], xmargin=0.01)
    if metric == "train_loss":
        axes.set_yscale("log")
        axes.yaxis.set_minor_locator(LogLocator(subs=(2, 3, 5, 7)))  # labels of all nine would overlap
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
        axes.tick_params(axis="y", which="minor", labelsize=7)
    _set_limits(axes, lines, metric)


def _draw_line(axes: Axes, line: Line, metric: str, colour: str, dashes: Dashes, over: Axis) -> None:
    values, rounds = line.run.metrics.column(metric), line.run.metrics.rounds
    at = rounds if over == "rounds" else line.run.metrics.column("time").mean(axis=0)
    if line.published is not None and over == "rounds":
        shown = line.published.rounds <= rounds[-1]
        published = getattr(line.published, metric)[shown]
        axes.plot(line.published.rounds[shown], published, color=colour, alpha=0.35, linewidth=2.6, zorder=1)
    width, level = WIDTHS.get(line.run.algorithm, (1.2, 2.0))
    axes.plot(at, values.mean(axis=0), color=colour, linestyle=dashes, label=line.label, linewidth=width, zorder=level)
    if len(values) > 1:
        axes.fill_between(at, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.2, linewidth=0)


def _set_limits(axes: Axes, lines: Sequence[Line], metric: str) -> None:
    """Fit the y axis to the rounds after the first tenth: before, some groups of clients have not taken part yet."""
    late = []
    for line in lines:
        rounds = line.run.metrics.rounds
        late.append(line.run.metrics.column(metric)[:, rounds >= 0.1 * rounds[-1]].ravel())
    shown = [part for line, part in zip(lines, late, strict=True) if not line.run.diverged] or late
    finite = np.concatenate(shown)[np.isfinite(np.concatenate(shown))]
    low, high = finite.min(initial=np.inf), finite.max(initial=-np.inf)
    if not (np.isfinite(low) and np.isfinite(high)) or low >= high:
        return
    if metric == "train_loss":
        axes.set_ylim(max(low, 1e-12) / 1.1, high * 1.1)
    else:
        axes.set_ylim(max(0.0, low - 0.05 * (high - low)), min(1.0, high + 0.08 * (high - low)))


def _published_entry() -> Line2D:
    return Line2D([], [], color="#555555", alpha=0.35, linewidth=2.6, label="published")
