"""Compares runs with the paper: checks its statements, and puts our numbers beside the published ones."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fedlatest.experiments.experiment import Experiment
from fedlatest.report import TITLES, Claim, PublishedCurve, RunRecord
from fedlatest.report.run_records import stays_above
from fedlatest.reproduction.checks import AvailabilitySetting, Check, History, HistoryLookup, Window

PublishedKey = tuple[str, str]
"""(algorithm, setting), as the authors' files name them."""
PublishedCurves = Mapping[PublishedKey, PublishedCurve]

NEVER = float("inf")
STATEMENTS = "Statements in the paper"
STEADY = ("FedLaAvg", "FedLaAvg_C1", "SGD")  # the authors' names; the other algorithms oscillate

_ALGORITHM_OVERRIDES = {
    "FedLaAvg": "",
    "FedLaAvg_C1": "local_steps=1",
    "FedAvg": "algorithm=fedavg",
    "FedProx": "algorithm=fedprox",
    "FedSGD": "algorithm=fedsgd",
    "Naive": "algorithm=naive",
}
_SEQUENTIAL_OVERRIDES = {  # as in the published figures, and as in the text
    "C10": "algorithm=sequential",
    "C10_old": "algorithm=sequential participation=0.001 local_steps=1000",
}
_IGNORED_KEYS = {"rounds", "evaluate_every", "partition_seed"}


class Summary(NamedTuple):
    """A published run in three numbers."""

    mean: float  # test accuracy over the window
    swing: float  # largest minus smallest test accuracy in the window
    stays_above: float  # first round from which test accuracy stays at or above a level


@dataclass(frozen=True)
class PublishedRuns:
    """The published runs of one task."""

    names: Mapping[str, PublishedKey]
    """Name of our experiment -> the authors' key."""
    quoted: Mapping[PublishedKey, Summary]
    """Summaries of the published histories, used where the histories themselves are not available."""
    window: Window
    """The rounds over which means and swings are compared; it ends with the paper's last round."""
    level: float
    """The test accuracy for `Summary.stays_above`."""

    def summaries(self, curves: PublishedCurves) -> dict[PublishedKey, Summary]:
        """Return the quoted summaries, replaced by those of the given histories where these cover the window."""
        own = self._curves_of_this_task(curves)
        return {**self.quoted, **{key: self.summarise(curve) for key, curve in own.items() if self._covers(curve)}}

    def summarise(self, curve: PublishedCurve) -> Summary:
        """Return the summary of a published history; rounds after the window are ignored."""
        compared = curve.rounds <= self.window.last
        late = curve.test_accuracy[self.window.contains(curve.rounds)]
        first_round = stays_above(curve.rounds[compared], curve.test_accuracy[compared], self.level)
        return Summary(float(late.mean()), float(np.ptp(late)), first_round)

    def histories(self, curves: PublishedCurves) -> dict[str, History]:
        """Return the published histories that cover the window, by the name of our experiment."""
        histories = {}
        for name, curve in self.curves_by_experiment(curves).items():
            if self._covers(curve):
                compared = curve.rounds <= self.window.last
                losses, accuracies = curve.train_loss[compared][None], curve.test_accuracy[compared][None]
                histories[name] = History(curve.rounds[compared], losses, accuracies, self.window)
        return histories

    def curves_by_experiment(self, curves: PublishedCurves) -> dict[str, PublishedCurve]:
        """Return the published curves of this task by the name of our experiment."""
        own = self._curves_of_this_task(curves)
        return {name: own[key] for name, key in self.names.items() if key in own}

    def _covers(self, curve: PublishedCurve) -> bool:
        """Whether a history has evaluations in the window and reaches its end."""
        return bool(curve.rounds[-1] >= self.window.last and self.window.contains(curve.rounds).any())

    def _curves_of_this_task(self, curves: PublishedCurves) -> PublishedCurves:
        """Return the curves if they belong to this task, else none.

        Sequential SGD does not identify a task, because the authors use the same names for it in every task.
        """
        known = {*self.quoted, *self.names.values()}
        return curves if any(key in known and key[0] != "SGD" for key in curves) else {}


