"""FedAdam: FedAvg whose server takes Adam steps along the mean update (Reddi et al. 2021)."""

from dataclasses import replace

import optax

from fedlatest.algorithms.base import Algorithm
from fedlatest.algorithms.fedavg import fedavg
from fedlatest.algorithms.weighting import Weighting
from fedlatest.errors import ConfigError


def fedadam(
    *,
    server_step: float = 0.01,
    b1: float = 0.9,
    b2: float = 0.99,
    eps: float = 1e-3,
    weighting: Weighting = "loss",
) -> Algorithm:
    r"""FedAvg whose server takes an Adam step along the mean update.

        d = (1/|S|) \sum_{i in S} u_i
        m = b1 m + (1 - b1) d,   v = b2 v + (1 - b2) d^2,   x = x + server_step * m^ / (sqrt(v^) + eps)

    with optax's bias-corrected moments m^ and v^ (Reddi et al. leave the correction out). A round with an empty
    cohort changes nothing.

    Args:
        server_step: The server's step size.
        b1: Decay of the first moment.
        b2: Decay of the second moment.
        eps: Added to the denominator.
        weighting: How a client's share of the samples is used; see `fedavg`.

    >>> fedadam(server_step=0.03).numbers
    {'server_step': 0.03}
    """
    if not (0 <= b1 < 1 and 0 <= b2 < 1 and eps > 0):
        raise ConfigError(f"b1={b1!r}, b2={b2!r}, eps={eps!r}: b1 and b2 are in [0, 1), eps is above 0")
    optimizer = optax.scale_by_adam(b1=b1, b2=b2, eps=eps)
    plain = fedavg(weighting=weighting, server_optimizer=optimizer, server_step=server_step)
    return replace(
        plain,
        name="fedadam",
        title="FedAdam",
        paper="Reddi et al. 2021, Adaptive Federated Optimization",
        settings={
            "server_step": server_step, "b1": b1, "b2": b2, "eps": eps, "weighting": weighting,
        },
    )  # fmt: skip
