"""Every MNIST figure of the paper, one function a figure (Section "Results in the Convex Case" and its supplement)."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from fedlatest.experiments.mnist import mnist
from fedlatest.reproduction.figure import Curve, Figure, Panel, comparison, line


class Pattern(NamedTuple):
    """When clients are there, in the paper's MNIST task."""

    period: int  # E: rounds in a block
    digits: int  # D: digits whose clients are available in the first block

    @property
    def changes(self) -> str:
        """The KEY=VALUE that make it of the default."""
        return f"period={self.period} digits={self.digits}"

    def __str__(self) -> str:
        return f"E={self.period}, D={self.digits}"


run = mnist.named
one = partial(line, mnist)
SETTINGS = (Pattern(100, 3), Pattern(100, 5), Pattern(50, 1), Pattern(100, 1), Pattern(200, 1))
FEDADAM_STEPS = (0.0003, 0.001, 0.003, 0.01, 0.03)


def availability() -> Figure:
    """Training loss and test accuracy of every algorithm under the paper's five availability settings."""
    panels = tuple(Panel(_title(where), comparison(mnist, where.changes)) for where in SETTINGS)
    return Figure("availability", "MNIST under intermittent availability", panels)


def chart() -> Figure:
    """Who is available when: blocks of E rounds, the clients of digits 0 .. D - 1 first, then the others."""
    shown = (Pattern(100, 1), Pattern(100, 3), Pattern(50, 1))
    panels = tuple(Panel(_title(where), (one("FedLaAvg", where.changes),)) for where in shown)
    return Figure("chart", "Who is available when, by digit", panels, kind="availability")


def illustration() -> Figure:
    """One round of FedLaAvg: who took part, and whose latest update was reused."""
    panel = Panel("", (one("FedLaAvg", Pattern(100, 3).changes),))
    return Figure("illustration", "One round of FedLaAvg", (panel,), kind="round")


def clients() -> Figure:
    """FedLaAvg with 200, 600 and 1000 clients."""
    curves = tuple(one(f"N = {number}", f"num_clients={number}") for number in (200, 600, 1000))
    return Figure("clients", "FedLaAvg with different numbers of clients", (Panel("", curves),))


def participation() -> Figure:
    """FedLaAvg with 5%, 10% and all of the clients in a round; with all of them, everyone is available."""
    curves = tuple(one(f"participation {share}", f"participation={share}") for share in (0.05, 0.1, 1.0))
    return Figure("participation", "FedLaAvg with different shares of clients in a round", (Panel("", curves),))


def more() -> Figure:
    """Beyond the paper's figures: (E, D) = (50, 5), and FedAdam, whose server step is searched."""
    fedadam = Curve("FedAdam", tuple(run(f"algorithm=fedadam server_step={step}") for step in FEDADAM_STEPS))
    rivals = (one("FedAvg", "algorithm=fedavg"), one("FedLaAvg, C = 10", ""), fedadam)
    where = Pattern(50, 5)
    panels = (Panel(_title(where), comparison(mnist, where.changes)), Panel(_title(Pattern(100, 1)), rivals))
    return Figure("more", "More settings", panels)


def sequential() -> Figure:
    """Sequential SGD as the published curves have it (10 steps of 500) and as the text has it (1000 steps of 5)."""
    curves = (
        one("10 steps of batch 500", "algorithm=sequential"),
        one("1000 steps of batch 5", "algorithm=sequential participation=0.001 local_steps=1000"),
    )
    return Figure("sequential", "Two readings of sequential SGD", (Panel("", curves),))


FIGURES: dict[str, Callable[[], Figure]] = {
    function.__name__: function
    for function in (availability, chart, illustration, clients, participation, more, sequential)
}


def _title(where: Pattern) -> str:
    return str(where).replace("=", " = ")
