"""Cells of leaderboards as text."""

import math

from fedlatest.report.leaderboard import Entry
from fedlatest.report.tables import DASH


def accuracy_cell(entry: Entry, *, bold: str, interval: bool = True) -> str:
    """Return the late mean test accuracy.

    Args:
        entry: The entry.
        bold: A format for the best methods of a case, such as "**{}**".
        interval: Whether to add the confidence interval.
    """
    if entry.diverged:
        return "diverged"
    text = f"{entry.mean:.3f}"
    if interval and not math.isnan(entry.interval):
        text += f" ± {math.ceil(entry.interval * 1000 - 1e-6) / 1000:.3f}"  # rounded up: 0.000 means equal seeds
    return bold.format(text) if entry.ties_best else text


def step_cells(entry: Entry) -> list[str]:
    """Return the client step and the server step."""
    return [f"{entry.learning_rate:g}", DASH if entry.server_step is None else f"{entry.server_step:g}"]


def number_cell(value: float, digits: int) -> str:
    """Return a number with some digits after the point; a dash if it is not known."""
    return DASH if not math.isfinite(value) else f"{value:,.{digits}f}"


def bytes_cell(value: float) -> str:
    """Return a number of bytes in a unit that fits it."""
    if not math.isfinite(value):
        return DASH
    for unit, size in (("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f} B"


def plain_cell(value: float | None) -> str:
    """Return a number for a CSV file; empty if it is unknown or infinite."""
    return "" if value is None or not math.isfinite(value) else f"{value:.9g}"
