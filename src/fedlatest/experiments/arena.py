"""The arena: methods compared under the same availability, each with step sizes found by an equal number of trials.

For every pair of an availability case and a method, `step_search` looks for the best client and server step on seeds of
its own. The score is the training accuracy, so the test set plays no part in the search. The winner then runs on fresh
seeds. All runs share the federation and, for a given seed, the availability and the initial model.

    search/CASE--METHOD--CLIENT-SERVER    one run per trial of the search
    final/CASE--METHOD                    the winner of each pair
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from fedlatest.errors import ConfigError
from fedlatest.experiments.arena_choices import NamedOverrides
from fedlatest.experiments.experiment import Experiment, FederationBuilder, Recipe
from fedlatest.experiments.pace import Pace, choose_paces
from fedlatest.experiments.server_scale import server_scale
from fedlatest.experiments.settings import applicable, arrivals_per_step, build_component, key_of, resolve
from fedlatest.experiments.step_search import FACTOR, TRIALS_AT_ONCE, Point, best_point, is_at_edge, next_points
from fedlatest.runs import RunFolder
from fedlatest.runs.timed_curves import late_means, time_limit
from fedlatest.simulation.experiment_spec import cohort_size

FIRST_SEARCH_SEED = 1_000_000  # final runs have the seeds 0, 1, ...
SCORE = "train_accuracy"
SERVER_STEP, MIXING = "server_step", "mixing"  # keys of step sizes of the server; a mixing is at most 1
LIMITS_OF_ROUNDS = ("deadline", "answers")  # which asynchronous methods do not have
CHOSEN_BY_OPTIONS = {"algorithm": "--algorithms", "availability": "--availability"}

RunAll = Callable[[Sequence[Experiment], Sequence[Path], Sequence[int]], None]
"""Runs experiments, each into its folder, with some seeds; runs that are finished or diverged are left as they are."""


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
        paces: for pairs with virtual time, their rounds and how often they are evaluated; see `with_paces`.
    """

    recipe: Recipe
    cases: tuple[NamedOverrides, ...]
    methods: tuple[NamedOverrides, ...]
    overrides: tuple[str, ...]
    num_trials: int
    num_search_seeds: int
    num_seeds: int
    root: Path
    paces: Mapping[Pair, Pace] = field(default_factory=dict)

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

    @property
    def in_time(self) -> bool:
        """Whether the cases have a virtual time, in which methods are compared."""
        return all(is_timed(values) for values in self.defaults.values())

    def with_paces(self, builder: FederationBuilder) -> "Arena":
        """Return the same arena with the paces of its runs, if it compares methods in time.

        Args:
            builder: holds the data, on which availability may depend.
        """
        if not self.in_time:
            return self
        paces: dict[Pair, Pace] = {}
        for method in self.methods:
            pairs = [pair for pair in self.pairs if pair.method == method]
            specs = [self.trial(pair, Point()).spec(builder) for pair in pairs]
            paces |= dict(zip(pairs, choose_paces(specs), strict=True))
        return replace(self, paces=paces)

    def check_keys(self) -> None:
        """Raise ConfigError if a value of a pair is invalid, or if an override changes no pair."""
        for override in self.overrides:
            if (key := key_of(override)) in CHOSEN_BY_OPTIONS:
                raise ConfigError(f"--set {override}: use {CHOSEN_BY_OPTIONS[key]} to choose what is compared")
        used = {key_of(each) for pair in self.pairs for each in self._own_overrides(pair)}
        for override in self.overrides:
            if (key := key_of(override)) not in used:
                why = "no method and no case that is compared has this key"
                if key in LIMITS_OF_ROUNDS:
                    why = f"{key} ends rounds, and all methods that are compared are asynchronous; leave it out"
                raise ConfigError(f"--set {override}: {why}")
        timed = {pair.case.name for pair, values in self.defaults.items() if is_timed(values)}
        if timed and len(timed) < len(self.cases):
            raise ConfigError(
                f"--availability: {sorted(timed)[0]} compares methods by time, and other cases by rounds; compare them "
                "in two arenas"
            )
        for pair, values in self.defaults.items():
            _check_method(pair, values)

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
                server_key = server_step_key(values)
                rows.append(
                    {
                        "case": pair.case.name,
                        "method": pair.method.name,
                        "learning_rate": values["learning_rate"],
                        "server_step": None if server_key is None else values[server_key],
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
        if (server_key := server_step_key(values)) is not None:
            values[server_key] = _scaled(values[server_key], point.server)
            name += f"-{values[server_key]:g}"
        if pair in self.paces:
            chosen = {key_of(override) for override in self.overrides}
            values |= {key: value for key, value in self.paces[pair]._asdict().items() if key not in chosen}
        return Experiment(name, values, tabulated=True)

    def next_points(self, pair: Pair, scores: Mapping[Point, float], number: int) -> list[Point]:
        """Return the points that the search of a pair tries next; see `step_search.next_points`.

        Args:
            pair: the pair.
            scores: the scores of the points that were tried.
            number: how many points to return.
        """
        values = self.defaults[pair]
        key = server_step_key(values)
        largest = math.log(1 / values[MIXING], FACTOR) if key == MIXING else math.inf
        return next_points(scores, number=number, has_server_step=key is not None, largest_server=largest)

    def _resolve(self, pair: Pair) -> dict[str, Any]:
        common = [*_without_limits(pair.case.overrides, pair), *self._own_overrides(pair)]
        defaults = {**self.recipe.defaults, "algorithm": pair.method.component}
        chosen = [*common, *pair.method.overrides]
        values = resolve(defaults, chosen)
        if SERVER_STEP in values and SERVER_STEP not in map(key_of, chosen):
            at_work = cohort_size(values["num_clients"], None, values["participation"])
            scale = server_scale(build_component("algorithm", values), at_work)
            values[SERVER_STEP] = float(f"{values[SERVER_STEP] * scale:.3g}")
        return values

    def _own_overrides(self, pair: Pair) -> list[str]:
        """Return the common overrides that apply to a pair."""
        names = {"algorithm": pair.method.component, "availability": pair.case.component}
        return _without_limits(applicable([*self.recipe.shared_overrides, *self.overrides], **names), pair)


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
            pair: arena.next_points(pair, scores[pair], number)
            for pair in arena.pairs
        }  # fmt: skip
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
    """Return the mean training accuracy over the last quarter of the run; minus infinity if it diverged.

    The last quarter is that of the virtual time, if the run ends at one, and otherwise of the rounds.
    """
    if not folder.finished:
        return float("-inf")
    metrics, until = folder.metrics(), time_limit(folder.manifest)
    mean = float((metrics.late(SCORE) if until is None else late_means(metrics, SCORE, until)).mean())
    return mean if mean == mean else float("-inf")


def is_timed(values: Mapping[str, Any]) -> bool:
    """Return whether an experiment with these values ends at a virtual time."""
    return "until" in values


def server_step_key(values: Mapping[str, Any]) -> str | None:
    """Return the key of the server's step size: `server_step`, `mixing` of FedAsync, or None.

    >>> server_step_key({"mixing": 0.6}), server_step_key({"mu": 0.1})
    ('mixing', None)
    """
    return next((key for key in (SERVER_STEP, MIXING) if key in values), None)


def _without_limits(overrides: Iterable[str], pair: Pair) -> list[str]:
    """Return the overrides without the limits of rounds, if the method of a pair is asynchronous."""
    is_asynchronous = arrivals_per_step({"algorithm": pair.method.component}) is not None
    return [override for override in overrides if not (is_asynchronous and key_of(override) in LIMITS_OF_ROUNDS)]


def _check_method(pair: Pair, values: Mapping[str, Any]) -> None:
    """Raise ConfigError if a method does not fit its case."""
    case, method = pair.case.name, pair.method.name
    if arrivals_per_step(values) is not None:
        if not is_timed(values):
            raise ConfigError(
                f"{method}: is asynchronous and needs a case with virtual time, such as diurnal-time; {case} has rounds"
            )
        if given := [key for key in LIMITS_OF_ROUNDS if key in values]:
            raise ConfigError(f"{method}: {given[0]} ends rounds, and asynchronous methods have none; leave it out")
    elif not is_timed(values) and (given := [key for key in LIMITS_OF_ROUNDS if key in values]):
        raise ConfigError(f"{method}: {given[0]} has no effect in {case}, which has no delays; use a case in time")


def _scaled(base: float, power: float) -> float:
    """Return base * FACTOR^power with three significant digits."""
    return float(f"{base * FACTOR**power:.3g}")
