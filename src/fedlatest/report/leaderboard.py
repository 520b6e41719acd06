"""Leaderboards: the final runs of an arena as numbers, per availability case and over all cases.

An arena's folder contains `arena.json` (what was compared, and the trials of the step-size search) and the final runs
in `final/CASE--METHOD`.
"""

import json
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedlatest.errors import RunFolderError
from fedlatest.files import write_text
from fedlatest.report.run_records import RunRecord, stays_above
from fedlatest.report.statistics import Ranking, Values, differs, half_width, lower_median, rank
from fedlatest.report.timed_results import TimedResult, late_accuracy, late_label_means, late_swing, timed_result
from fedlatest.runs import RunFolder
from fedlatest.runs.metrics import LATE_SHARE
from fedlatest.runs.timed_curves import time_limit

ARENA = "arena.json"
TARGET_SHARE = 0.95  # of the best accuracy in a case: the default target
FEWEST_SEEDS = 3  # for a test of significance; with fewer, intervals are too wide to tell methods apart


def write_arena(root: Path, about: Mapping[str, Any]) -> None:
    """Write arena.json.

    Args:
        root: The arena's folder, created if needed.
        about: What is compared: cases and methods by name, with their overrides; `search`, once it is known, holds the
            fields of `SearchTrial`.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(f"{root}: cannot hold an arena ({error.strerror}); choose another --out") from error
    write_text(root / ARENA, json.dumps(about, indent=1) + "\n")


def read_arena(root: Path) -> dict[str, Any] | None:
    """Return the content of arena.json, or None if there is none."""
    path = root / ARENA
    if not path.is_file():
        return None
    try:
        about: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{path}: cannot be read ({error})") from error
    return about


class Entry(NamedTuple):
    """One method in one case; the numbers are NaN if it diverged."""

    case: str
    method: str
    title: str
    run: RunRecord
    diverged: str  # why; empty if it did not
    learning_rate: float
    server_step: float | None
    accuracy: Values  # [seeds] late mean test accuracy
    swing: float = math.nan
    rounds_to_target: float = math.inf  # lower median over seeds; infinity if fewer than half of them reach it
    worst_label: float = math.nan
    megabytes_up: float = math.nan  # of all clients in a run, mean over seeds
    megabytes_down: float = math.nan
    client_bytes: float = math.nan
    server_bytes: float = math.nan
    ties_best: bool = False  # whether it is the best of the case or, in a test over seeds, not different from it
    timed: TimedResult | None = None  # in cases with virtual time

    @property
    def mean(self) -> float:
        """Mean of the accuracy over seeds; minus infinity if the method diverged."""
        return float(self.accuracy.mean()) if not self.diverged else -math.inf

    @property
    def order(self) -> tuple[float, float]:
        """What entries of a case are sorted by: in time the mean time to the target, and then the accuracy."""
        if self.diverged:
            return math.inf, math.inf
        return (0.0 if self.timed is None else self.timed.mean_hours, -self.mean)

    @property
    def interval(self) -> float:
        """Half the width of the 95% confidence interval of the mean."""
        return half_width(self.accuracy)


class Board(NamedTuple):
    """The entries of one case, the best first."""

    case: str
    overrides: str  # KEY=VALUE of the case, with the values of `--set` where it changed them
    target: float
    entries: list[Entry]
    until: float | None = None  # virtual seconds in which the methods are compared; None if they are by rounds


class SearchTrial(NamedTuple):
    """One trial of the step-size search."""

    case: str
    method: str
    learning_rate: float
    server_step: float | None
    score: float  # late mean training accuracy; minus infinity if the trial diverged
    best: bool
    at_edge: bool  # whether the best trial has the smallest or largest step that was tried


class Leaderboard:
    """The result of an arena, read from its folder.

    Args:
        root: the arena's folder.
        target: the accuracy for the rounds to a target; by default that of the arena, or else TARGET_SHARE of the best
            accuracy in each case.

    Raises:
        RunFolderError: If the folder does not hold an arena or a final run is missing.
    """

    def __init__(self, root: Path, *, target: float | None = None) -> None:
        about = read_arena(root)
        if about is None or "search" not in about:
            state = "holds no arena" if about is None else "holds an arena that is not finished"
            raise RunFolderError(f"{root}: {state}; run `fedlatest arena` with this folder as --out")
        self.root, self.about = root, about
        self.target: float | None = target if target is not None else about.get("target")
        self.cases: list[str] = list(about["cases"])
        self.methods: list[str] = list(about["methods"])

    @cached_property
    def runs(self) -> list[RunRecord]:
        """The final runs, by case and method."""
        folders = [
            RunFolder(self.root / "final" / f"{case}--{method}") for case in self.cases for method in self.methods
        ]
        return [RunRecord(folder.path, folder.manifest, folder.metrics()) for folder in folders]

    @cached_property
    def boards(self) -> list[Board]:
        """One leaderboard per case."""
        count = len(self.methods)
        return [self._board(case, self.runs[i * count : (i + 1) * count]) for i, case in enumerate(self.cases)]

    @cached_property
    def ranking(self) -> Ranking:
        """The ranks of the methods, in the order of `methods`."""
        return rank(np.array([self._strengths(board) for board in self.boards]))

    def _strengths(self, board: Board) -> list[float]:
        """Return a number for each method that is larger for a better one, and equal for equally good ones."""
        orders = {entry.method: entry.order for entry in board.entries}
        positions = sorted(set(orders.values()))
        return [-float(positions.index(orders[method])) for method in self.methods]

    @property
    def in_time(self) -> bool:
        """Whether methods are compared in virtual time."""
        return self.boards[0].until is not None

    @property
    def num_seeds(self) -> int:
        """The number of seeds of each final run."""
        return self.boards[0].entries[0].accuracy.size

    @property
    def has_tests(self) -> bool:
        """Whether there are enough seeds for tests of significance."""
        return self.num_seeds >= FEWEST_SEEDS

    @property
    def by_rank(self) -> list[str]:
        """The methods, that with the best mean rank first."""
        return [self.methods[i] for i in np.argsort(self.ranking.mean, kind="stable")]

    @cached_property
    def titles(self) -> dict[str, str]:
        """The title of each method: that of its algorithm, and the keys that were changed."""
        return {entry.method: entry.title for entry in self.boards[0].entries}

    @cached_property
    def trials(self) -> list[SearchTrial]:
        """All trials of the search."""
        return [
            SearchTrial(**{**row, "score": -math.inf if row["score"] is None else row["score"]})
            for row in self.about["search"]
        ]

    def entry(self, case: str, method: str) -> Entry:
        """Return the entry of a method in a case."""
        [board] = [board for board in self.boards if board.case == case]
        return next(entry for entry in board.entries if entry.method == method)

    def _board(self, case: str, runs: Sequence[RunRecord]) -> Board:
        for run in runs:
            if run.manifest["data"] != runs[0].manifest["data"]:
                raise RunFolderError(
                    f"{run.path}: was run on other data or another availability than {runs[0].path.name}; the files "
                    "changed between the runs; remove the older folders in final/ and search/, and run the arena again"
                )
        until = time_limit(runs[0].manifest)
        late = {
            method: _late_accuracy(run, until)
            for method, run in zip(self.methods, runs, strict=True)
            if run.manifest["status"] == "finished"
        }
        best = max(late, key=lambda method: float(late[method].mean()), default=None)
        target = self.target
        if target is None:
            target = math.nan if best is None else math.floor(100 * TARGET_SHARE * float(late[best].mean())) / 100
        entries = [_entry(case, method, run, target, until) for method, run in zip(self.methods, runs, strict=True)]
        ordered = sorted(entries, key=lambda entry: (*entry.order, entry.title))
        compared = [entry._replace(ties_best=_ties(ordered[0], entry)) for entry in ordered]
        overrides = _changed(self.about["cases"][case], self.about.get("overrides", []))
        return Board(case, overrides, target, compared, until)


def _changed(overrides: str, changes: Sequence[str]) -> str:
    """Return the overrides of a case with the values that other overrides give to the same keys.

    >>> _changed("availability=diurnal deadline=60", ["deadline=30", "rounds=9"])
    'availability=diurnal deadline=30'
    """
    by_key = {change.partition("=")[0].strip(): change.strip() for change in changes}
    return " ".join(by_key.get(override.partition("=")[0], override) for override in overrides.split())


def _ties(best: Entry, entry: Entry) -> bool:
    """Return whether an entry is as good as the best of its case, or does not differ significantly from it.

    With fewer than FEWEST_SEEDS seeds no entry is, not even the best: there is nothing to tell them apart by.
    In time, the smaller of the time to the target and the time limit is compared, which is known for every seed; real
    differences can be larger. An entry with too few seeds that reach the target is not as good. A mean difference
    below the time between two evaluations is not resolved, and no difference.
    """
    if best.diverged or entry.diverged or entry.accuracy.size < FEWEST_SEEDS:
        return False
    if best.timed is None or entry.timed is None:
        return not differs(best.accuracy, entry.accuracy)
    if math.isinf(entry.timed.hours_to_target):
        return False
    first, second = best.timed.restricted, entry.timed.restricted
    resolution = max(best.timed.interval, entry.timed.interval)
    return abs(float((first - second).mean())) < resolution or not differs(first, second)


def _late_accuracy(run: RunRecord, until: float | None) -> Values:
    return run.late("test_accuracy").mean(axis=1) if until is None else late_accuracy(run, until)


def _entry(case: str, method: str, run: RunRecord, target: float, until: float | None) -> Entry:
    recipe, finished = run.recipe, run.manifest["status"] == "finished"
    _, *changes = method.split("-", 1)
    title = f"{run.title} ({changes[0]})" if changes else run.title
    about = (case, method, title, run, run.manifest.get("diverged", ""))
    steps = recipe["learning_rate"], recipe.get("server_step", recipe.get("mixing"))
    if not finished:
        return Entry(*about, *steps, np.full(len(run.manifest["seeds"]), math.nan))
    accuracy = _late_accuracy(run, until)
    curves = run.metrics.column("test_accuracy")
    reached = [stays_above(run.metrics.rounds, curve, target) for curve in curves]
    folder = RunFolder(run.path)
    uploads = folder.participation().clients.size / len(accuracy)
    costs = run.manifest.get("costs") or dict.fromkeys(("up", "down", "client", "server"), math.nan)
    return Entry(
        *about,
        *steps,
        accuracy=accuracy,
        swing=run.swing if until is None else late_swing(run, until),
        rounds_to_target=lower_median(np.array(reached)),
        worst_label=_worst_label(run, folder, until),
        megabytes_up=uploads * costs["up"] / 1e6,
        megabytes_down=uploads * costs["down"] / 1e6,
        client_bytes=costs["client"],
        server_bytes=costs["server"],
        timed=None if until is None else timed_result(run, target, until),
    )


def _worst_label(run: RunRecord, folder: RunFolder, until: float | None) -> float:
    """Return the late mean test accuracy of the label with the lowest one, mean over seeds; NaN without labels."""
    labels = folder.labels()
    if labels is None:
        return math.nan
    if until is not None:
        late = late_label_means(run, labels.accuracy, until)
    else:
        late = labels.accuracy[:, labels.rounds > (1 - LATE_SHARE) * labels.rounds[-1]].mean(axis=1)
    return float(np.nanmin(late, axis=1).mean())  # late: [seeds, labels]
