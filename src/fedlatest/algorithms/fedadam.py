"""FedAdam: Adam on the server, fed with the averaged update as if it were a gradient (Reddi et al. 2021)."""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedlatest.algorithms.base import Algorithm, Params, RoundFacts, Sums, add, scale
from fedlatest.algorithms.fedavg import fedavg, mean_share
from fedlatest.algorithms.weighting import Weighting
from fedlatest.errors import ConfigError


class WithMoments(NamedTuple):
    """The model, and Adam's moments of the averaged updates."""

    params: Params
    moments: Any


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

    with optax's bias-corrected moments m^ and v^ (Reddi et al. leave the correction out). A round without participants
    changes nothing.

    >>> fedadam(server_step=0.03).numbers
    {'server_step': 0.03}
    """
    if not (math.isfinite(server_step) and server_step > 0):
        raise ConfigError(f"server_step={server_step!r}: must be above 0")
    if not (0 <= b1 < 1 and 0 <= b2 < 1 and eps > 0):
        raise ConfigError(f"b1={b1!r}, b2={b2!r}, eps={eps!r}: b1 and b2 are in [0, 1), eps is above 0")
    plain = fedavg(weighting=weighting)
    adam = optax.scale_by_adam(b1=b1, b2=b2, eps=eps)

    def init(params: Params, num_clients: int) -> WithMoments:
        del num_clients
        return WithMoments(params, adam.init(params))

    def merge(server: WithMoments, sums: Sums, facts: RoundFacts) -> WithMoments:
        mean = scale(sums.fresh["update"], mean_share(sums, weighting))
        direction, moments = adam.update(mean, server.moments)
        stepped = WithMoments(add(server.params, direction, facts.numbers["server_step"]), moments)
        return jax.tree.map(lambda new, old: jnp.where(sums.num > 0, new, old), stepped, server)

    numbers = {"server_step": server_step}
    settings = {**numbers, "b1": b1, "b2": b2, "eps": eps, **plain.settings}
    return replace(plain, name="fedadam", init=init, merge=merge, settings=settings, numbers=numbers)
