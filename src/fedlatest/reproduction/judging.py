"""Judging a paper by runs: its statements, and our numbers beside the published ones."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fedlatest.experiments.experiment import Experiment
from fedlatest.report import TITLES, Claim, PublishedCurve, RunRecord
from fedlatest.report.run_records import stays_above
from fedlatest.reproduction.checks import Check, Histories, History, Setting, Window

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


STATEMENTS = "What the paper says"
STEADY = ("FedLaAvg", "FedLaAvg_C1", "SGD")  # as the authors call them; the others oscillate
_IGNORED = {"rounds", "evaluate_every", "partition_seed"}


@dataclass(frozen=True)
class Task:
    """One task of a paper: what was run, what is said of it, and the published numbers."""

    named: Callable[[str], Experiment]
    """KEY=VALUE changes to the paper's default -> the experiment."""
    experiments: Mapping[str, Experiment]
    """By name."""
    settings: Sequence[Setting]
    where: Callable[[Mapping[str, Any]], str]
    """An experiment's values -> its setting in words; empty where it has none."""
    checks: Mapping[str, Check]
    """By the statement that they check."""
    published: PublishedRuns
    tolerances: tuple[float, float]
    """How far mean test accuracies may be apart: of runs that are steady, of the others."""
    data: str = ""
    """The data that the published numbers are of: only runs on them are judged by these; if empty, all runs are."""

    @property
    def means(self) -> str:
        """The heading over mean test accuracies."""
        steady, others = self.tolerances
        rounds = f"Mean test accuracy over rounds {self.published.window}"
        return self._heading(f"{rounds}: within {steady:g} for FedLaAvg and sequential SGD, {others:g} for the rest")

    @property
    def swings(self) -> str:
        """The heading over swings."""
        return self._heading(
            "Swing, largest minus smallest test accuracy there: within a factor of 1.6, or inside the range of seeds"
        )

    @property
    def arrivals(self) -> str:
        """The heading over rounds of arrival."""
        level = self.published.level
        return self._heading(f"Round from which test accuracy stays at or above {level:.2f}: within 20%")

    def recognise(self, runs: Iterable[RunRecord]) -> dict[str, RunRecord]:
        """The finished runs that are the paper's experiments, by their name, whatever their folders are called."""
        names = {_identity(experiment.values): name for name, experiment in self.experiments.items()}
        finished = [run for run in runs if run.manifest["status"] == "finished" and _identity(run.recipe) in names]
        finished.sort(key=lambda run: (self._is_whole(run), len(run.metrics.seeds)))  # of several, the last is taken
        return {names[_identity(run.recipe)]: run for run in finished}

    def claims(self, runs: Mapping[str, RunRecord], published: Mapping[Key, PublishedCurve]) -> list[Claim]:
        """Every claim about which the runs, by name, can say something: those that have the paper's rounds."""
        ours = {name: self._history(run) for name, run in runs.items() if self._is_whole(run)}
        theirs = self.published.histories(published)
        claims = [self._statement(text, check, ours, theirs) for text, check in self.checks.items()]
        judged = {name for name, run in runs.items() if not self.data or _data(run) == self.data}
        numbers = self._against_published(ours, self.published.summaries(published), judged)
        return [*(claim for claim in claims if claim), *numbers]

    def _heading(self, text: str) -> str:
        return f"{text}; published on the full {self.data} data, runs on others are not judged" if self.data else text

    def _is_whole(self, run: RunRecord) -> bool:
        return run.rounds == self.published.window.last

    def _history(self, run: RunRecord) -> History:
        train_loss, test_loss, accuracy = map(run.metrics.column, ("train_loss", "test_loss", "test_accuracy"))
        return History(run.metrics.rounds, train_loss, accuracy, self.published.window, test_loss)

    def _statement(
        self, text: str, check: Check, ours: Mapping[str, History], theirs: Mapping[str, History]
    ) -> Claim | None:
        """A statement is judged by all the runs that it is about, or not at all."""
        asked = Histories(ours, self.named, self.settings)
        found, published = check(asked), check(Histories(theirs, self.named, self.settings))
        if found is None:
            return None
        said = "" if published is None else published.text + ("" if published.holds else " (does not hold either)")
        return Claim(STATEMENTS, text, found.text, said, None if asked.missing else found.holds)

    def _against_published(
        self, ours: Mapping[str, History], summaries: Mapping[Key, Summary], judged: Set[str]
    ) -> list[Claim]:
        """Our number, theirs, and whether they agree as closely as such runs can be expected to."""
        keys = {name: key for name, key in self.published.names.items() if name in ours and key in summaries}
        arriving = [name for name, (algorithm, _) in keys.items() if algorithm == "FedLaAvg"]
        compared = [(name, compare) for compare in (self._mean, self._swing) for name in keys]
        compared += [(name, self._arrival) for name in arriving]
        claims = [(name, compare(name, ours[name], summaries[keys[name]])) for name, compare in compared]
        return [claim if name in judged else claim._replace(holds=None) for name, claim in claims]

    def _mean(self, name: str, history: History, theirs: Summary) -> Claim:
        tolerance = self.tolerances[0 if self.published.names[name][0] in STEADY else 1]
        close = abs(history.accuracy - theirs.mean) <= tolerance
        apart = round(history.accuracy - theirs.mean, 4) + 0.0  # no minus before a zero
        measured = f"{history.accuracy:.4f} ({apart:+.4f})"
        return Claim(self.means, self._what(name), measured, f"{theirs.mean:.4f}", close)

    def _swing(self, name: str, history: History, theirs: Summary) -> Claim:
        seeds = history.swings
        alike = theirs.swing / 1.6 <= seeds.mean() <= 1.6 * theirs.swing or seeds.min() <= theirs.swing <= seeds.max()
        measured = f"{seeds.mean():.4f} ({seeds.min():.4f} to {seeds.max():.4f})"
        return Claim(self.swings, self._what(name), measured, f"{theirs.swing:.4f}", bool(alike))

    def _arrival(self, name: str, history: History, theirs: Summary) -> Claim:
        rounds = [stays_above(history.rounds, curve, self.published.level) for curve in history.test_accuracy]
        near = np.isfinite(rounds).all() and abs(np.mean(rounds) / theirs.stays_above - 1) <= 0.2
        measured = f"{_round(float(np.mean(rounds)))} ({_round(min(rounds))} to {_round(max(rounds))})"
        return Claim(self.arrivals, self._what(name), measured, _round(theirs.stays_above), bool(near))

    def _what(self, name: str) -> str:
        """A run of the paper, as a row of a table names it."""
        values = self.experiments[name].values
        words = [TITLES[values["algorithm"]]]
        if values["algorithm"] == "sequential":
            batch = round(values["participation"] * values["num_clients"]) * values["batch_size"]
            words.append(f"{values['local_steps']} steps of {batch}")
        elif values["algorithm"] == "fedlaavg" and values["local_steps"] == 1:
            words.append("C=1")
        return ", ".join(filter(None, [*words, self.where(values)]))


def _identity(values: Mapping[str, Any]) -> str:
    return json.dumps({key: value for key, value in values.items() if key not in _IGNORED}, sort_keys=True)


def _data(run: RunRecord) -> str:
    return str(run.manifest["data"]["name"])


def _round(number: float) -> str:
    return f"{number:.0f}" if np.isfinite(number) else "never"
