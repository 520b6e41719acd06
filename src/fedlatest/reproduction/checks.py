"""Training histories, and the checks that both tasks of the paper share.

A check is a function of the histories of some runs. It returns the measured numbers as text and whether the paper's
statement holds, or None if the runs that it needs are missing. The same check is applied to our runs and to the
published ones. Each history has a window, the last rounds of the run; "late" values are taken over that window.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fedlatest.experiments.experiment import Experiment
from fedlatest.report.run_records import arrives_below

Rounds = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]

BASELINES = {"FedSGD": "algorithm=fedsgd", "FedAvg": "algorithm=fedavg", "FedProx": "algorithm=fedprox"}
"""Title of a baseline that the paper reports to oscillate -> the overrides that select it."""


class Window(NamedTuple):
    """The rounds in (after, last]."""

    after: int
    last: int

    def contains(self, rounds: Rounds) -> npt.NDArray[np.bool_]:
        """Return bool[evaluations]: which of the rounds lie in the window."""
        return np.asarray((rounds > self.after) & (rounds <= self.last))

    @property
    def preceding(self) -> "Window":
        """The window of the same length that ends where this one begins."""
        return Window(2 * self.after - self.last, self.after)

    def __str__(self) -> str:
        return f"({self.after}, {self.last}]"


class History(NamedTuple):
    """The evaluations of a run, ours or published."""

    rounds: Rounds  # [evaluations]
    train_loss: Values  # [seeds, evaluations]
    test_accuracy: Values  # [seeds, evaluations]
    window: Window
    test_loss: Values | None = None  # [seeds, evaluations]; not published

    @property
    def is_late(self) -> npt.NDArray[np.bool_]:
        """bool[evaluations]: which evaluations lie in the window."""
        return self.window.contains(self.rounds)

    @property
    def late_loss(self) -> float:
        """Mean training loss over the window and over seeds."""
        return float(self.train_loss[:, self.is_late].mean())

    @property
    def late_accuracy(self) -> float:
        """Mean test accuracy over the window and over seeds."""
        return float(self.test_accuracy[:, self.is_late].mean())

    @property
    def swings(self) -> Values:
        """[seeds] largest minus smallest test accuracy in the window."""
        return np.asarray(np.ptp(self.test_accuracy[:, self.is_late], axis=1))

    @property
    def late_losses(self) -> Values:
        """[late evaluations] training loss, mean over seeds."""
        return np.asarray(self.train_loss[:, self.is_late].mean(axis=0))

    def first_round_below(self, loss: float) -> float:
        """Return the first round whose training loss, mean over seeds, is at most `loss`; infinite if there is none."""
        return arrives_below(self.rounds, self.train_loss.mean(axis=0), loss)


class AvailabilitySetting(Protocol):
    """One of the paper's availability settings; `str` gives its label."""

    @property
    def period(self) -> int:
        """E: the length, in rounds, of a block or day of availability."""

    @property
    def overrides(self) -> str:
        """The KEY=VALUE overrides of the recipe's defaults that give this setting."""


class CheckResult(NamedTuple):
    """The measured numbers as text, and whether the statement holds."""

    text: str
    holds: bool


class HistoryLookup:
    """Finds histories by overrides of the paper's default, and records which were missing.

    Args:
        histories: The available histories by experiment name.
        experiment: Makes an experiment from KEY=VALUE overrides of the paper's default.
        settings: All availability settings of the task.
    """

    def __init__(
        self,
        histories: Mapping[str, History],
        experiment: Callable[[str], Experiment],
        settings: Sequence[AvailabilitySetting],
    ) -> None:
        self._histories, self._experiment, self._settings = histories, experiment, settings
        self.missing: set[str] = set()

    def find(self, overrides: str) -> History | None:
        """Return the history of the experiment with these overrides, or None if it is missing."""
        name = self._experiment(overrides).name
        if name not in self._histories:
            self.missing.add(name)
        return self._histories.get(name)

    def find_in_settings(
        self, overrides: str, settings: Sequence[AvailabilitySetting] = ()
    ) -> dict[AvailabilitySetting, History]:
        """Return the available histories with these overrides in the given settings, or in all settings if none."""
        found = {setting: self.find(f"{overrides} {setting.overrides}") for setting in settings or self._settings}
        return {setting: history for setting, history in found.items() if history is not None}


Check = Callable[[HistoryLookup], CheckResult | None]
"""None if the runs that the check needs are missing."""


