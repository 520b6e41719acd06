"""The columns of leaderboards in virtual time."""

import math

from fedlatest.report.leaderboard import Entry
from fedlatest.report.leaderboard_cells import accuracy_cell, number_cell, plain_cell, step_cells
from fedlatest.report.tables import DASH
from fedlatest.report.timed_results import HOUR

IN_TIME_HEAD = (
    "method", "hours to target", "mean hours", "first reached", "MB to target", "test accuracy", "swing",
    "worst label", "MB up", "MB down", "steps per hour", "dropped", "failed", "client step", "server step",
)  # fmt: skip
IN_TIME_EXPLANATIONS = {
    "bold": "the first, and methods that reach the target too and whose times do not differ significantly from it "
    "(paired t-test over seeds, 5%), or on average by less than the time between two evaluations; a method can also be "
    "bold because its seeds vary too much to tell",
    "hours to target": "the virtual time from which the test accuracy stays at or above the target, at least for the "
    "last quarter of the time; median over seeds; steps were chosen for the accuracy at the end, not for speed",
    "mean hours": "the mean of this time over seeds, in which a seed that does not reach the target counts with the "
    "time limit; methods are sorted by it",
    "first reached": "when the accuracy was at the target for the first time",
    "MB to target": "what all clients sent and received until the target",
    "test accuracy": "mean over the last quarter of the time and over seeds, with a 95% confidence interval",
    "swing": "the largest minus the smallest accuracy in the last quarter of the time, mean over seeds",
    "worst label": "test accuracy of the label with the lowest one",
    "MB up": "every update that was sent, also those that were too late (dropped: their share)",
    "MB down": "every client that was asked, also those that sent nothing (failed: their share)",
    "steps per hour": "rounds, or server steps of asynchronous methods",
}
IN_TIME_CSV_HEAD = (
    "hours", "hours_to_target", "hours_to_first", "mean_hours_to_target", "mb_to_target", "steps_per_hour", "dropped",
    "failed", "ends_early",
)  # fmt: skip


def main_cell(entry: Entry, *, bold: str) -> str:
    """Return what methods are ranked by: the accuracy, or the hours to the target.

    Args:
        entry: The entry.
        bold: A format for the best methods of a case.
    """
    if entry.timed is None:
        return accuracy_cell(entry, bold=bold, interval=False)
    text = _hours(entry.timed.hours_to_target)
    return bold.format(text) if entry.ties_best else text


def cells_in_time(entry: Entry, *, bold: str) -> list[str]:
    """Return the cells below IN_TIME_HEAD."""
    found = entry.timed
    if found is None:  # diverged
        return [entry.title, "diverged", *[DASH] * (len(IN_TIME_HEAD) - 4), *step_cells(entry)]
    return [
        entry.title,
        main_cell(entry, bold=bold),
        _hours(found.mean_hours),
        _hours(found.hours_to_first),
        number_cell(found.median_megabytes, 0),
        accuracy_cell(entry, bold="{}"),
        number_cell(entry.swing, 3),
        number_cell(entry.worst_label, 3),
        number_cell(found.megabytes_up, 0),
        number_cell(found.megabytes_down, 0),
        number_cell(found.steps_per_hour, 0),
        f"{found.dropped:.1%}",
        f"{found.failed:.1%}",
        *step_cells(entry),
    ]


def _hours(hours: float) -> str:
    return f"{hours:.2f}" if math.isfinite(hours) else "never"


def traffic(entry: Entry) -> tuple[float, float]:
    """Return the megabytes that all clients sent and received."""
    if entry.timed is None:
        return entry.megabytes_up, entry.megabytes_down
    return entry.timed.megabytes_up, entry.timed.megabytes_down


def plain_in_time(entry: Entry, *, is_used: bool) -> list[object]:
    """Return the values of IN_TIME_CSV_HEAD, empty for a method that diverged; nothing if they are not used."""
    found = entry.timed
    if not is_used:
        return []
    if found is None:
        return [""] * len(IN_TIME_CSV_HEAD)
    numbers = (
        found.until / HOUR, found.hours_to_target, found.hours_to_first, found.mean_hours,
        found.median_megabytes, found.steps_per_hour, found.dropped, found.failed,
    )  # fmt: skip
    return [*map(plain_cell, numbers), found.ends_early]
