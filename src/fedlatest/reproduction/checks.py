"""Training histories, ours or published, as the checks of a paper's statements see them."""

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


class Window(NamedTuple):
    """The rounds in (after, last]."""

    after: int
    last: int

    def holds(self, rounds: Rounds) -> npt.NDArray[np.bool_]:
        """[evaluations] which rounds are in it."""
        return np.asarray((rounds > self.after) & (rounds <= self.last))

    @property
    def before(self) -> "Window":
        """The one that is as long and ends where this one begins."""
        return Window(2 * self.after - self.last, self.after)

    def __str__(self) -> str:
        return f"({self.after}, {self.last}]"


class History(NamedTuple):
    """A run as a check sees it; `window` is its end, about which most statements are."""

    rounds: Rounds
    train_loss: Values  # [seeds, evaluations]
    test_accuracy: Values
    window: Window
    test_loss: Values | None = None  # not published

    @property
    def late(self) -> npt.NDArray[np.bool_]:
        """[evaluations] which are in the end."""
        return self.window.holds(self.rounds)

    @property
    def loss(self) -> float:
        """Mean training loss in the end."""
        return float(self.train_loss[:, self.late].mean())

    @property
    def accuracy(self) -> float:
        """Mean test accuracy in the end."""
        return float(self.test_accuracy[:, self.late].mean())

    @property
    def swings(self) -> Values:
        """[seeds] largest minus smallest test accuracy in the end."""
        return np.asarray(np.ptp(self.test_accuracy[:, self.late], axis=1))

    @property
    def late_losses(self) -> Values:
        """[late evaluations] training loss, mean over seeds."""
        return np.asarray(self.train_loss[:, self.late].mean(axis=0))

    def arrives_below(self, loss: float) -> float:
        """The first round with a training loss, mean over seeds, at or below one."""
        return arrives_below(self.rounds, self.train_loss.mean(axis=0), loss)


class Setting(Protocol):
    """When clients are there, in one of a paper's settings; `str` gives it in words."""

    @property
    def period(self) -> int:
        """E: the paper's measure, in rounds, of how long clients are away."""

    @property
    def changes(self) -> str:
        """The KEY=VALUE that make it of the default."""


class Found(NamedTuple):
    """What a check found."""

    text: str
    holds: bool


class Histories:
    """Histories by the name of the run; notes which were asked for in vain."""

    def __init__(
        self, histories: Mapping[str, History], named: Callable[[str], Experiment], settings: Sequence[Setting]
    ) -> None:
        self._histories, self._named, self._settings = histories, named, settings
        self.missing: set[str] = set()

    def find(self, changes: str) -> History | None:
        """The run that these changes to the paper's default make."""
        name = self._named(changes).name
        if name not in self._histories:
            self.missing.add(name)
        return self._histories.get(name)

    def by_setting(self, changes: str, settings: Sequence[Setting] = ()) -> dict[Setting, History]:
        """The runs of an algorithm in some of the paper's settings, or in all, those that there are."""
        found = {where: self.find(f"{changes} {where.changes}") for where in settings or self._settings}
        return {where: history for where, history in found.items() if history is not None}


Check = Callable[[Histories], Found | None]  # None where there is nothing to say


RIVALS = {"FedSGD": "algorithm=fedsgd", "FedAvg": "algorithm=fedavg", "FedProx": "algorithm=fedprox"}


def rivals_oscillate(runs: Histories, *, settings: Sequence[Setting] = ()) -> Found | None:
    """Swing over FedLaAvg's in the same setting, of some or of all: at least three times."""
    calm = runs.by_setting("", settings)
    ratios = {
        f"{name}, {where}": times(history, calm[where])
        for name, changes in RIVALS.items()
        for where, history in runs.by_setting(changes, settings).items()
        if where in calm
    }
    if not ratios:
        return None
    least, most = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
    text = f"{ratios[least]:.1f} ({least}) to {ratios[most]:.1f} times ({most}) FedLaAvg's swing"
    return Found(text, ratios[least] >= 3)


def rivals_oscillate_more(runs: Histories, *, settings: Sequence[Setting]) -> Found | None:
    """The rivals' swings grow from one of these settings to the next."""
    texts, holds = [], True
    for name, changes in RIVALS.items():
        swings = [float(history.swings.mean()) for history in runs.by_setting(changes, settings).values()]
        if len(swings) > 1:
            texts.append(f"{name} {' < '.join(f'{swing:.3f}' for swing in swings)}")
            holds = holds and all(less < more for less, more in pairwise(swings))
    return Found(f"swing {'; '.join(texts)}".replace("<", "<" if holds else "then"), holds) if texts else None


def fedprox_tracks_fedavg(runs: Histories) -> Found | None:
    """Mean distance of their training losses in the end over FedAvg's: at most 5%."""
    prox, plain = runs.by_setting("algorithm=fedprox"), runs.by_setting("algorithm=fedavg")
    apart = {
        where: 100 * float(np.abs(prox[where].late_losses - plain[where].late_losses).mean()) / plain[where].loss
        for where in prox
        if where in plain
    }
    return Found(f"training losses differ by {each(apart, '.1f%')}", max(apart.values()) <= 5) if apart else None


def more_steps_are_faster(runs: Histories) -> Found | None:
    """Rounds to the training loss that one local step ends at: with ten, at most half as many."""
    slow, fast = runs.by_setting("local_steps=1"), runs.by_setting("")
    faster = {
        where: slow[where].arrives_below(slow[where].loss) / max(1.0, fast[where].arrives_below(slow[where].loss))
        for where in slow
        if where in fast
    }
    return Found(f"{each(faster, '.1f')} times fewer rounds with C = 10", min(faster.values()) >= 2) if faster else None


def losses_end_alike(runs: Histories, *, named: Mapping[str, str], within: float) -> Found | None:
    """Training losses in the end of some runs, by what is told of them: at most a share apart."""
    losses = {words: found.loss for words, changes in named.items() if (found := runs.find(changes))}
    if len(losses) < 2:
        return None
    apart = max(losses.values()) / min(losses.values()) - 1
    return Found(f"training loss {each(losses, '.4f')}: {100 * apart:.1f}% apart", apart <= within)


def times(history: History, calm: History) -> float:
    """The swing of one in swings of another; two that do not move at all swing alike."""
    more, less = float(history.swings.mean()), float(calm.swings.mean())
    if less == 0:
        return 1.0 if more == 0 else math.inf
    return more / less


def each(values: Mapping[Any, float], digits: str) -> str:
    """Numbers, each with what it is of.

    >>> each({"N=200": 0.5, "N=600": float("inf")}, ".2f")
    '0.50 (N=200), never (N=600)'
    """
    unit = "%" if digits.endswith("%") else ""
    texts = {
        key: f"{value:{digits.rstrip('%')}}{unit}" if np.isfinite(value) else "never" for key, value in values.items()
    }
    return ", ".join(f"{text} ({key})" for key, text in texts.items())
