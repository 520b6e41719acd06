"""FOCUS: gradient tracking over a server that clients push to and pull from (Ying et al. 2025)."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp

from fedlatest.algorithms.base import (
    Algorithm,
    ClientFacts,
    ClientState,
    Contribution,
    ModelOnly,
    Params,
    RoundFacts,
    Sums,
    add,
    keep_model,
    scale,
    subtract,
    zeros_like,
)
from fedlatest.algorithms.fedavg import select_uniformly
from fedlatest.algorithms.server_optimizer import server_numbers
from fedlatest.algorithms.weighting import Weighting, refuse_update_weighting, weighted_direction


def focus(*, server_step: float = 1.0, weighting: Weighting = "loss") -> Algorithm:
    r"""Clients track the change of their gradient since they last took part; the server descends along the sum.

        y_i = 0,  x_i = x                                                   for i in S
        C times:  x_i = x_i - gamma y_i,   y_i = y_i + g_i(x_i) - g_i,   g_i = g_i(x_i)
        y   = y + \sum_{i in S} y_i
        x   = x - server_step (gamma / N) y

    g_i is the last gradient that client i computed, 0 before its first round, and stays with the client between its
    rounds. y_i therefore telescopes to the new g_i minus the old one, and y is the sum of all g_i at all times: all
    clients' latest gradients. It is 0 only at a stationary point of all clients' mean loss, whoever takes part and
    how often. With full gradients and a small gamma, x converges to that point exactly; gradients of mini-batches leave
    their noise. The paper and the authors' code step along gamma y, the sum instead of the mean: server_step = N here.

    The first of the C local steps does not move x_i, because y_i is 0. With one local step, FOCUS is therefore MIFA
    with one local step. In the code, the C-th step returns to x and moves by -gamma y_i, so that an update is
    -gamma y_i. As in the authors' code, a round with an empty cohort changes nothing. In the paper every available
    client takes part: run it with K = N. The tracking assumes plain local SGD: a `client_optimizer` is refused. A
    learning rate of 0 leaves g_i unchanged.

    Each client keeps g_i, one vector of the size of the model; the server keeps their sum. An upload has the size of
    the model. Participation rates are not needed.

    Args:
        server_step: The server's step size, along the mean of all g_i.
        weighting: "loss" multiplies a client's loss by its share of the samples, "none" ignores it.

    >>> sorted(focus().client_state(0.0).remembered)
    ['gradient']
    """
    numbers = server_numbers(server_step)
    refuse_update_weighting(weighting, "the server sums gradients")

    def init_client(params: Params) -> ClientState:
        return ClientState(remembered={"gradient": zeros_like(params)})

    def minus_last_gradient(broadcast: Any, client: ClientState, facts: ClientFacts) -> Params:
        del broadcast, facts
        return scale(client.remembered["gradient"], -1.0)

    def contribute(broadcast: Any, local: Params, client: ClientState, facts: ClientFacts) -> Contribution:
        update = subtract(local, broadcast.params)  # -gamma y_i
        return Contribution(
            remembered={"gradient": add(client.remembered["gradient"], update, -_inverse(facts.learning_rate))}
        )

    def merge(server: ModelOnly, sums: Sums, facts: RoundFacts) -> ModelOnly:
        step = facts.numbers["server_step"] * (facts.learning_rate / facts.num_clients)
        return ModelOnly(add(server.params, sums.total["gradient"], jnp.where(sums.num > 0, -step, 0.0)))

    return Algorithm(
        name="focus",
        title="FOCUS",
        paper="Ying et al. 2025, Exact and Linear Convergence for Federated Learning under Arbitrary Client "
        "Participation is Attainable",
        init_server=keep_model,
        init_client=init_client,
        select=select_uniformly,
        direction=replace(weighted_direction(weighting), pull=_return_in_last_step, offset=minus_last_gradient),
        contribute=contribute,
        merge=merge,
        requires=("plain_sgd",),
        settings={**numbers, "weighting": weighting},
        numbers=numbers,
    )


def _return_in_last_step(facts: ClientFacts) -> Any:
    """Return 1 / gamma in the last step: x_i - gamma (y_i + (x_i - x) / gamma) = x - gamma y_i."""
    return jnp.where(facts.step == facts.num_steps - 1, _inverse(facts.learning_rate), 0.0)


def _inverse(learning_rate: Any) -> Any:
    """Return 1 / gamma; 0 if gamma is 0."""
    return jnp.where(learning_rate > 0, 1.0 / jnp.where(learning_rate > 0, learning_rate, 1.0), 0.0)
