"""What a report knows of a run: its folder, read back."""

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.errors import RunFolderError
from fedlatest.runs import Metrics, RunFolder, find_runs

LAST_SHARE = 0.25  # the last rounds that a swing is read off: the paper's (3000, 4000] of 4000
TITLES = {
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
    """A run as a report sees it."""

    path: Path
    manifest: dict[str, Any]
    metrics: Metrics

    @property
    def algorithm(self) -> str:
        """The algorithm's name, which decides its colour."""
        return str(self.manifest["config"]["algorithm"]["name"])

    @property
    def title(self) -> str:
        """The algorithm as people write it."""
        return TITLES.get(self.algorithm, self.algorithm)

    @property
    def rounds(self) -> int:
        """How many rounds the run is to have."""
        return int(self.manifest["config"]["rounds"])

    @property
    def recipe(self) -> dict[str, Any]:
        """The recipe's keys and values; empty for a run that came from no recipe."""
        return dict(self.manifest["config"].get("recipe", {}))

    @property
    def final_accuracy(self) -> float:
        """Test accuracy at the last evaluation, mean over seeds."""
        return float(self.metrics.column("test_accuracy")[:, -1].mean())

    @property
    def swing(self) -> float:
        """Largest minus smallest test accuracy over the last quarter of the rounds, mean over seeds.

        NaN where fewer than two evaluations fall there.
        """
        late = self.late("test_accuracy")
        return float(np.ptp(late, axis=1).mean()) if late.shape[1] > 1 else math.nan

    @property
    def late_accuracy(self) -> float:
        """Mean test accuracy over the last quarter of the rounds and over seeds."""
        return float(self.late("test_accuracy").mean())

    @property
    def largest_staleness(self) -> int:
        """The longest that any client had been away, over the rounds evaluated or, when finished, over all."""
        facts = self.manifest.get("availability")
        if facts:
            return int(facts["largest_staleness"])
        return int(np.nanmax(self.metrics.column("max_staleness"), initial=0))

    def late(self, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        """[seeds, evaluations] of a column over the last quarter of the rounds."""
        rounds = self.metrics.rounds
        late = rounds > (1 - LAST_SHARE) * rounds[-1]
        late[-1] = True  # all that a run has which was evaluated before its first round alone
        return self.metrics.column(name)[:, late]


def read_runs(paths: list[Path]) -> list[RunRecord]:
    """The runs in the given folders (each a run or a folder of runs)."""
    folders = [RunFolder(run) for path in paths for run in find_runs(path)]
    records = [RunRecord(folder.path, folder.manifest, folder.metrics()) for folder in folders]
    for record in records:
        if not record.metrics.rows:
            raise RunFolderError(f"{record.path}: holds no evaluation yet")
        ended, last = record.manifest["status"] == "finished", int(record.metrics.rounds[-1])
        if ended and last != record.manifest["config"].get("rounds", last):
            raise RunFolderError(f"{record.path}: is damaged; it is finished, but its metrics end at round {last}")
    return records


Rounds = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]


def stays_above(rounds: Rounds, values: Values, level: float) -> float:
    """The first round from which the curve never falls below a level again; infinite if it ends below.

    >>> stays_above(np.array([0, 20, 40, 60]), np.array([0.1, 0.91, 0.89, 0.92]), 0.9)
    60.0
    """
    below = np.flatnonzero(values < level)
    if below.size == 0:
        return float(rounds[0])
    return math.inf if below[-1] == len(values) - 1 else float(rounds[below[-1] + 1])


def arrives_below(rounds: Rounds, values: Values, level: float) -> float:
    """The first round at which the curve is at or below a level; infinite if it never is."""
    there = np.flatnonzero(values <= level)
    return float(rounds[there[0]]) if there.size else math.inf


def cycle(rounds: Rounds, values: Values) -> float:
    """The length, in rounds, of the strongest cycle in an evenly spaced curve without its trend; NaN for a flat one.

    >>> rounds = np.arange(0, 800, 20)
    >>> cycle(rounds, np.sin(2 * np.pi * rounds / 200) + 0.001 * rounds)
    200.0
    """
    steps = np.diff(rounds)
    if len(rounds) < 4 or (steps != steps[0]).any():
        return math.nan
    flat = values - np.polyval(np.polyfit(rounds, values, 1), rounds)
    strength = np.abs(np.fft.rfft(flat))[1:]
    if strength.max() < 1e-12:
        return math.nan
    return float(len(rounds) * steps[0] / (1 + strength.argmax()))
