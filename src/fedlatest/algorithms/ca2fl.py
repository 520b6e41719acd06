"""CA2FL: buffered asynchronous training calibrated by cached updates (Wang et al. 2024)."""

from dataclasses import replace

from fedlatest.algorithms.base import Algorithm
from fedlatest.algorithms.fedvarp import fedvarp
from fedlatest.algorithms.staleness import check_whole
from fedlatest.algorithms.weighting import Weighting, refuse_update_weighting


def ca2fl(*, buffer: int = 10, server_step: float = 1.0, weighting: Weighting = "loss") -> Algorithm:
    r"""Every B arriving updates correct the average of all clients' latest updates.

        v   = (1/N) \sum_i h_i + (1/B) \sum_{b=1}^{B} (u_b - h_b)
        x   = x + server_step v
        h_b = u_b                                                     for the clients that arrived

    All h_i are 0 at first, and the sum of the h_i is that before the step. h_b is replaced at every arrival: if a
    client arrives twice in a step, its second difference is relative to its first update, and both count in B. Updates
    are not discounted by staleness. This is the step of FedVARP with arrivals instead of a cohort; if all clients take
    equally long, B of them are at work and at least B are always available, the two are the same.

    Each client's latest update is remembered. An upload has the size of the model.

    Args:
        buffer: B, the number of arrivals per server step; M in the paper.
        server_step: eta, the server's step size.
        weighting: How a client's share of the samples is used; "loss" or "none".

    >>> ca2fl(buffer=4).buffer
    4
    """
    refuse_update_weighting(weighting, "the mean of the buffer does not depend on the clients' weights")
    base = fedvarp(server_step=server_step, weighting=weighting)
    return replace(
        base,
        name="ca2fl",
        title="CA2FL",
        paper="Wang et al. 2024, Tackling the Data Heterogeneity in Asynchronous Federated Learning with Cached Update "
        "Calibration",
        buffer=check_whole("buffer", buffer),
        settings={**base.settings, "buffer": buffer},
    )
