"""The arena: methods compared under the same availability, each with step sizes found by an equal number of trials.

For every pair of an availability case and a method, `step_search` looks for the best client and server step on seeds of
its own. The score is the training accuracy, so the test set plays no part in the search. The winner then runs on fresh
seeds. All runs share the federation and, for a given seed, the availability and the initial model.

    search/CASE--METHOD--CLIENT-SERVER    one run per trial of the search
    final/CASE--METHOD                    the winner of each pair
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from fedlatest.algorithms import ALGORITHMS
from fedlatest.availability import AVAILABILITY
from fedlatest.errors import ConfigError
from fedlatest.experiments.experiment import Experiment, Recipe
from fedlatest.experiments.settings import applicable, did_you_mean, key_of, keywords, resolve, split_pair
from fedlatest.experiments.step_search import FACTOR, TRIALS_AT_ONCE, Point, best_point, is_at_edge, next_points
from fedlatest.runs import RunFolder

FIRST_SEARCH_SEED = 1_000_000  # final runs have the seeds 0, 1, ...
SCORE = "train_accuracy"
SERVER_STEP = "server_step"
CHOSEN_BY_OPTIONS = {"algorithm": "--algorithms", "availability": "--availability"}

CASES = {  # availability depends on the label, so that methods which ignore the absent clients learn the wrong mixture
    "always": "availability=always",
    "bernoulli": "availability=labels low=0.05 high=0.95",
    "markov": "availability=markov rate_by=labels correlation=50",
    "sine": "availability=sine rate_by=labels amplitude=0.5 period=100",
    "staircase": "availability=staircase rate_by=labels low=0.2 period=100",
    "interleaved": "availability=interleaved_sine rate_by=labels amplitude=0.5 period=100",
    "diurnal": "availability=diurnal",
    "windows": "availability=windows rounds_per_day=60",
    "departures": "availability=departures rate=0.3 leaving=0.3 leavers=labels",
    "phones": ("availability=trace trace=phones-300.csv.gz devices=sample drop_absent=true wrap=true round_length=300"),
}
NEEDS_FILES = {"phones"}  # cases that are not compared unless the user asks for them
TEXT_CASES = {
    "always": "availability=always",
    "sleep": "availability=sleep",
    "sleep-24": "availability=sleep rounds_per_day=24",
}

RunAll = Callable[[Sequence[Experiment], Sequence[Path], Sequence[int]], None]
"""Runs experiments, each into its folder, with some seeds; runs that are finished or diverged are left as they are."""


class NamedOverrides(NamedTuple):
    """A method or an availability case: a name and the KEY=VALUE overrides that define it, its component first."""

    name: str
    overrides: tuple[str, ...]

    @property
    def component(self) -> str:
        """The name of the algorithm or of the availability model."""
        return split_pair(self.overrides[0])[1]


class Pair(NamedTuple):
    """A method under an availability case."""

    case: NamedOverrides
    method: NamedOverrides

    @property
    def name(self) -> str:
        """The name of the final run's folder."""
        return f"{self.case.name}--{self.method.name}"


