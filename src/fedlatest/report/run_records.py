"""Runs as a report reads them from their folders, and numbers that summarise a curve."""

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.errors import RunFolderError
from fedlatest.runs import Metrics, RunFolder, find_runs

Rounds = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]

TITLES = {  # of runs whose manifest does not contain the algorithm's title
    "fedlaavg": "FedLaAvg",
    "fedavg": "FedAvg",
    "fedsgd": "FedSGD",
    "fedprox": "FedProx",
    "fedadam": "FedAdam",
    "naive": "Naive",
    "flexible": "Flexible participation",
    "sequential": "Sequential SGD",
}


class RunRecord(NamedTuple):
    """A run: its folder, manifest and metrics."""

    path: Path
    manifest: dict[str, Any]
    metrics: Metrics

    @property
    def algorithm(self) -> str:
        """The algorithm's name, which determines its colour."""
        return str(self.manifest["config"]["algorithm"]["name"])

    @property
    def title(self) -> str:
        """The algorithm's name for display."""
        return str(self.manifest["config"]["algorithm"].get("title") or TITLES.get(self.algorithm, self.algorithm))

    @property
    def diverged(self) -> bool:
        """Whether the run ended because an update or the model was no longer finite."""
        return self.manifest.get("status") == "diverged"

    @property
    def rounds(self) -> int:
        """Number of rounds in the run's configuration."""
        return int(self.manifest["config"]["rounds"])

    @property
    def rounds_done(self) -> int:
        """Number of rounds of a finished run: fewer than in its configuration if its virtual time was over."""
        return int(self.manifest.get("rounds_done", self.manifest["config"].get("rounds", self.metrics.rounds[-1])))

    @property
    def recipe(self) -> dict[str, Any]:
        """The values of the run's recipe; empty for a run without a recipe."""
        return dict(self.manifest["config"].get("recipe", {}))

    @property
    def final_accuracy(self) -> float:
        """Test accuracy at the last evaluation, mean over seeds."""
        return float(self.metrics.column("test_accuracy")[:, -1].mean())

    @property
    def swing(self) -> float:
        """Largest minus smallest test accuracy over the last quarter of the rounds, mean over seeds.

        NaN if there are fewer than two evaluations in the last quarter.
        """
        late = self.late("test_accuracy")
        return float(np.ptp(late, axis=1).mean()) if late.shape[1] > 1 else math.nan

    @property
    def late_accuracy(self) -> float:
        """Mean test accuracy over the last quarter of the rounds and over seeds."""
        return float(self.late("test_accuracy").mean())

    @property
    def largest_staleness(self) -> int:
        """The largest staleness of any client; in an unfinished run, over the evaluated rounds only."""
        facts = self.manifest.get("availability")
        if facts:
            return int(facts["largest_staleness"])
        return int(np.nanmax(self.metrics.column("max_staleness"), initial=0))

    def late(self, name: str) -> Values:
        """Return a column of the metrics over the last quarter of the rounds, [seeds, evaluations]."""
        return self.metrics.late(name)


def read_runs(paths: list[Path]) -> list[RunRecord]:
    """Read the runs in some folders, each a run folder or a folder of run folders.

    Raises:
        RunFolderError: If a folder contains no run, or a run is damaged or not evaluated yet.
    """
    folders = [RunFolder(run) for path in paths for run in find_runs(path)]
    records = [RunRecord(folder.path, folder.manifest, folder.metrics()) for folder in folders]
    for record in records:
        if not record.metrics.rows:
            raise RunFolderError(f"{record.path}: holds no evaluation yet")
        finished, last = record.manifest["status"] == "finished", int(record.metrics.rounds[-1])
        if finished and last != record.rounds_done:
            raise RunFolderError(f"{record.path}: is damaged; it is finished, but its metrics end at round {last}")
    return records


def stays_above(moments: Rounds | Values, values: Values, level: float, end: float = math.inf) -> float:
    """Return from which round or time on a curve stays at or above a level; infinity if it ends below.

    A value that is NaN counts as below.

    Args:
        moments: [evaluations] rounds or seconds, ascending.
        values: [evaluations] the curve.
        level: The level.
        end: What comes after this round or time does not count; not before the first evaluation.

    >>> stays_above(np.array([0, 20, 40, 60]), np.array([0.1, 0.91, 0.89, 0.92]), 0.9)
    60.0
    >>> stays_above(np.array([0, 20, 40, 60]), np.array([0.1, 0.91, 0.89, 0.92]), 0.9, end=50)
    inf
    """
    number = int(np.searchsorted(moments, end, side="right"))
    below = np.flatnonzero(~(values[:number] >= level))
    if below.size == 0:
        return float(moments[0])
    return math.inf if below[-1] == number - 1 else float(moments[below[-1] + 1])


def arrives_below(rounds: Rounds, values: Values, level: float) -> float:
    """Return the first round at which a curve is at or below a level; infinity if it never is.

    Args:
        rounds: [evaluations], ascending.
        values: [evaluations] the curve.
        level: The level.
    """
    reached = np.flatnonzero(values <= level)
    return float(rounds[reached[0]]) if reached.size else math.inf


def cycle(rounds: Rounds, values: Values) -> float:
    """Return the period, in rounds, of the strongest oscillation of an evenly spaced curve after removing its trend.

    NaN if the curve is a straight line, has fewer than four points or is not evenly spaced.

    >>> rounds = np.arange(0, 800, 20)
    >>> cycle(rounds, np.sin(2 * np.pi * rounds / 200) + 0.001 * rounds)
    200.0
    """
    steps = np.diff(rounds)
    if len(rounds) < 4 or (steps != steps[0]).any():
        return math.nan
    detrended = values - np.polyval(np.polyfit(rounds, values, 1), rounds)
    strength = np.abs(np.fft.rfft(detrended))[1:]
    if strength.max() < 1e-12:
        return math.nan
    return float(len(rounds) * steps[0] / (1 + strength.argmax()))