def baselines_oscillate(runs: HistoryLookup, *, settings: Sequence[AvailabilitySetting] = ()) -> CheckResult | None:
    """Check that each baseline's swing is at least 3 times FedLaAvg's swing in the same setting."""
    fedlaavg = runs.find_in_settings("", settings)
    ratios = {
        f"{name}, {setting}": swing_ratio(history, fedlaavg[setting])
        for name, overrides in BASELINES.items()
        for setting, history in runs.find_in_settings(overrides, settings).items()
        if setting in fedlaavg
    }
    if not ratios:
        return None
    least, most = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
    text = f"{ratios[least]:.1f} ({least}) to {ratios[most]:.1f} ({most}) times FedLaAvg's swing"
    return CheckResult(text, ratios[least] >= 3)


def baselines_oscillate_more(runs: HistoryLookup, *, settings: Sequence[AvailabilitySetting]) -> CheckResult | None:
    """Check that each baseline's swing grows from one of the settings to the next."""
    texts, holds = [], True
    for name, overrides in BASELINES.items():
        swings = [float(history.swings.mean()) for history in runs.find_in_settings(overrides, settings).values()]
        if len(swings) > 1:
            texts.append(f"{name} {' < '.join(f'{swing:.3f}' for swing in swings)}")
            holds = holds and all(smaller < larger for smaller, larger in pairwise(swings))
    if not texts:
        return None
    return CheckResult(f"swing {'; '.join(texts)}".replace("<", "<" if holds else "then"), holds)


def fedprox_tracks_fedavg(runs: HistoryLookup) -> CheckResult | None:
    """Check that the late training losses of FedProx and FedAvg differ by at most 5% of FedAvg's on average."""
    fedprox, fedavg = runs.find_in_settings("algorithm=fedprox"), runs.find_in_settings("algorithm=fedavg")
    differences = {
        setting: 100
        * float(np.abs(fedprox[setting].late_losses - fedavg[setting].late_losses).mean())
        / fedavg[setting].late_loss
        for setting in fedprox
        if setting in fedavg
    }
    if not differences:
        return None
    return CheckResult(
        f"training losses differ by {format_values(differences, '.1f%')}", max(differences.values()) <= 5
    )


def more_local_steps_need_fewer_rounds(runs: HistoryLookup) -> CheckResult | None:
    """Check that 10 local steps reach the late training loss of 1 local step in at most half as many rounds."""
    one, ten = runs.find_in_settings("local_steps=1"), runs.find_in_settings("")
    ratios = {
        setting: one[setting].first_round_below(one[setting].late_loss)
        / max(1.0, ten[setting].first_round_below(one[setting].late_loss))
        for setting in one
        if setting in ten
    }
    if not ratios:
        return None
    text = f"rounds with C = 1 over rounds with C = 10: {format_values(ratios, '.1f')}"
    return CheckResult(text, min(ratios.values()) >= 2)


def late_losses_agree(
    runs: HistoryLookup, *, overrides_by_label: Mapping[str, str], tolerance: float
) -> CheckResult | None:
    """Check that the largest late training loss exceeds the smallest by at most a share.

    Args:
        runs: The histories.
        overrides_by_label: Label of a run in the text -> the overrides that select it.
        tolerance: The largest allowed relative difference.

    Returns:
        None if fewer than two of the runs are available.
    """
    losses = {
        label: found.late_loss for label, overrides in overrides_by_label.items() if (found := runs.find(overrides))
    }
    if len(losses) < 2:
        return None
    difference = max(losses.values()) / min(losses.values()) - 1
    text = f"training loss {format_values(losses, '.4f')}: {100 * difference:.1f}% difference"
    return CheckResult(text, difference <= tolerance)


def swing_ratio(history: History, reference: History) -> float:
    """Return the ratio of the two swings, each a mean over seeds; 1 if both are 0."""
    swing, reference_swing = float(history.swings.mean()), float(reference.swings.mean())
    if reference_swing == 0:
        return 1.0 if swing == 0 else math.inf
    return swing / reference_swing


def format_values(values: Mapping[Any, float], spec: str) -> str:
    """Return the values as text, each followed by its key; infinite and NaN values are shown as "never".

    >>> format_values({"N=200": 0.5, "N=600": float("inf")}, ".2f")
    '0.50 (N=200), never (N=600)'
    """
    unit = "%" if spec.endswith("%") else ""
    texts = {
        key: f"{value:{spec.rstrip('%')}}{unit}" if np.isfinite(value) else "never" for key, value in values.items()
    }
    return ", ".join(f"{text} ({key})" for key, text in texts.items())