@dataclass(frozen=True)
class Arena:
    """What is compared, and how much work is spent on it.

    Attributes:
        recipe: gives the data, the model and the default values.
        cases: availability cases.
        methods: methods to compare.
        overrides: KEY=VALUE changes of the recipe's values, for all runs.
        num_trials: trials of the search for each pair.
        num_search_seeds: seeds of each trial.
        num_seeds: seeds of the final runs.
        root: the folder that holds all run folders.
    """

    recipe: Recipe
    cases: tuple[NamedOverrides, ...]
    methods: tuple[NamedOverrides, ...]
    overrides: tuple[str, ...]
    num_trials: int
    num_search_seeds: int
    num_seeds: int
    root: Path

    @property
    def pairs(self) -> list[Pair]:
        """All pairs; those of one method follow each other, because they share a compiled program."""
        return [Pair(case, method) for method in self.methods for case in self.cases]

    @property
    def search_seeds(self) -> list[int]:
        """The seeds of the search."""
        return list(range(FIRST_SEARCH_SEED, FIRST_SEARCH_SEED + self.num_search_seeds))

    @property
    def seeds(self) -> list[int]:
        """The seeds of the final runs."""
        return list(range(self.num_seeds))

    @cached_property
    def defaults(self) -> dict[Pair, dict[str, Any]]:
        """The values of each pair before the search; raises ConfigError if one of them is invalid."""
        return {pair: self._resolve(pair) for pair in self.pairs}

    @property
    def stages(self) -> list[int]:
        """The number of trials of each stage of the search."""
        whole, rest = divmod(self.num_trials, TRIALS_AT_ONCE)
        return [TRIALS_AT_ONCE] * whole + ([rest] if rest else [])

    def in_folder(self, root: Path) -> "Arena":
        """Return the same arena in another folder."""
        return replace(self, root=root)

    def check_keys(self) -> None:
        """Raise ConfigError if a value of a pair is invalid, or if an override changes no pair."""
        for override in self.overrides:
            if (key := key_of(override)) in CHOSEN_BY_OPTIONS:
                raise ConfigError(f"--set {override}: use {CHOSEN_BY_OPTIONS[key]} to choose what is compared")
        used = {key_of(each) for pair in self.pairs for each in self._own_overrides(pair)}
        for override in self.overrides:
            if key_of(override) not in used:
                raise ConfigError(f"--set {override}: no method and no case that is compared has this key")
        assert self.defaults

    def description(self) -> dict[str, Any]:
        """Return the configuration as plain data."""
        return {
            "dataset": self.recipe.name,
            "cases": {case.name: " ".join(case.overrides) for case in self.cases},
            "methods": {method.name: " ".join(method.overrides) for method in self.methods},
            "overrides": list(self.overrides),
            "trials": self.num_trials,
            "search_seeds": self.num_search_seeds,
            "seeds": self.num_seeds,
        }

    def trials_table(self, scores: "Scores") -> list[dict[str, Any]]:
        """Return all trials of the search as plain data; the score of a diverged trial is None."""
        rows = []
        for pair, found in scores.items():
            best, at_edge = best_point(found), is_at_edge(found)
            for point, score in found.items():
                values = self.trial(pair, point).values
                rows.append(
                    {
                        "case": pair.case.name,
                        "method": pair.method.name,
                        "learning_rate": values["learning_rate"],
                        "server_step": values.get(SERVER_STEP),
                        "score": score if math.isfinite(score) else None,
                        "best": point == best,
                        "at_edge": point == best and at_edge,
                    }
                )
        return rows

    def search_folder(self, experiment: Experiment) -> Path:
        """Return the run folder of a trial of the search."""
        return self.root / "search" / experiment.name

    def final_folder(self, pair: Pair) -> Path:
        """Return the run folder of a final run."""
        return self.root / "final" / pair.name

    def trial(self, pair: Pair, point: Point) -> Experiment:
        """Return the experiment of a pair with the step sizes of a point."""
        values = dict(self.defaults[pair])
        values["learning_rate"] = _scaled(values["learning_rate"], point.client)
        name = f"{pair.name}--{values['learning_rate']:g}"
        if SERVER_STEP in values:
            values[SERVER_STEP] = _scaled(values[SERVER_STEP], point.server)
            name += f"-{values[SERVER_STEP]:g}"
        return Experiment(name, values, tabulated=True)

    def has_server_step(self, pair: Pair) -> bool:
        """Return whether the method has a server step to search for."""
        return SERVER_STEP in self.defaults[pair]

    def _resolve(self, pair: Pair) -> dict[str, Any]:
        own = self._own_overrides(pair)
        defaults = {**self.recipe.defaults, "algorithm": pair.method.component}
        return resolve(defaults, [*pair.case.overrides, *own, *pair.method.overrides])

    def _own_overrides(self, pair: Pair) -> list[str]:
        """Return the common overrides that apply to a pair."""
        names = {"algorithm": pair.method.component, "availability": pair.case.component}
        return applicable([*self.recipe.shared_overrides, *self.overrides], **names)


Scores = dict[Pair, dict[Point, float]]


