"""The paper's MNIST figures, one function per figure (Section "Results in the Convex Case" and its supplement)."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from fedlatest.experiments.mnist import mnist
from fedlatest.reproduction.figure import Curve, Figure, Panel, compare_algorithms, single_curve


class MnistSetting(NamedTuple):
    """An availability setting of the paper's MNIST task."""

    period: int  # E: rounds in a block
    digits: int  # D: the clients of digits 0 .. D - 1 are available in the first block, the others in the second

    @property
    def overrides(self) -> str:
        """The KEY=VALUE overrides of the recipe's defaults that give this setting."""
        return f"period={self.period} digits={self.digits}"

    def __str__(self) -> str:
        return f"E={self.period}, D={self.digits}"


mnist_experiment = mnist.named
SETTINGS = (
    MnistSetting(100, 3),
    MnistSetting(100, 5),
    MnistSetting(50, 1),
    MnistSetting(100, 1),
    MnistSetting(200, 1),
)
FEDADAM_STEPS = (0.0003, 0.001, 0.003, 0.01, 0.03)
_curve = partial(single_curve, mnist)


def availability() -> Figure:
    """Training loss and test accuracy of every algorithm in the paper's five availability settings."""
    panels = tuple(Panel(_title(setting), compare_algorithms(mnist, setting.overrides)) for setting in SETTINGS)
    return Figure("availability", "MNIST under intermittent availability", panels)


def chart() -> Figure:
    """Which clients are available when: E rounds for the clients of digits 0 .. D - 1, then E rounds for the others."""
    shown = (MnistSetting(100, 1), MnistSetting(100, 3), MnistSetting(50, 1))
    panels = tuple(Panel(_title(setting), (_curve("FedLaAvg", setting.overrides),)) for setting in shown)
    return Figure("chart", "Who is available when, by digit", panels, kind="availability")


def illustration() -> Figure:
    """One round of FedLaAvg: the cohort, and the clients whose remembered update is reused."""
    panel = Panel("", (_curve("FedLaAvg", MnistSetting(100, 3).overrides),))
    return Figure("illustration", "One round of FedLaAvg", (panel,), kind="round")


def clients() -> Figure:
    """FedLaAvg with 200, 600 and 1000 clients."""
    curves = tuple(_curve(f"N = {number}", f"num_clients={number}") for number in (200, 600, 1000))
    return Figure("clients", "FedLaAvg with different numbers of clients", (Panel("", curves),))


def participation() -> Figure:
    """FedLaAvg with participation 0.05, 0.1 and 1.0; with 1.0 all clients are always available."""
    curves = tuple(_curve(f"participation {share}", f"participation={share}") for share in (0.05, 0.1, 1.0))
    return Figure("participation", "FedLaAvg with different shares of clients in a round", (Panel("", curves),))


def more() -> Figure:
    """Settings beyond the paper's figures: (E, D) = (50, 5), and FedAdam with a search over its server step."""
    fedadam = Curve(
        "FedAdam", tuple(mnist_experiment(f"algorithm=fedadam server_step={step}") for step in FEDADAM_STEPS)
    )
    compared = (_curve("FedAvg", "algorithm=fedavg"), _curve("FedLaAvg, C = 10", ""), fedadam)
    setting = MnistSetting(50, 5)
    panels = (
        Panel(_title(setting), compare_algorithms(mnist, setting.overrides)),
        Panel(_title(MnistSetting(100, 1)), compared),
    )
    return Figure("more", "More settings", panels)


def sequential() -> Figure:
    """Sequential SGD as in the published curves (10 steps of batch 500) and as in the text (1000 steps of batch 5)."""
    curves = (
        _curve("10 steps of batch 500", "algorithm=sequential"),
        _curve("1000 steps of batch 5", "algorithm=sequential participation=0.001 local_steps=1000"),
    )
    return Figure("sequential", "Two versions of sequential SGD", (Panel("", curves),))


def published() -> Figure:
    """Four of these algorithms in two of the settings whose training histories were published."""
    shown = {"FedLaAvg, C = 10": "FedLaAvg", "FedAvg": "FedAvg", "Naive": "Naive", "Sequential SGD": "Sequential SGD"}
    panels = tuple(
        Panel(
            f"{first} for 100 rounds, then the other digits",
            tuple(
                replace(curve, label=shown[curve.label])
                for curve in compare_algorithms(mnist, setting.overrides)
                if curve.label in shown
            ),
        )
        for first, setting in (("digit 0", MnistSetting(100, 1)), ("digits 0-4", MnistSetting(100, 5)))
    )
    return Figure("published", "MNIST under intermittent availability", panels)


FIGURES: dict[str, Callable[[], Figure]] = {
    function.__name__: function
    for function in (availability, chart, illustration, clients, participation, more, sequential, published)
}


def _title(setting: MnistSetting) -> str:
    return str(setting).replace("=", " = ")
