"""The paper's Sentiment140 figures, one function a figure (Section "Results in the Non-Convex Case")."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from fedlatest.experiments.sentiment140 import sentiment140
from fedlatest.reproduction.figure import Figure, Panel, comparison, line


class Day(NamedTuple):
    """When clients are there, and what that says of their data, in the paper's Sentiment140 task."""

    period: int  # E: rounds in a day
    alpha: float  # share of positive tweets at midnight; at noon it is 1 - alpha

    @property
    def changes(self) -> str:
        """The KEY=VALUE that make it of the default."""
        return f"rounds_per_day={self.period} {self.data}"

    @property
    def data(self) -> str:
        """Those of them that change the data: all that sequential SGD, which knows no days, is told."""
        return f"alpha={self.alpha:g}"

    def __str__(self) -> str:
        return f"E={self.period}, alpha={self.alpha:g}"


run = sentiment140.named
one = partial(line, sentiment140)
SETTINGS = (Day(120, 0.25), Day(120, 0.5), Day(24, 0), Day(120, 0), Day(240, 0))
NUMBERS = (200, 600, 1000)
SHARES = (0.1, 0.2, 1.0)


def availability() -> Figure:
    """Training loss and test accuracy of every algorithm under the paper's five availability settings."""
    panels = tuple(
        Panel(str(day).replace("=", " = "), comparison(sentiment140, day.changes, sequential=day.data))
        for day in SETTINGS
    )
    return Figure("availability", "Sentiment140 under intermittent availability", panels)


def sleep() -> Figure:
    """When some accounts tweet, and the eight quietest hours of their day, in which they are available."""
    panel = Panel("", (one("FedLaAvg", ""),))
    return Figure("sleep", "When accounts tweet, and when they are available", (panel,), kind="sleep")


def clients() -> Figure:
    """FedLaAvg with 200, 600 and 1000 clients."""
    curves = tuple(one(f"N = {number}", f"num_clients={number}") for number in NUMBERS)
    return Figure("clients", "FedLaAvg with different numbers of clients", (Panel("", curves),))


def participation() -> Figure:
    """FedLaAvg with 10%, 20% and all of the clients in a round; with all of them, everyone is available."""
    curves = tuple(one(f"participation {share}", f"participation={share}") for share in SHARES)
    return Figure("participation", "FedLaAvg with different shares of clients in a round", (Panel("", curves),))


FIGURES: dict[str, Callable[[], Figure]] = {
    function.__name__: function for function in (availability, sleep, clients, participation)
}
