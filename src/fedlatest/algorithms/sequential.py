"""Sequential SGD on pooled data: what training would do without a federation, the ideal line of the paper's figures."""

from dataclasses import replace

from fedlatest.algorithms.base import Algorithm
from fedlatest.algorithms.fedavg import fedavg


def sequential() -> Algorithm:
    """FedAvg on one client that holds everything, always there, with the cohort's batches put together.

    A round does as many steps as a client would, each on K times the batch: the work of the cohort.

    >>> sequential().pooled
    True
    """
    return replace(fedavg(weighting="none"), name="sequential", pooled=True, settings={})
