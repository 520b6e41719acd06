"""The results of a replay: a table with one row per algorithm, a figure, and the record of how they were made."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import MaxNLocator

from fedlatest.errors import RunFolderError
from fedlatest.files import write_csv, write_text
from fedlatest.report.figures import Line, algorithm_styles, canvas, draw_metric, save
from fedlatest.report.run_labels import label_runs
from fedlatest.report.run_records import RunRecord
from fedlatest.report.run_summaries import counted_traffic, megabytes, virtual_time
from fedlatest.runs import Participation, RunFolder

REPLAY = "replay.json"
TARGET_SHARE = 0.95  # of the best accuracy: the default target
MOST_ROWS = 150  # clients, or groups of them, in the picture of the availability
AVAILABLE = "#9CC4DE"


class ReplayRow(NamedTuple):
    """What one algorithm reached; means over seeds."""

    algorithm: str
    rounds: int
    """Rounds, or server steps of an asynchronous algorithm."""
    virtual_seconds: float
    final_accuracy: float
    recorded_end_accuracy: float
    """Accuracy at the last evaluation within the recorded time."""
    seconds_to_target: float
    """NaN if a seed does not reach the target."""
    clients: float
    """Share of the clients that took part."""
    uploads: float
    megabytes: float


def replay_rows(runs: Sequence[RunRecord], *, recorded_seconds: float, target: float) -> list[ReplayRow]:
    """Return one row for each run of a replay.

    Args:
        runs: The runs.
        recorded_seconds: The length of the record.
        target: The accuracy for `seconds_to_target`.

    Raises:
        RunFolderError: If a run has no virtual time.
    """
    return [
        _row(label, run, recorded_seconds=recorded_seconds, target=target)
        for label, run in zip(label_runs(list(runs)), runs, strict=True)
    ]


def default_target(runs: Sequence[RunRecord]) -> float:
    """Return 95% of the best final accuracy; of 1 if all runs diverged."""
    return TARGET_SHARE * max([run.final_accuracy for run in runs if not run.diverged], default=1.0)


def write_results(root: Path, rows: Sequence[ReplayRow], about: Mapping[str, Any]) -> list[Path]:
    """Write the table as replay.csv, and the table with all facts about the replay as replay.json.

    Args:
        root: The folder of the replay.
        rows: The table.
        about: Facts about the replay.

    Returns:
        The files.
    """
    table, facts = root / "replay.csv", root / REPLAY
    write_csv(table, [ReplayRow._fields, *([_cell(value) for value in row] for row in rows)])
    results = [
        {name: None if (cell := _cell(value)) == "" else cell for name, value in row._asdict().items()} for row in rows
    ]
    write_text(facts, json.dumps({**about, "results": results}, indent=2) + "\n")
    return [table, facts]


def draw_replay(
    runs: Sequence[RunRecord],
    path: Path,
    *,
    available: npt.NDArray[np.bool_],
    ends: npt.NDArray[np.float64],
    recorded_accuracy: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None = None,
) -> Path:
    """Draw the test accuracy of each algorithm over virtual time, and below it the recorded availability.

    Args:
        runs: The runs, with virtual time.
        path: The file to write, .png or .pdf.
        available: [R, N] who was available in each recorded round.
        ends: [R] the end of each round in seconds.
        recorded_accuracy: Times and accuracies that the job itself measured; None if it did not.

    Returns:
        `path`.
    """
    lines = [Line(label, run) for label, run in zip(label_runs(list(runs)), runs, strict=True)]
    with canvas(8, 5.2) as figure:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2.2, 1))
        draw_metric(above, lines, "test_accuracy", algorithm_styles(run.algorithm for run in runs), "time")
        if recorded_accuracy is not None:
            above.plot(*recorded_accuracy, color="black", linestyle=(0, (1, 2)), label="measured by the job")
        above.set_xlabel("")
        above.legend(frameon=False, loc="lower right")
        _draw_availability(below, available, ends)
        below.set_xlim(0, ends[-1])
        return save(figure, path)


def _draw_availability(axes: Axes, available: npt.NDArray[np.bool_], ends: npt.NDArray[np.float64]) -> None:
    """Draw which clients were available when; groups of clients if there are many."""
    num_clients = available.shape[1]
    rows = np.array_split(np.arange(num_clients), min(num_clients, MOST_ROWS))
    shares = np.array([available[:, group].mean(axis=1) for group in rows])
    edges = np.concatenate([[0.0], ends])
    tops = np.array([-0.5, *(group[-1] + 0.5 for group in rows)])  # a client's number is in the middle of its row
    shades = LinearSegmentedColormap.from_list("available", ["#FFFFFF", AVAILABLE])
    axes.pcolormesh(edges, tops, shares, cmap=shades, vmin=0, vmax=1, linewidth=0, rasterized=True)
    axes.invert_yaxis()
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
    axes.set(xlabel="virtual time, seconds", ylabel="client")
    axes.set_title("recorded availability", loc="left")


def _row(label: str, run: RunRecord, *, recorded_seconds: float, target: float) -> ReplayRow:
    times = virtual_time(run)
    accuracy = run.metrics.column("test_accuracy")
    if times is None:
        raise RunFolderError(f"{run.path}: has no virtual time, so it is not part of a replay")
    within = np.maximum((times <= recorded_seconds + 0.5).sum(axis=1) - 1, 0)
    folder = RunFolder(run.path)
    took_part = folder.participation() if folder.finished else None
    traffic, sent = counted_traffic(run), megabytes(run, took_part)
    return ReplayRow(
        label,
        int(run.metrics.rounds[-1]),
        float(times[:, -1].mean()),
        run.final_accuracy,
        float(accuracy[np.arange(len(accuracy)), within].mean()),
        float(run.metrics.time_to_accuracy(target).mean()),
        _share_of_clients(took_part, run),
        float("nan") if traffic is None else float(traffic[1][:, -1].mean()),
        float("nan") if sent is None else float(sent[:, -1].mean()),
    )


def _share_of_clients(took_part: Participation | None, run: RunRecord) -> float:
    """Return the share of the clients that took part, mean over seeds; NaN if the run has not finished."""
    if took_part is None:
        return float("nan")
    offsets = took_part.offsets
    own = [took_part.clients[first:last] for first, last in zip(offsets[:, 0], offsets[:, -1], strict=True)]
    return float(np.mean([len(np.unique(each)) / run.manifest["config"]["num_clients"] for each in own]))


def _cell(value: Any) -> Any:
    """Return a number with at most six digits; an empty text instead of NaN."""
    if isinstance(value, float):
        return "" if value != value else float(f"{value:.6g}")
    return value
