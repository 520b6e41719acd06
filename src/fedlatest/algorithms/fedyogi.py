"""FedYogi: FedAvg whose server takes Yogi steps along the mean update (Reddi et al. 2021)."""

from dataclasses import replace

import optax

from fedlatest.algorithms.base import Algorithm
from fedlatest.algorithms.fedavg import fedavg
from fedlatest.algorithms.server_optimizer import check_positive
from fedlatest.algorithms.weighting import Weighting
from fedlatest.errors import ConfigError


def fedyogi(
    *,
    server_step: float = 0.01,
    b1: float = 0.9,
    b2: float = 0.99,
    eps: float = 1e-3,
    initial: float = 1e-6,
    weighting: Weighting = "loss",
) -> Algorithm:
    r"""FedAvg whose server takes a Yogi step along the mean update.

        d = (1/|S|) \sum_{i in S} u_i
        m = b1 m + (1 - b1) d,   v = v - (1 - b2) d^2 sign(v - d^2),   x = x + server_step * m^ / (sqrt(v^) + eps)

    with optax's bias-corrected moments m^ and v^, which both start at `initial` (Reddi et al. leave the correction out
    and start m at 0 and v at eps^2 or above; initial=1e-6 is eps^2 for the default eps). A round with an empty cohort
    changes nothing.

    The server keeps two moments of the size of the model; clients keep nothing. An upload has the size of the model.

    Args:
        server_step: The server's step size.
        b1: Decay of the first moment.
        b2: Decay of the second moment.
        eps: tau in the paper: added to the denominator.
        initial: The first values of both moments.
        weighting: How a client's share of the samples is used; see `fedavg`.

    >>> fedyogi(server_step=0.03).numbers
    {'server_step': 0.03}
    """
    if not (0 <= b1 < 1 and 0 <= b2 < 1 and eps > 0):
        raise ConfigError(f"b1={b1!r}, b2={b2!r}, eps={eps!r}: b1 and b2 are in [0, 1), eps is above 0")
    check_positive("initial", initial)
    optimizer = optax.scale_by_yogi(b1=b1, b2=b2, eps=eps, initial_accumulator_value=initial)
    plain = fedavg(weighting=weighting, server_optimizer=optimizer, server_step=server_step)
    return replace(
        plain,
        name="fedyogi",
        title="FedYogi",
        paper="Reddi et al. 2021, Adaptive Federated Optimization",
        settings={
            "server_step": server_step, "b1": b1, "b2": b2, "eps": eps, "initial": initial, "weighting": weighting,
        },
    )  # fmt: skip
