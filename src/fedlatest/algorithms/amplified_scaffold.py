"""Amplified SCAFFOLD: control variates over periods of rounds, and amplified progress (Crawshaw & Liu 2024)."""

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
from fedlatest.algorithms.scaffold import ControlledServer, mean_gradient
from fedlatest.algorithms.server_optimizer import check_positive, server_numbers
from fedlatest.algorithms.weighting import Weighting, refuse_update_weighting, weighted_direction
from fedlatest.errors import ConfigError


class AmplifiedServer(NamedTuple):
    """The model, c in this period, and the model at the start of the period."""

    params: Params
    control: Params
    anchor: Params


def amplified_scaffold(
    *,
    amplification: float = 2.0,
    amplify_every: int = 20,
    server_step: float = 1.0,
    weighting: Weighting = "loss",
) -> Algorithm:
    r"""SCAFFOLD whose control variates change once per period, at whose end the progress is amplified.

        x_local = x_local - gamma (g(x_local) - c_i + c)                    C times, from x
        x = x + server_step (1/|S|) \sum_{i in S} (x_local - x)             in every round
        at the end of rounds P - 1, 2 P - 1, ...:
        c_i = mean of client i's gradients in this period; unchanged if it did not take part
        c   = (1/N) \sum_i c_i
        x   = x_0 + amplification (x - x_0),   x_0 = x

    The mean gradient of a round is (x - x_local) / (C gamma) + c_i - c, and c_i is the mean over the client's rounds of
    the period. With amplification = 1 and amplify_every = 1 this is SCAFFOLD (option II). The control variates assume
    plain local SGD: a `client_optimizer` is refused. A round with an empty cohort leaves the model unchanged, apart
    from the amplification at the end of a period; a learning rate of 0 leaves control variates unchanged.

    Each client keeps two vectors of the size of the model: c_i, and its mean gradient in the current period, whose sum
    over all clients the server knows. The server also keeps c and x_0. A download has the size of two models (x and
    c), and so has an upload. The analysis assumes that clients are equally likely to take part in a period.

    Args:
        amplification: gamma in the paper: the factor of a period's progress.
        amplify_every: P in the paper: the length of a period in rounds.
        server_step: The server's step size in every round.
        weighting: "loss" multiplies a client's loss by its share of the samples, "none" ignores it.

    >>> amplified_scaffold(amplify_every=5).numbers
    {'amplification': 2.0, 'amplify_every': 5, 'server_step': 1.0}
    """
    check_positive("amplification", amplification)
    if not (amplify_every >= 1 and amplify_every == int(amplify_every)):
        raise ConfigError(f"amplify_every={amplify_every!r}: must be a whole number of rounds, at least 1")
    refuse_update_weighting(weighting, "control variates are mean gradients")

    def init_server(params: Params, num_clients: int) -> AmplifiedServer:
        del num_clients
        return AmplifiedServer(params, zeros_like(params), params)

    def init_client(params: Params) -> ClientState:
        return ClientState(
            remembered={"control": zeros_like(params)},  # c_i after the end of this period
            private={"current": zeros_like(params), "num_rounds": jnp.float32(0)},
        )

    def broadcast(server: AmplifiedServer) -> ControlledServer:
        return ControlledServer(server.params, server.control)

    def current_control(client: ClientState, facts: ClientFacts) -> Params:
        """Return c_i in this period: what was remembered at its start."""
        return where(_is_first(facts), client.remembered["control"], client.private["current"])

    def correction(broadcast: ControlledServer, client: ClientState, facts: ClientFacts) -> Params:
        return subtract(broadcast.control, current_control(client, facts))

    def contribute(broadcast: Any, local: Params, client: ClientState, facts: ClientFacts) -> Contribution:
        update = subtract(local, broadcast.params)
        current = current_control(client, facts)
        gradient, known = mean_gradient(update, current, broadcast.control, facts)
        before = jnp.where(_is_first(facts), 0.0, client.private["num_rounds"])
        mean = jax.tree.map(
            lambda old, new: (before * old + new) / (before + 1), client.remembered["control"], gradient
        )  # the first gradient of a period replaces the old value
        return Contribution(
            fresh={"update": update},
            remembered={"control": where(known, mean, client.remembered["control"])},
            private={"current": current, "num_rounds": jnp.where(known, before + 1, before)},
        )

    def merge(server: AmplifiedServer, sums: Sums, facts: RoundFacts) -> AmplifiedServer:
        params = add(server.params, mean_update(sums, weighting), facts.numbers["server_step"])
        amplified = add(server.anchor, subtract(params, server.anchor), facts.numbers["amplification"])
        control = scale(sums.total["control"], 1.0 / facts.num_clients)
        ends = (facts.round + 1) % _period(facts) == 0
        return where(
            ends, AmplifiedServer(amplified, control, amplified), AmplifiedServer(params, server.control, server.anchor)
        )

    numbers = {"amplification": amplification, "amplify_every": amplify_every, **server_numbers(server_step)}
    return Algorithm(
        name="amplified_scaffold",
        title="Amplified SCAFFOLD",
        paper="Crawshaw & Liu 2024, Federated Learning under Periodic Client Participation and Heterogeneous Data: A "
        "New Communication-Efficient Algorithm and Analysis",
        init_server=init_server,
        init_client=init_client,
        select=select_uniformly,
        broadcast=broadcast,
        direction=replace(weighted_direction(weighting), offset=correction),
        contribute=contribute,
        merge=merge,
        requires=("plain_sgd",),
        settings={**numbers, "weighting": weighting},
        numbers=numbers,
    )


def _period(facts: ClientFacts | RoundFacts) -> jax.Array:
    """Return P as a whole number."""
    return jnp.asarray(facts.numbers["amplify_every"]).astype(jnp.int32)


def _is_first(facts: ClientFacts) -> Any:
    """Return whether a client takes part for the first time in the current period."""
    return facts.last_round // _period(facts) < facts.round // _period(facts)
