"""The figure of a diagnosis: who was available when, and what this means for FedAvg and for the rounds of a day."""

import base64
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from fedlatest.diagnosis.diagnosis import Diagnosis
from fedlatest.report.figures import canvas, save

WIDTH, HEIGHT = 10.0, 7.4


class Palette(NamedTuple):
    """Colours of a figure; the colours of the heat map are those of the report page."""

    always: str
    """What the colour of a client that is always available is called."""
    ink: str
    muted: str
    ground: str
    cells: tuple[str, str, str]
    line: str
    bad: str


LIGHT = Palette("dark", "#1f2328", "#565e67", "#ffffff", ("#f1f3f5", "#6ea3cc", "#0d2f4f"), "#0072B2", "#D55E00")
DARK = Palette("bright", "#e6e8ea", "#a5adb5", "#14171a", ("#20252a", "#34719f", "#a9d4f8"), "#6cb4e4", "#f08c48")


def draw_diagnosis(diagnosis: Diagnosis, path: Path) -> Path:
    """Draw a diagnosis as PNG or PDF; return `path`."""
    with _drawn(diagnosis, LIGHT) as figure:
        return save(figure, path)


def diagnosis_figure_source(diagnosis: Diagnosis, *, dark: bool = False) -> str:
    """Return the figure as a data URI for an image element, in light or dark colours."""
    content = io.BytesIO()
    with _drawn(diagnosis, DARK if dark else LIGHT) as figure:
        figure.savefig(content, format="svg", transparent=True, metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(content.getvalue()).decode()


@contextmanager
def _drawn(diagnosis: Diagnosis, palette: Palette) -> Iterator[Figure]:
    colours: dict[Any, str] = {
        **dict.fromkeys(("text.color", "axes.labelcolor", "axes.titlecolor"), palette.ink),
        **dict.fromkeys(("xtick.color", "ytick.color", "axes.edgecolor"), palette.muted),
        **dict.fromkeys(("axes.facecolor", "figure.facecolor"), palette.ground),
        "svg.hashsalt": "fedlatest",
    }
    with mpl.rc_context(colours), canvas(WIDTH, HEIGHT) as figure:
        grid = figure.add_gridspec(3, 3, height_ratios=(2.3, 1, 1.7))
        top, middle = figure.add_subplot(grid[0, :]), figure.add_subplot(grid[1, :])
        _draw_picture(top, diagnosis, palette)
        _draw_number(middle, diagnosis, palette)
        _draw_profile(figure.add_subplot(grid[2, 0]), diagnosis, palette)
        _draw_weights(figure.add_subplot(grid[2, 1]), diagnosis, palette)
        last = figure.add_subplot(grid[2, 2])
        (_draw_rates if diagnosis.rates else _draw_absences)(last, diagnosis, palette)
        facts = diagnosis.availability
        figure.suptitle(
            f"{diagnosis.source}: {facts.num_clients:,} clients, available {facts.mean_share:.0%} of the time. "
            f"Recommended: {diagnosis.recommendation.choice('algorithm')}, {diagnosis.cohort_size} clients per round",
            fontsize=10, ha="left", x=0.01,
        )  # fmt: skip
        yield figure


def _draw_picture(axes: Axes, diagnosis: Diagnosis, palette: Palette) -> None:
    """Draw the heat map, clients by time, the most available clients at the top."""
    pictures, (scale, unit) = diagnosis.pictures, _time_axis(diagnosis)
    cells = np.array([[int(cell, 16) for cell in row] for row in pictures.rows]) / 15
    map_of = LinearSegmentedColormap.from_list("available", palette.cells)
    times, rows = np.array(pictures.column_edges) / scale, np.array(pictures.row_edges)
    axes.pcolormesh(times, rows, cells, cmap=map_of, vmin=0, vmax=1, rasterized=True)
    axes.invert_yaxis()
    order = "by label, then by availability" if pictures.by_label else "the most available at the top"
    axes.set(ylabel="clients", title=f"When each client is available ({palette.always}: always), {order}")
    axes.tick_params(labelbottom=False)
    axes.set_xlim(times[0], times[-1])
    if unit == "days":
        axes.set_xticks(range(int(times[-1]) + 1))
    never, between = diagnosis.availability.num_never, diagnosis.availability.num_between
    if never and not pictures.by_label:
        axes.axhline(rows[-1] - never, color=palette.bad, linewidth=0.8)
        note = f"{never} not available at the start of any round" if between else f"{never} never available"
        axes.annotate(note, (times[-1], rows[-1] - never), xytext=(0, 2), textcoords="offset points", ha="right",
                      color=palette.bad, fontsize=8)  # fmt: skip


def _draw_number(axes: Axes, diagnosis: Diagnosis, palette: Palette) -> None:
    pictures, (scale, unit) = diagnosis.pictures, _time_axis(diagnosis)
    times = np.array(pictures.column_edges) / scale
    axes.stairs(pictures.available, times, color=palette.line, fill=True, alpha=0.35)
    axes.stairs(pictures.available, times, color=palette.line, linewidth=1, baseline=None)
    axes.axhline(diagnosis.cohort_size, color=palette.bad, linewidth=1, linestyle=(0, (4, 2)))
    axes.annotate(
        f"cohort of {diagnosis.cohort_size}", (times[0], diagnosis.cohort_size), xytext=(4, 2),
        textcoords="offset points", color=palette.bad, fontsize=8,
        bbox={"facecolor": palette.ground, "edgecolor": "none", "alpha": 0.8, "pad": 1},
    )  # fmt: skip
    axes.set(xlabel=unit, ylabel="available", xlim=(times[0], times[-1]), ylim=(0, None))
    if unit == "days":
        axes.set_xticks(range(int(times[-1]) + 1))


def _draw_profile(axes: Axes, diagnosis: Diagnosis, palette: Palette) -> None:
    """Draw the number available over a cycle, or the shares of time if there is none."""
    pictures = diagnosis.pictures
    if not pictures.profile:
        shares = np.array(pictures.shares)
        _draw_sorted(axes, 100 * shares, palette.line)
        axes.set(xlabel="clients, % (most available first)", ylabel="% of the time", ylim=(0, 100), xlim=(0, 100))
        axes.set_title("Share of time available")
        return
    phase, mean, low, high = np.array(pictures.profile).T
    is_day = diagnosis.correlation.cycle_is_day
    times = phase * (24 if is_day else pictures.cycle or 1)
    axes.fill_between(times, low, high, color=palette.line, alpha=0.25, linewidth=0)
    axes.plot(times, mean, color=palette.line, linewidth=1.4)
    axes.set(ylim=(0, None), xlabel="hour of the day" if is_day else "round of the cycle", ylabel="available")
    axes.set_title("Number available over a " + ("day" if is_day else "cycle") + " (band: 80%)")
    if is_day:
        axes.set_xticks(range(0, 25, 6))


def _draw_weights(axes: Axes, diagnosis: Diagnosis, palette: Palette) -> None:
    """Draw FedAvg's weight of each client, or of each label if labels are known, compared with the fair one."""
    labels = diagnosis.bias.labels
    if labels and len(labels) <= 20:
        at = np.arange(len(labels), dtype=float)
        for number, shift in enumerate(labels):
            axes.plot([number, number], [100 * shift.lowest, 100 * shift.highest], color=palette.bad, linewidth=5,
                      alpha=0.3, solid_capstyle="butt")  # fmt: skip
        axes.plot(at, [100 * shift.fedavg for shift in labels], "o", color=palette.bad, markersize=4, label="FedAvg")
        axes.plot(at, [100 * shift.fair for shift in labels], "_", color=palette.ink, markersize=10, label="fair")
        axes.set_xticks(at, [shift.label for shift in labels])
        axes.set(xlabel="label", ylabel="% of the weight", ylim=(0, None))
        axes.set_title(f"Weight of labels (bar: over the {diagnosis.bias.windows})")
        axes.legend(frameon=False, fontsize=8)
        return
    ratio = np.array(diagnosis.pictures.times_fair)
    _draw_sorted(axes, np.maximum(ratio, 1), palette.bad, baseline=1)
    _draw_sorted(axes, np.minimum(ratio, 1), palette.line, baseline=1)
    axes.axhline(1, color=palette.muted, linewidth=0.8)
    axes.set(xlabel="clients, % (sorted)", ylabel="times the fair weight", xlim=(0, 100), ylim=(0, None))
    bias = diagnosis.bias
    axes.set_title(f"FedAvg: {bias.total_variation:.0%} at wrong clients (by chance {bias.chance:.0%})")


def _draw_rates(axes: Axes, diagnosis: Diagnosis, palette: Palette) -> None:
    """Draw the rounds that are possible in a day over the cohort size, one line per deadline."""
    deadlines = sorted({rate.deadline or np.inf for rate in diagnosis.rates})
    shades = LinearSegmentedColormap.from_list("deadlines", [palette.bad, palette.line])
    for number, deadline in enumerate(deadlines):
        own = [rate for rate in diagnosis.rates if (rate.deadline or np.inf) == deadline]
        label = "none" if np.isinf(deadline) else f"{deadline:g} s"
        label += f" ({own[0].num_excluded} too slow)" if own[0].num_excluded else ""
        axes.plot([rate.cohort_size for rate in own], [rate.rounds_per_day for rate in own], "o-", markersize=3.5,
                  linewidth=1.2, color=shades(number / max(1, len(deadlines) - 1)), label=label)  # fmt: skip
    sizes = sorted({rate.cohort_size for rate in diagnosis.rates})
    axes.set_xticks(sizes)
    axes.set(xlabel="cohort size", ylabel="rounds per day", title="Rounds that a day allows")
    highest = max(rate.rounds_per_day for rate in diagnosis.rates)
    axes.set_ylim(0, 1.45 * highest or 1)  # room for the legend
    axes.legend(frameon=False, fontsize=7, title="deadline", title_fontsize=7, loc="upper right", ncols=2)


def _draw_absences(axes: Axes, diagnosis: Diagnosis, palette: Palette) -> None:
    absences = np.array(diagnosis.pictures.longest_absences) * diagnosis.availability.num_rounds
    scale, unit = _time_axis(diagnosis)
    _draw_sorted(axes, absences / scale, palette.line)
    axes.set(xlabel="clients, % (sorted)", ylabel=unit, xlim=(0, 100), ylim=(0, None), title="Longest absence")


def _draw_sorted(axes: Axes, values: npt.NDArray[np.float64], colour: str, *, baseline: float = 0) -> None:
    """Draw one step for each client, over the share of clients in percent."""
    edges = np.linspace(0, 100, values.size + 1)
    axes.stairs(values, edges, baseline=baseline, fill=True, color=colour, alpha=0.35)
    axes.stairs(values, edges, baseline=None, color=colour, linewidth=1.2)


def _time_axis(diagnosis: Diagnosis) -> tuple[float, str]:
    """Return how many rounds are a unit of the time axis, and its name."""
    facts = diagnosis.availability
    if facts.days is not None:
        return facts.num_rounds / facts.days, "days"
    if facts.round_seconds is None:
        return 1.0, "rounds"
    in_hours = facts.num_rounds * facts.round_seconds >= 2 * 3600
    return (3600 / facts.round_seconds, "hours") if in_hours else (60 / facts.round_seconds, "minutes")
