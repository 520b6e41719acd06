"""The authors' published MNIST runs: what they are called, and the figures to compare with.

The figures are read off the training histories that the authors of the paper published (test accuracy over rounds
(3000, 4000]); the histories themselves are not part of this package, `--published FILE` reads them.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fedlatest.recipes.mnist_figures import run
from fedlatest.report import PublishedCurve
from fedlatest.report.curve import stays_above

LEVEL = 0.90
LATE = (3000, 4000)
_ALGORITHMS = {
    "FedLaAvg": "",
    "FedLaAvg_C1": "local_steps=1",
    "FedAvg": "algorithm=fedavg",
    "FedProx": "algorithm=fedprox",
    "FedSGD": "algorithm=fedsgd",
    "Naive": "algorithm=naive",
}
_SETTINGS = {  # alpha is D / 10
    "E50_alpha0.1": "period=50 digits=1",
    "E100_alpha0.1": "period=100 digits=1",
    "E100_alpha0.5": "period=100 digits=5",
}
NAMES: dict[str, tuple[str, str]] = {
    **{
        run(f"{changes} {where}").name: (algorithm, setting)
        for setting, where in _SETTINGS.items()
        for algorithm, changes in _ALGORITHMS.items()
    },
    run("algorithm=sequential").name: ("SGD", "C10"),
    run("algorithm=sequential participation=0.001 local_steps=1000").name: ("SGD", "C10_old"),
}
"""Our run's name -> the published (algorithm, setting). FedAdam's settings were not published."""


class Summary(NamedTuple):
    """A published run in three numbers."""

    mean: float
    swing: float
    stays_above: float  # round from which test accuracy stays at or above LEVEL


_NEVER = float("inf")
QUOTED = {
    ("FedLaAvg", "E50_alpha0.1"): Summary(0.9190, 0.0025, 580),
    ("FedLaAvg", "E100_alpha0.1"): Summary(0.9190, 0.0037, 920),
    ("FedLaAvg", "E100_alpha0.5"): Summary(0.9132, 0.0110, 2520),
    ("FedLaAvg_C1", "E50_alpha0.1"): Summary(0.8981, 0.0051, _NEVER),
    ("FedLaAvg_C1", "E100_alpha0.1"): Summary(0.8983, 0.0055, _NEVER),
    ("FedLaAvg_C1", "E100_alpha0.5"): Summary(0.8978, 0.0064, _NEVER),
    ("FedAvg", "E50_alpha0.1"): Summary(0.9030, 0.0402, _NEVER),
    ("FedAvg", "E100_alpha0.1"): Summary(0.8833, 0.1034, _NEVER),
    ("FedAvg", "E100_alpha0.5"): Summary(0.7919, 0.1897, _NEVER),
    ("FedProx", "E50_alpha0.1"): Summary(0.9028, 0.0396, _NEVER),
    ("FedProx", "E100_alpha0.1"): Summary(0.8836, 0.1029, _NEVER),
    ("FedProx", "E100_alpha0.5"): Summary(0.7953, 0.1861, _NEVER),
    ("FedSGD", "E50_alpha0.1"): Summary(0.8790, 0.0184, _NEVER),
    ("FedSGD", "E100_alpha0.1"): Summary(0.8761, 0.0397, _NEVER),
    ("FedSGD", "E100_alpha0.5"): Summary(0.8795, 0.0533, _NEVER),
    ("Naive", "E50_alpha0.1"): Summary(0.8516, 0.0089, _NEVER),
    ("Naive", "E100_alpha0.1"): Summary(0.8248, 0.0116, _NEVER),
    ("Naive", "E100_alpha0.5"): Summary(0.8249, 0.0115, _NEVER),
    ("FedAdam", "E100_alpha0.1"): Summary(0.8205, 0.2199, _NEVER),
    ("SGD", "C10"): Summary(0.9199, 0.0020, 450),
    ("SGD", "C10_old"): Summary(0.9251, 0.0041, 10),
}


def summaries(curves: Mapping[tuple[str, str], PublishedCurve]) -> dict[tuple[str, str], Summary]:
    """What was quoted above, and for histories at hand what they say."""
    return {**QUOTED, **{key: summarise(curve) for key, curve in curves.items() if covers(curve)}}


def covers(curve: PublishedCurve) -> bool:
    """Whether a history tells of the rounds that are compared."""
    return bool(curve.rounds[-1] >= LATE[1] and ((curve.rounds > LATE[0]) & (curve.rounds <= LATE[1])).any())


def summarise(curve: PublishedCurve) -> Summary:
    """A published history in three numbers."""
    seen = curve.rounds <= LATE[1]
    rounds, accuracy = curve.rounds[seen], curve.test_accuracy[seen]
    late = accuracy[rounds > LATE[0]]
    return Summary(float(late.mean()), float(np.ptp(late)), stays_above(rounds, accuracy, LEVEL))


def behind(curves: Mapping[tuple[str, str], PublishedCurve]) -> dict[str, PublishedCurve]:
    """Published curves by the name of our run, to be drawn behind it."""
    return {name: curves[key] for name, key in NAMES.items() if key in curves}
