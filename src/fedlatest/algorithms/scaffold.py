"""SCAFFOLD: control variates correct the drift of the clients (Karimireddy et al. 2020)."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedlatest.algorithms.base import (
    Algorithm,
    ClientFacts,
    ClientState,
    Contribution,
    Params,
    RoundFacts,
    Sums,
    add,
    scale,
    subtract,
    where,
    zeros_like,
)
from fedlatest.algorithms.fedavg import mean_update, select_uniformly
from fedlatest.algorithms.server_optimizer import check_positive
from fedlatest.algorithms.weighting import Weighting, refuse_update_weighting, weighted_direction


class ControlledServer(NamedTuple):
    """The model and c, the mean of all clients' control variates. It is also the broadcast."""

    params: Params
    control: Params


def scaffold(*, server_step: float = 1.0, weighting: Weighting = "loss") -> Algorithm:
    r"""Local steps descend along g - c_i + c; a client's new control variate is its mean gradient (option II).

        x_local = x_local - gamma (g(x_local) - c_i + c)                    C times, from x
        c_i_new = c_i - c - (x_local - x) / (C gamma)
        x = x + server_step (1/|S|) \sum_{i in S} (x_local - x)
        c = c + (1/N) \sum_{i in S} (c_i_new - c_i)                         so that c = (1/N) \sum_i c_i at all times

    A round with an empty cohort changes nothing. The control variates assume plain local SGD: a
    `client_optimizer` is refused.

    Args:
        server_step: eta_g, the server's step size.
        weighting: "loss" multiplies a client's loss by its share of the samples, "none" ignores it.

    >>> sorted(scaffold().client_state(0.0).remembered)
    ['control']
    """
    check_positive("server_step", server_step)
    refuse_update_weighting(weighting, "control variates are mean gradients")

    def init_server(params: Params, num_clients: int) -> ControlledServer:
        del num_clients
        return ControlledServer(params, zeros_like(params))

    def init_client(params: Params) -> ClientState:
        return ClientState(remembered={"control": zeros_like(params)})

    def broadcast(server: ControlledServer) -> ControlledServer:
        return server

    def correction(broadcast: ControlledServer, client: ClientState, facts: ClientFacts) -> Params:
        del facts
        return subtract(broadcast.control, client.remembered["control"])

    def contribute(broadcast: Any, local: Params, client: ClientState, facts: ClientFacts) -> Contribution:
        own, update = client.remembered["control"], subtract(local, broadcast.params)
        gradient, known = mean_gradient(update, own, broadcast.control, facts)
        return Contribution(fresh={"update": update}, remembered={"control": where(known, gradient, own)})

    def merge(server: ControlledServer, sums: Sums, facts: RoundFacts) -> ControlledServer:
        return ControlledServer(
            params=add(server.params, mean_update(sums, weighting), facts.numbers["server_step"]),
            control=scale(sums.total["control"], 1.0 / facts.num_clients),
        )

    return Algorithm(
        name="scaffold",
        title="SCAFFOLD",
        paper="Karimireddy et al. 2020, SCAFFOLD: Stochastic Controlled Averaging for Federated Learning",
        init_server=init_server,
        init_client=init_client,
        select=select_uniformly,
        broadcast=broadcast,
        direction=replace(weighted_direction(weighting), offset=correction),
        contribute=contribute,
        merge=merge,
        requires=("plain_sgd",),
        settings={"server_step": server_step, "weighting": weighting},
        numbers={"server_step": server_step},
    )


def mean_gradient(update: Params, own: Params, common: Params, facts: ClientFacts) -> tuple[Params, Any]:
    """Return the mean gradient of a client's local steps, and whether it is known: not with a learning rate of 0.

    Args:
        update: x_local - x.
        own: c_i, the client's control variate.
        common: c, the server's control variate.
        facts: What the client knows in this round.
    """
    total_step = facts.num_steps * facts.learning_rate
    mean_step = scale(update, 1.0 / jnp.where(total_step > 0, total_step, 1.0))
    return jax.tree.map(lambda own, common, step: own - common - step, own, common, mean_step), total_step > 0
