"""Sequential SGD on pooled data: training without a federation, the ideal line of the paper's figures."""

from dataclasses import replace

from fedlatest.algorithms.base import Algorithm
from fedlatest.algorithms.fedavg import fedavg


def sequential() -> Algorithm:
    """SGD on one client that holds all data and is always available, with the batches of a cohort put together.

    A round takes as many steps as a client would, each on a batch K times as large: the work of the cohort.

    >>> sequential().pooled
    True
    """
    plain = fedavg(weighting="none")
    return replace(plain, name="sequential", title="Sequential SGD", paper="", pooled=True, settings=plain.numbers)
