"""A figure of a paper as data: which experiments it shows, and under which names."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from fedlatest.experiments.experiment import Experiment, Recipe


@dataclass(frozen=True)
class Curve:
    """A line of a figure. Several candidates are a search: the one with the lowest late training loss is shown."""

    label: str
    candidates: tuple[Experiment, ...]


@dataclass(frozen=True)
class Panel:
    """One set of axes."""

    title: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class Figure:
    """Panels side by side; `kind` says what is drawn of their runs."""

    name: str
    title: str
    panels: tuple[Panel, ...]
    kind: Literal["curves", "availability", "round", "sleep"] = "curves"

    @property
    def experiments(self) -> list[Experiment]:
        """All that must have been run."""
        return unique(experiment for panel in self.panels for curve in panel.curves for experiment in curve.candidates)


def line(recipe: Recipe, label: str, changes: str) -> Curve:
    """A line made by one experiment: the recipe's default with some changes."""
    return Curve(label, (recipe.named(changes),))


def comparison(recipe: Recipe, where: str, *, sequential: str = "") -> tuple[Curve, ...]:
    """All algorithms in one availability setting; sequential SGD knows no availability, but may differ by its data."""
    algorithms = {
        "FedSGD": f"algorithm=fedsgd {where}",
        "FedAvg": f"algorithm=fedavg {where}",
        "FedProx": f"algorithm=fedprox {where}",
        "Naive": f"algorithm=naive {where}",
        "FedLaAvg, C = 1": f"local_steps=1 {where}",
        "FedLaAvg, C = 10": where,
        "Sequential SGD": f"algorithm=sequential {sequential}",
    }
    return tuple(line(recipe, label, changes) for label, changes in algorithms.items())


def unique(experiments: Iterable[Experiment]) -> list[Experiment]:
    """Experiments by name, each once, in their first order."""
    return list({experiment.name: experiment for experiment in experiments}.values())
