"""Amplified FedAvg: FedAvg that amplifies its progress once per period (Wang & Ji 2022)."""

from dataclasses import replace
from typing import NamedTuple

import jax.numpy as jnp

from fedlatest.algorithms.base import Algorithm, Params, RoundFacts, Sums, add, subtract, where
from fedlatest.algorithms.fedavg import fedavg, mean_update
from fedlatest.algorithms.server_optimizer import check_positive
from fedlatest.algorithms.weighting import Weighting
from fedlatest.errors import ConfigError


class AnchoredServer(NamedTuple):
    """The model, and the model at the start of the current period."""

    params: Params
    anchor: Params


def amplified_fedavg(
    *,
    amplification: float = 2.0,
    amplify_every: int = 20,
    server_step: float = 1.0,
    weighting: Weighting = "loss",
) -> Algorithm:
    r"""FedAvg that scales the progress of every `amplify_every` rounds by `amplification`.

        x = x + server_step (1/|S|) \sum_{i in S} u_i      in every round
        x = x_0 + amplification (x - x_0),   x_0 = x       at the end of rounds P - 1, 2 P - 1, ...

    Args:
        amplification: gamma in the paper: the factor of a period's progress; 1 is FedAvg.
        amplify_every: P in the paper: the length of a period in rounds.
        server_step: The server's step size in every round.
        weighting: How a client's share of the samples is used; see `fedavg`.

    >>> amplified_fedavg(weighting="update").obstacles_to_deployment()
    []
    """
    check_positive("amplification", amplification)
    if not (amplify_every >= 1 and amplify_every == int(amplify_every)):
        raise ConfigError(f"amplify_every={amplify_every!r}: must be a whole number of rounds, at least 1")
    plain = fedavg(weighting=weighting, server_step=server_step)

    def init_server(params: Params, num_clients: int) -> AnchoredServer:
        del num_clients
        return AnchoredServer(params, params)

    def merge(server: AnchoredServer, sums: Sums, facts: RoundFacts) -> AnchoredServer:
        params = add(server.params, mean_update(sums, weighting), facts.numbers["server_step"])
        amplified = add(server.anchor, subtract(params, server.anchor), facts.numbers["amplification"])
        period = jnp.asarray(facts.numbers["amplify_every"]).astype(jnp.int32)
        ends = (facts.round + 1) % period == 0
        return where(ends, AnchoredServer(amplified, amplified), AnchoredServer(params, server.anchor))

    numbers = {"amplification": amplification, "amplify_every": amplify_every, **plain.numbers}
    return replace(
        plain,
        name="amplified_fedavg",
        title="Amplified FedAvg",
        paper="Wang & Ji 2022, A Unified Analysis of Federated Learning with Arbitrary Client Participation",
        init_server=init_server,
        merge=merge,
        settings={**numbers, **plain.settings},
        numbers=numbers,
    )
