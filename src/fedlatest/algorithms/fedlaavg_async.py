"""Asynchronous FedLaAvg: every arrival replaces the remembered update of its client."""

from dataclasses import replace

from fedlatest.algorithms.base import Algorithm
from fedlatest.algorithms.fedlaavg import fedlaavg
from fedlatest.algorithms.staleness import check_whole
from fedlatest.algorithms.weighting import Weighting


def fedlaavg_async(*, buffer: int = 1, server_step: float = 1.0, weighting: Weighting = "loss") -> Algorithm:
    r"""The server steps along the average of all clients' latest updates after every B arrivals.

        u_i = x_local - x        of a client that arrives, relative to the model with which it started
        x   = x + server_step (1/N) \sum_i u_i

    The available clients that started longest ago are started first, as FedLaAvg selects those absent longest. If all
    clients take equally long, B of them are at work and at least B are always available, this is FedLaAvg. The variant
    is not in the paper.

    Each client's latest update is remembered. An upload has the size of the model.

    Args:
        buffer: B, the number of arrivals per server step.
        server_step: The server's step size. Per arrival, steps are taken K / B times as often as in FedLaAvg with K
            clients per round, so the same progress per arrival takes a `server_step` of about B / K.
        weighting: How a client's share of the samples is used; see `fedlaavg`.

    >>> fedlaavg_async().buffer
    1
    """
    base = fedlaavg(server_step=server_step, weighting=weighting)
    return replace(
        base,
        name="fedlaavg_async",
        title="FedLaAvg, asynchronous",
        buffer=check_whole("buffer", buffer),
        oldest_first=False,  # Lemma 1 is about synchronous rounds
        settings={"server_step": server_step, "weighting": weighting, "buffer": buffer},
    )