def published_names(
    experiment: Callable[[str], Experiment], settings: Mapping[str, AvailabilitySetting]
) -> dict[str, PublishedKey]:
    """Return name of our experiment -> the authors' key, for every algorithm in the given settings.

    Args:
        experiment: Makes an experiment from KEY=VALUE overrides of the paper's default.
        settings: The authors' name of a setting -> the setting.
    """
    federated = {
        experiment(f"{overrides} {setting.overrides}").name: (algorithm, setting_name)
        for setting_name, setting in settings.items()
        for algorithm, overrides in _ALGORITHM_OVERRIDES.items()
    }
    sequential = {experiment(overrides).name: ("SGD", name) for name, overrides in _SEQUENTIAL_OVERRIDES.items()}
    return federated | sequential


@dataclass(frozen=True)
class PaperTask:
    """One task of the paper: its experiments, its statements with their checks, and the published numbers."""

    experiment: Callable[[str], Experiment]
    """KEY=VALUE overrides of the paper's default -> the experiment."""
    experiments: Mapping[str, Experiment]
    """All experiments of the task, by name."""
    settings: Sequence[AvailabilitySetting]
    setting_label: Callable[[Mapping[str, Any]], str]
    """Values of an experiment -> label of its setting; empty if it has none."""
    checks: Mapping[str, Check]
    """Statement -> its check."""
    published: PublishedRuns
    tolerances: tuple[float, float]
    """Largest allowed difference of mean test accuracies: for the algorithms in `STEADY`, for the others."""
    data: str = ""
    """Name of the data that the published numbers are for: runs on other data are not judged; if empty, all are."""

    @property
    def mean_heading(self) -> str:
        """The heading of the table of mean test accuracies."""
        steady, others = self.tolerances
        return self._heading(
            f"Mean test accuracy over rounds {self.published.window}: within {steady:g} for FedLaAvg and sequential "
            f"SGD, {others:g} for the other algorithms"
        )

    @property
    def swing_heading(self) -> str:
        """The heading of the table of swings."""
        return self._heading(
            f"Swing (largest minus smallest test accuracy) over rounds {self.published.window}: within a factor of "
            "1.6, or inside the range over seeds"
        )

    @property
    def arrival_heading(self) -> str:
        """The heading of the table of rounds from which test accuracy stays at or above the level."""
        level = self.published.level
        return self._heading(f"First round from which test accuracy stays at or above {level:.2f}: within 20%")

    def recognise(self, runs: Iterable[RunRecord]) -> dict[str, RunRecord]:
        """Return the finished runs that are experiments of the paper, by experiment name.

        Runs are identified by their recipe values, not by their folder. Of several runs of one experiment, one with
        the paper's number of rounds is preferred, then the one with the most seeds.
        """
        names = {_identity(experiment.values): name for name, experiment in self.experiments.items()}
        finished = [run for run in runs if run.manifest["status"] == "finished" and _identity(run.recipe) in names]
        finished.sort(key=lambda run: (self._has_paper_rounds(run), len(run.metrics.seeds)))  # the last one is kept
        return {names[_identity(run.recipe)]: run for run in finished}

    def claims(self, runs: Mapping[str, RunRecord], published: PublishedCurves) -> list[Claim]:
        """Return every claim that the runs allow to be evaluated; only runs with the paper's rounds are used.

        Args:
            runs: Runs by experiment name, as returned by `recognise`.
            published: The published histories that are available.
        """
        ours = {name: self._history(run) for name, run in runs.items() if self._has_paper_rounds(run)}
        theirs = self.published.histories(published)
        statements = [self._judge_statement(text, check, ours, theirs) for text, check in self.checks.items()]
        judged = {name for name, run in runs.items() if not self.data or _data_name(run) == self.data}
        numbers = self._compare_numbers(ours, self.published.summaries(published), judged)
        return [*(claim for claim in statements if claim), *numbers]

    def _heading(self, text: str) -> str:
        if not self.data:
            return text
        return f"{text}; the published numbers are for the full {self.data} data, runs on other data are not judged"

    def _has_paper_rounds(self, run: RunRecord) -> bool:
        return run.rounds == self.published.window.last

    def _history(self, run: RunRecord) -> History:
        train_loss, test_loss, accuracy = map(run.metrics.column, ("train_loss", "test_loss", "test_accuracy"))
        return History(run.metrics.rounds, train_loss, accuracy, self.published.window, test_loss)

    def _judge_statement(
        self, text: str, check: Check, ours: Mapping[str, History], theirs: Mapping[str, History]
    ) -> Claim | None:
        """Check a statement; it is judged only if all the runs that the check asks for are available."""
        lookup = HistoryLookup(ours, self.experiment, self.settings)
        result, published = check(lookup), check(HistoryLookup(theirs, self.experiment, self.settings))
        if result is None:
            return None
        published_text = "" if published is None else published.text + ("" if published.holds else " (does not hold)")
        return Claim(STATEMENTS, text, result.text, published_text, None if lookup.missing else result.holds)

    def _compare_numbers(
        self, ours: Mapping[str, History], summaries: Mapping[PublishedKey, Summary], judged: Set[str]
    ) -> list[Claim]:
        """Compare our numbers with the published ones; only experiments named in `judged` get a verdict."""
        keys = {name: key for name, key in self.published.names.items() if name in ours and key in summaries}
        fedlaavg = [name for name, (algorithm, _) in keys.items() if algorithm == "FedLaAvg"]
        comparisons = [(name, compare) for compare in (self._compare_mean, self._compare_swing) for name in keys]
        comparisons += [(name, self._compare_arrival) for name in fedlaavg]
        claims = [(name, compare(name, ours[name], summaries[keys[name]])) for name, compare in comparisons]
        return [claim if name in judged else claim._replace(holds=None) for name, claim in claims]

    def _compare_mean(self, name: str, history: History, theirs: Summary) -> Claim:
        tolerance = self.tolerances[0 if self.published.names[name][0] in STEADY else 1]
        holds = abs(history.late_accuracy - theirs.mean) <= tolerance
        difference = round(history.late_accuracy - theirs.mean, 4) + 0.0  # + 0.0 turns -0.0 into 0.0
        measured = f"{history.late_accuracy:.4f} ({difference:+.4f})"
        return Claim(self.mean_heading, self._run_label(name), measured, f"{theirs.mean:.4f}", holds)

    def _compare_swing(self, name: str, history: History, theirs: Summary) -> Claim:
        swings = history.swings
        mean, least, most = swings.mean(), swings.min(), swings.max()
        holds = theirs.swing / 1.6 <= mean <= 1.6 * theirs.swing or least <= theirs.swing <= most
        measured = f"{mean:.4f} ({least:.4f} to {most:.4f})"
        return Claim(self.swing_heading, self._run_label(name), measured, f"{theirs.swing:.4f}", bool(holds))

    def _compare_arrival(self, name: str, history: History, theirs: Summary) -> Claim:
        rounds = [stays_above(history.rounds, curve, self.published.level) for curve in history.test_accuracy]
        holds = np.isfinite(rounds).all() and abs(np.mean(rounds) / theirs.stays_above - 1) <= 0.2
        mean, least, most = map(_format_round, (float(np.mean(rounds)), min(rounds), max(rounds)))
        measured = f"{mean} ({least} to {most})"
        published = _format_round(theirs.stays_above)
        return Claim(self.arrival_heading, self._run_label(name), measured, published, bool(holds))

    def _run_label(self, name: str) -> str:
        """Return the label of an experiment in a table row."""
        values = self.experiments[name].values
        words = [TITLES[values["algorithm"]]]
        if values["algorithm"] == "sequential":
            batch_size = round(values["participation"] * values["num_clients"]) * values["batch_size"]
            words.append(f"{values['local_steps']} steps of batch {batch_size}")
        elif values["algorithm"] == "fedlaavg" and values["local_steps"] == 1:
            words.append("C=1")
        return ", ".join(filter(None, [*words, self.setting_label(values)]))


def _identity(values: Mapping[str, Any]) -> str:
    return json.dumps({key: value for key, value in values.items() if key not in _IGNORED_KEYS}, sort_keys=True)


def _data_name(run: RunRecord) -> str:
    return str(run.manifest["data"]["name"])


def _format_round(number: float) -> str:
    return f"{number:.0f}" if np.isfinite(number) else "never"
