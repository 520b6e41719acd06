"""Published runs of a paper: what their authors call them, and the numbers to compare with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedlatest.recipes.experiment import Experiment
from fedlatest.recipes.histories import History, Setting, Window
from fedlatest.report import PublishedCurve
from fedlatest.report.curve import stays_above

Key = tuple[str, str]  # (algorithm, setting), as the authors call them
NEVER = float("inf")
_ALGORITHMS = {
    "FedLaAvg": "",
    "FedLaAvg_C1": "local_steps=1",
    "FedAvg": "algorithm=fedavg",
    "FedProx": "algorithm=fedprox",
    "FedSGD": "algorithm=fedsgd",
    "Naive": "algorithm=naive",
}
_SEQUENTIAL = {  # as the published figures have it, and as the text has it
    "C10": "algorithm=sequential",
    "C10_old": "algorithm=sequential participation=0.001 local_steps=1000",
}


class Summary(NamedTuple):
    """A published run in three numbers."""

    mean: float  # of test accuracy in the end
    swing: float  # largest minus smallest test accuracy there
    stays_above: float  # round from which test accuracy stays at or above a level


@dataclass(frozen=True)
class PublishedRuns:
    """The published runs of one task."""

    names: Mapping[str, Key]
    """Our run's name -> theirs."""
    quoted: Mapping[Key, Summary]
    window: Window
    level: float

    def summaries(self, curves: Mapping[Key, PublishedCurve]) -> dict[Key, Summary]:
        """What is quoted, and for histories at hand what they say."""
        own = self._own(curves)
        return {**self.quoted, **{key: self.summarise(curve) for key, curve in own.items() if self.covers(curve)}}

    def summarise(self, curve: PublishedCurve) -> Summary:
        """A published history in three numbers."""
        seen = curve.rounds <= self.window.last
        late = curve.test_accuracy[self.window.holds(curve.rounds)]
        arrived = stays_above(curve.rounds[seen], curve.test_accuracy[seen], self.level)
        return Summary(float(late.mean()), float(np.ptp(late)), arrived)

    def covers(self, curve: PublishedCurve) -> bool:
        """Whether a history tells of the rounds that are compared."""
        return bool(curve.rounds[-1] >= self.window.last and self.window.holds(curve.rounds).any())

    def histories(self, curves: Mapping[Key, PublishedCurve]) -> dict[str, History]:
        """The histories at hand that tell of the rounds that are compared, by the name of our run."""
        histories = {}
        for name, curve in self.behind(curves).items():
            if self.covers(curve):
                seen = curve.rounds <= self.window.last
                losses, accuracies = curve.train_loss[seen][None], curve.test_accuracy[seen][None]
                histories[name] = History(curve.rounds[seen], losses, accuracies, self.window)
        return histories

    def behind(self, curves: Mapping[Key, PublishedCurve]) -> dict[str, PublishedCurve]:
        """Published curves by the name of our run, to be drawn behind it."""
        own = self._own(curves)
        return {name: own[key] for name, key in self.names.items() if key in own}

    def _own(self, curves: Mapping[Key, PublishedCurve]) -> Mapping[Key, PublishedCurve]:
        """Histories of this task; sequential SGD does not tell, as its runs are called the same in every task."""
        known = {*self.quoted, *self.names.values()}
        return curves if any(key in known and key[0] != "SGD" for key in curves) else {}


def names(named: Callable[[str], Experiment], settings: Mapping[str, Setting]) -> dict[str, Key]:
    """Our run's name -> theirs, for every algorithm in the settings, which are by their name."""
    federated = {
        named(f"{changes} {where.changes}").name: (algorithm, setting)
        for setting, where in settings.items()
        for algorithm, changes in _ALGORITHMS.items()
    }
    return federated | {named(changes).name: ("SGD", setting) for setting, changes in _SEQUENTIAL.items()}
