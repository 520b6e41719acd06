"""Every MNIST figure of the paper, one function a figure (Section "Results in the Convex Case" and its supplement)."""

from collections.abc import Callable
from typing import NamedTuple

from fedlatest.recipes.experiment import Experiment, key_of
from fedlatest.recipes.figure import Curve, Figure, Panel
from fedlatest.recipes.mnist import mnist


class Pattern(NamedTuple):
    """When clients are there, in the paper's MNIST task."""

    period: int  # E: rounds in a block
    digits: int  # D: digits whose clients are available in the first block


SETTINGS = (Pattern(100, 3), Pattern(100, 5), Pattern(50, 1), Pattern(100, 1), Pattern(200, 1))
FEDADAM_STEPS = (0.0003, 0.001, 0.003, 0.01, 0.03)


def availability() -> Figure:
    """Training loss and test accuracy of every algorithm under the paper's five availability settings."""
    panels = tuple(Panel(f"E = {period}, D = {digits}", comparison(period, digits)) for period, digits in SETTINGS)
    return Figure("availability", "MNIST under intermittent availability", panels)


def chart() -> Figure:
    """Who is available when: blocks of E rounds, the clients of digits 0 .. D - 1 first, then the others."""
    shown = ((100, 1), (100, 3), (50, 1))
    panels = tuple(
        Panel(f"E = {period}, D = {digits}", (one("FedLaAvg", setting(period, digits)),)) for period, digits in shown
    )
    return Figure("chart", "Who is available when, by digit", panels, kind="availability")


def illustration() -> Figure:
    """One round of FedLaAvg: who took part, and whose latest update was reused."""
    return Figure(
        "illustration", "One round of FedLaAvg", (Panel("", (one("FedLaAvg", setting(100, 3)),)),), kind="round"
    )


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
    return Figure("more", "More settings", (Panel("E = 50, D = 5", comparison(50, 5)), Panel("E = 100, D = 1", rivals)))


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


def comparison(period: int, digits: int) -> tuple[Curve, ...]:
    """All algorithms in one availability setting; sequential SGD knows no availability."""
    where = setting(period, digits)
    return (
        one("FedSGD", f"algorithm=fedsgd {where}"),
        one("FedAvg", f"algorithm=fedavg {where}"),
        one("FedProx", f"algorithm=fedprox {where}"),
        one("Naive", f"algorithm=naive {where}"),
        one("FedLaAvg, C = 1", f"local_steps=1 {where}"),
        one("FedLaAvg, C = 10", where),
        one("Sequential SGD", "algorithm=sequential"),
    )


def setting(period: int, digits: int) -> str:
    """The changes that make an availability setting of the default one."""
    return f"period={period} digits={digits}"


def one(label: str, changes: str) -> Curve:
    """A line made by one experiment."""
    return Curve(label, (run(changes),))


def run(changes: str) -> Experiment:
    """The paper's default with some KEY=VALUE changes, and named by them."""
    [experiment] = mnist.experiments(changes.split())
    values = experiment.values
    told = [change for change in changes.split() if values[key_of(change)] != mnist.defaults.get(key_of(change))]
    named = [change for change in told if key_of(change) != "algorithm"]
    return Experiment("-".join([values["algorithm"], *named]), values)
