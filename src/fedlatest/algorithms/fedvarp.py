"""FedVARP: remembered updates reduce the variance of partial participation (Jhunjhunwala et al. 2022)."""

from dataclasses import replace

from fedlatest.algorithms.base import Algorithm
from fedlatest.algorithms.fedavg import select_uniformly
from fedlatest.algorithms.fedlaavg import fedlaavg
from fedlatest.algorithms.weighting import Weighting


def fedvarp(*, server_step: float = 1.0, weighting: Weighting = "loss") -> Algorithm:
    r"""K of the available clients, drawn uniformly, correct the average of all clients' latest updates.

        v   = (1/N) \sum_i u_i + (1/|S|) \sum_{i in S} (u_i_new - u_i)
        x   = x + server_step v
        u_i = u_i_new                                                  for i in S

    The step is that of `fedlaavg_fresh`; the selection differs. The paper divides updates by the learning rate and the
    number of local steps and multiplies the step by them, which is the same while both are constant; with a learning
    rate schedule, an update keeps the learning rate of its round here. The paper has no empty cohorts: a round with one
    changes nothing.

    Each client keeps its latest update; the server keeps their sum. (In the paper the server keeps all updates; the
    steps are the same.) An upload has the size of the model. The analysis assumes that every client is equally likely
    to take part.

    Args:
        server_step: eta_s, the server's step size.
        weighting: How a client's share of the samples is used; see `fedlaavg`.

    >>> fedvarp(weighting="none").obstacles_to_deployment()
    []
    """
    base = fedlaavg(weighting=weighting, empty_round="hold", fresh="cohort", server_step=server_step)
    return replace(
        base,
        name="fedvarp",
        title="FedVARP",
        paper="Jhunjhunwala et al. 2022, FedVARP: Tackling the Variance Due to Partial Client Participation in "
        "Federated Learning",
        select=select_uniformly,
        oldest_first=False,
        settings={"server_step": server_step, "weighting": weighting},
    )
