"""FedNova: updates are divided by the number of local steps before they are averaged (Wang et al. 2020)."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp

from fedlatest.algorithms.base import (
    Algorithm,
    ClientFacts,
    ClientState,
    Contribution,
    Direction,
    ModelOnly,
    Params,
    RoundFacts,
    Sums,
    add,
    scale,
)
from fedlatest.algorithms.fedavg import fedavg
from fedlatest.algorithms.flexible import num_steps_done
from fedlatest.algorithms.weighting import Weighting
from fedlatest.errors import ConfigError


def fednova(*, least_work: float = 1.0, server_step: float = 1.0, weighting: Weighting = "loss") -> Algorithm:
    r"""Average the updates per local step, and multiply the mean by the mean number of steps.

        x = x + server_step tau (1/|S|) \sum_{i in S} u_i / s_i,      tau = (1/|S|) \sum_{i in S} s_i

    s_i is the number of local steps of client i in this round, drawn uniformly from ceil(least_work C) .. C; with
    least_work = 1 all clients do all C steps and FedNova is FedAvg. This is the case of plain local SGD, where the
    paper's ||a_i||_1 is s_i: a `client_optimizer` is refused. A round with an empty cohort changes nothing.

    Clients and server keep nothing but the model. An upload has the size of the model, and the number of steps. Clients
    must be equally likely to take part.

    Args:
        least_work: The smallest share of the local steps that a participant does.
        server_step: The server's step size.
        weighting: How a client's share of the samples is used; see `fedavg`. With "update", both means are weighted.

    >>> fednova(least_work=0.5).settings
    {'least_work': 0.5, 'weighting': 'loss', 'server_step': 1.0}
    """
    if not 0 <= least_work <= 1:
        raise ConfigError(f"least_work={least_work!r}: must be in [0, 1]")
    plain = fedavg(weighting=weighting, server_step=server_step)
    upload = plain.contribute  # captured instead of `plain`, whose numbers are no part of the program

    def step_scale(facts: ClientFacts) -> Any:
        works = jnp.where(facts.step < num_steps_done(facts, least_work), 1.0, 0.0)
        return works * facts.weight if weighting == "loss" else works

    def contribute(broadcast: Any, local: Params, client: ClientState, facts: ClientFacts) -> Contribution:
        update = upload(broadcast, local, client, facts).fresh["update"]
        num_steps = num_steps_done(facts, least_work).astype(jnp.float32)
        weight = facts.weight if weighting == "update" else 1.0
        return Contribution(fresh={"update": scale(update, 1.0 / num_steps), "num_steps": weight * num_steps})

    def merge(server: ModelOnly, sums: Sums, facts: RoundFacts) -> ModelOnly:
        total = jnp.where(sums.num > 0, sums.weight if weighting == "update" else sums.num, 1.0)
        mean_num_steps = sums.fresh["num_steps"] / total  # tau; 0 when nobody took part
        step = facts.numbers["server_step"] * (mean_num_steps / total)
        return ModelOnly(add(server.params, sums.fresh["update"], step))

    return replace(
        plain,
        name="fednova",
        title="FedNova",
        paper="Wang et al. 2020, Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization",
        direction=Direction(scale=step_scale),
        contribute=contribute,
        merge=merge,
        requires=("plain_sgd",),
        settings={"least_work": least_work, **plain.settings},
    )
