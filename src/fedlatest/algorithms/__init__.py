"""Federated algorithms, one a file: each factory returns a frozen bundle of pure functions."""

from fedlatest.algorithms.base import Algorithm
from fedlatest.algorithms.fedadam import fedadam
from fedlatest.algorithms.fedavg import fedavg
from fedlatest.algorithms.fedlaavg import fedlaavg
from fedlatest.algorithms.fedprox import fedprox
from fedlatest.algorithms.fedsgd import fedsgd
from fedlatest.algorithms.flexible import flexible
from fedlatest.algorithms.naive import naive
from fedlatest.algorithms.sequential import sequential

ALGORITHMS = {
    factory.__name__: factory for factory in (fedlaavg, fedavg, fedsgd, fedprox, fedadam, naive, flexible, sequential)
}

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "fedadam",
    "fedavg",
    "fedlaavg",
    "fedprox",
    "fedsgd",
    "flexible",
    "naive",
    "sequential",
]
