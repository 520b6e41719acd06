"""FedSGD: FedAvg with one local step (McMahan et al. 2017)."""

from dataclasses import replace

from fedlatest.algorithms.base import Algorithm
from fedlatest.algorithms.fedavg import fedavg
from fedlatest.algorithms.weighting import Weighting


def fedsgd(*, weighting: Weighting = "loss") -> Algorithm:
    """FedAvg in which every participant takes exactly one step, whatever the run's number of local steps.

    >>> fedsgd().num_local_steps
    1
    """
    return replace(fedavg(weighting=weighting), name="fedsgd", title="FedSGD", num_local_steps=1)
