"""The paper's Sentiment140 figures, one function per figure (Section "Results in the Non-Convex Case")."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from fedlatest.experiments.sentiment140 import sentiment140
from fedlatest.reproduction.figure import Figure, Panel, compare_algorithms, single_curve


class Sentiment140Setting(NamedTuple):
    """An availability setting of the paper's Sentiment140 task, and the label shares that go with it."""

    period: int  # E: rounds in a day
    alpha: float  # share of positive tweets at midnight; at noon it is 1 - alpha

    @property
    def overrides(self) -> str:
        """The KEY=VALUE overrides of the recipe's defaults that give this setting."""
        return f"rounds_per_day={self.period} {self.data_overrides}"

    @property
    def data_overrides(self) -> str:
        """The part of `overrides` that changes the data; sequential SGD, which has no days, uses only this part."""
        return f"alpha={self.alpha:g}"

    def __str__(self) -> str:
        return f"E={self.period}, alpha={self.alpha:g}"


sentiment140_experiment = sentiment140.named
SETTINGS = (
    Sentiment140Setting(120, 0.25),
    Sentiment140Setting(120, 0.5),
    Sentiment140Setting(24, 0),
    Sentiment140Setting(120, 0),
    Sentiment140Setting(240, 0),
)
NUM_CLIENTS = (200, 600, 1000)
PARTICIPATION_RATES = (0.1, 0.2, 1.0)
_curve = partial(single_curve, sentiment140)


def availability() -> Figure:
    """Training loss and test accuracy of every algorithm in the paper's five availability settings."""
    panels = tuple(
        Panel(
            str(setting).replace("=", " = "),
            compare_algorithms(sentiment140, setting.overrides, sequential_overrides=setting.data_overrides),
        )
        for setting in SETTINGS
    )
    return Figure("availability", "Sentiment140 under intermittent availability", panels)


def sleep() -> Figure:
    """When some accounts tweet, and the eight hours of the day in which they tweet least and are available."""
    panel = Panel("", (_curve("FedLaAvg", ""),))
    return Figure("sleep", "When accounts tweet, and when they are available", (panel,), kind="sleep")


def clients() -> Figure:
    """FedLaAvg with 200, 600 and 1000 clients."""
    curves = tuple(_curve(f"N = {number}", f"num_clients={number}") for number in NUM_CLIENTS)
    return Figure("clients", "FedLaAvg with different numbers of clients", (Panel("", curves),))


def participation() -> Figure:
    """FedLaAvg with participation 0.1, 0.2 and 1.0; with 1.0 all clients are always available."""
    curves = tuple(_curve(f"participation {rate}", f"participation={rate}") for rate in PARTICIPATION_RATES)
    return Figure("participation", "FedLaAvg with different shares of clients in a round", (Panel("", curves),))


FIGURES: dict[str, Callable[[], Figure]] = {
    function.__name__: function for function in (availability, sleep, clients, participation)
}
