"""FedSGD: FedAvg with one local step (McMahan et al. 2017)."""

from dataclasses import replace

from fedlatest.algorithms.base import Algorithm
from fedlatest.algorithms.fedavg import fedavg
from fedlatest.algorithms.weighting import Weighting


def fedsgd(*, server_step: float = 1.0, weighting: Weighting = "loss") -> Algorithm:
    """FedAvg in which every participant takes exactly one step, whatever the run's number of local steps.

    Args:
        server_step: The server's step size.
        weighting: How a client's share of the samples is used; see `fedavg`.

    >>> fedsgd().num_local_steps
    1
    """
    plain = fedavg(weighting=weighting, server_step=server_step)
    return replace(plain, name="fedsgd", title="FedSGD", num_local_steps=1)