def search(arena: Arena, run_all: RunAll) -> Scores:
    """Search the step sizes of all pairs, in stages; return the score of every trial.

    Args:
        arena: what to compare.
        run_all: runs experiments.
    """
    scores: Scores = {pair: {} for pair in arena.pairs}
    for number in arena.stages:
        points = {
            pair: next_points(scores[pair], number=number, has_server_step=arena.has_server_step(pair))
            for pair in arena.pairs
        }
        trials = {(pair, point): arena.trial(pair, point) for pair in arena.pairs for point in points[pair]}
        folders = [arena.search_folder(trial) for trial in trials.values()]
        run_all(list(trials.values()), folders, arena.search_seeds)
        for (pair, point), folder in zip(trials, folders, strict=True):
            scores[pair][point] = score(RunFolder(folder))
    return scores


def run_winners(arena: Arena, scores: Scores, run_all: RunAll) -> None:
    """Run the best trial of each pair on fresh seeds."""
    winners = [
        Experiment(pair.name, arena.trial(pair, best_point(scores[pair])).values, tabulated=True)
        for pair in arena.pairs
    ]
    run_all(winners, [arena.final_folder(pair) for pair in arena.pairs], arena.seeds)


def score(folder: RunFolder) -> float:
    """Return the mean training accuracy over the last quarter of the rounds; minus infinity if the run diverged."""
    if not folder.finished:
        return float("-inf")
    mean = float(folder.metrics().late(SCORE).mean())
    return mean if mean == mean else float("-inf")


def named_cases(recipe: Recipe) -> Mapping[str, str]:
    """Return the predefined availability cases of a recipe: KEY=VALUE overrides, separated by spaces."""
    return TEXT_CASES if recipe.defaults["partition"] == "account" else CASES


def default_cases(recipe: Recipe) -> list[str]:
    """Return the names of the cases that are compared if the user chooses none."""
    return [name for name in named_cases(recipe) if name not in NEEDS_FILES]


def default_methods() -> list[str]:
    """Return the methods that are compared if the user chooses none: all, except sequential SGD on pooled data."""
    variants = ["fedstale:rates=known", "inverse_probability:rates=known"]
    return [*(name for name, factory in ALGORITHMS.items() if not factory().pooled), *variants]


def parse_methods(texts: Iterable[str]) -> tuple[NamedOverrides, ...]:
    """Return the methods that texts such as `fedavg` or `fedlaavg:fresh=cohort` describe.

    >>> parse_methods(["fedlaavg:fresh=cohort"])
    (NamedOverrides(name='fedlaavg-fresh=cohort', overrides=('algorithm=fedlaavg', 'fresh=cohort')),)
    """
    return _distinct([_parse("algorithm", text, ALGORITHMS) for text in texts])


def parse_cases(texts: Iterable[str], named: Mapping[str, str]) -> tuple[NamedOverrides, ...]:
    """Return the availability cases that texts such as `diurnal` or `bernoulli:rate=0.1` describe.

    Args:
        texts: names of `named`, or names of availability models with their keys.
        named: predefined cases by name, each with KEY=VALUE overrides separated by spaces.
    """
    return _distinct(
        [
            NamedOverrides(text, tuple(named[text].split()))
            if text in named
            else _parse("availability", text, AVAILABILITY)
            for text in texts
        ]
    )


def _parse(component: str, text: str, known: Mapping[str, Any]) -> NamedOverrides:
    name, *changes = text.split(":")
    if name not in known:
        raise ConfigError(f"{component} {name}: unknown{did_you_mean(name, known)}")
    for change in changes:
        key, equals, _ = change.partition("=")
        if not equals or key not in keywords(known[name]):
            keys = ", ".join(keywords(known[name])) or "none"
            raise ConfigError(f"{text}: {change!r} is not KEY=VALUE with a key of {name} (its keys: {keys})")
    return NamedOverrides("-".join([name, *changes]).replace("/", "_"), (f"{component}={name}", *changes))


def _distinct(choices: Sequence[NamedOverrides]) -> tuple[NamedOverrides, ...]:
    names = [each.name for each in choices]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{name}: is given twice")
    return tuple(choices)


def _scaled(base: float, power: float) -> float:
    """Return base * FACTOR^power with three significant digits."""
    return float(f"{base * FACTOR**power:.3g}")
