"""A figure of the paper as data: the experiments that it shows, and their labels."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from fedlatest.experiments.experiment import Experiment, Recipe


@dataclass(frozen=True)
class Curve:
    """One curve of a figure.

    With several candidates, for example a search over step sizes, the run with the lowest late training loss is drawn.
    """

    label: str
    candidates: tuple[Experiment, ...]


@dataclass(frozen=True)
class Panel:
    """One set of axes."""

    title: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class Figure:
    """Panels side by side; `kind` selects how their runs are drawn."""

    name: str
    title: str
    panels: tuple[Panel, ...]
    kind: Literal["curves", "availability", "round", "sleep"] = "curves"

    @property
    def experiments(self) -> list[Experiment]:
        """The experiments that must have been run to draw the figure."""
        return unique(experiment for panel in self.panels for curve in panel.curves for experiment in curve.candidates)


def single_curve(recipe: Recipe, label: str, overrides: str) -> Curve:
    """Return the curve of one experiment.

    Args:
        recipe: The recipe whose defaults the experiment starts from.
        label: The label in the legend.
        overrides: KEY=VALUE overrides, separated by spaces.
    """
    return Curve(label, (recipe.named(overrides),))


def compare_algorithms(recipe: Recipe, overrides: str, *, sequential_overrides: str = "") -> tuple[Curve, ...]:
    """Return one curve per algorithm in one availability setting.

    Args:
        recipe: The recipe whose defaults the experiments start from.
        overrides: The KEY=VALUE overrides that give the setting.
        sequential_overrides: Those for sequential SGD, which has no availability but may train on other data.
    """
    algorithms = {
        "FedSGD": f"algorithm=fedsgd {overrides}",
        "FedAvg": f"algorithm=fedavg {overrides}",
        "FedProx": f"algorithm=fedprox {overrides}",
        "Naive": f"algorithm=naive {overrides}",
        "FedLaAvg, C = 1": f"local_steps=1 {overrides}",
        "FedLaAvg, C = 10": overrides,
        "Sequential SGD": f"algorithm=sequential {sequential_overrides}",
    }
    return tuple(single_curve(recipe, label, own) for label, own in algorithms.items())


def unique(experiments: Iterable[Experiment]) -> list[Experiment]:
    """Return the experiments with distinct names, in the order of their first occurrence."""
    return list({experiment.name: experiment for experiment in experiments}.values())
