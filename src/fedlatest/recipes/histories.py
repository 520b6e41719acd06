"""Training histories, ours or published, as the checks of a paper's statements see them."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fedlatest.recipes.experiment import Experiment
from fedlatest.report.curve import arrives_below

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
