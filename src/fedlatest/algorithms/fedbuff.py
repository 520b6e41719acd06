"""FedBuff: asynchronous training with buffered aggregation (Nguyen et al. 2022)."""

from dataclasses import replace

import optax

from fedlatest.algorithms.base import Algorithm
from fedlatest.algorithms.fedavg import fedavg
from fedlatest.algorithms.staleness import check_whole, polynomial, staleness_numbers
from fedlatest.algorithms.weighting import Weighting, refuse_update_weighting


def fedbuff(
    *,
    buffer: int = 10,
    staleness_power: float = 0.5,
    server_step: float = 1.0,
    server_optimizer: optax.GradientTransformation | None = None,
    weighting: Weighting = "loss",
) -> Algorithm:
    r"""The server adds the mean of every B arriving updates, discounted by their staleness.

        x = x + server_step (1/B) \sum_{b=1}^{B} (1 + tau_b)^{-a} u_b

    tau_b is the number of server steps between the start of the client and the arrival of its update u_b. The divisor
    is B, not the sum of the discounts: stale updates make the step shorter. Clients that have arrived are replaced by
    available ones, drawn uniformly; one that arrives twice in a step counts twice. If all clients take equally long, B
    of them are at work and at least B are always available, this is FedAvg. The paper's normalisation of the local
    learning rate is left out.

    Clients keep nothing. An upload has the size of the model.

    Args:
        buffer: B, the number of arrivals per server step; K in the paper.
        staleness_power: a; 1/2 in the paper's experiments, 0 for no discount.
        server_step: eta_g, the server's step size.
        server_optimizer: An optax transformation of the mean; see `fedavg`.
        weighting: How a client's share of the samples is used; "loss" or "none".

    >>> fedbuff(buffer=4).buffer
    4
    """
    refuse_update_weighting(weighting, "the mean of the buffer does not depend on the clients' weights")
    base = fedavg(weighting=weighting, server_optimizer=server_optimizer, server_step=server_step)
    power = staleness_numbers(staleness_power)
    return replace(
        base,
        name="fedbuff",
        title="FedBuff",
        paper="Nguyen et al. 2022, Federated Learning with Buffered Asynchronous Aggregation",
        buffer=check_whole("buffer", buffer),
        discount=polynomial,
        settings={**base.settings, "buffer": buffer, **power},
        numbers={**base.numbers, **power},
    )
