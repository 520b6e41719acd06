"""Flexible participation: scale incomplete work up and drop clients that participate rarely (Ruan et al. 2021).

The method that Appendix A of the FedLaAvg paper compares with. It corrects for clients that do only some of their local
steps, but not for clients that do not take part: their absence biases the model.
"""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedlatest.algorithms.base import (
    Algorithm,
    ClientFacts,
    ClientState,
    Cohort,
    Contribution,
    Direction,
    Params,
    RoundFacts,
    Sums,
    add,
    scale,
)
from fedlatest.algorithms.fedavg import fedavg
from fedlatest.algorithms.selection import uniform
from fedlatest.algorithms.weighting import Weighting
from fedlatest.errors import ConfigError
from fedlatest.streams import Purpose
from fedlatest.streams import uniform as draw_uniform


class ParticipationCounts(NamedTuple):
    """The model, how often each client took part, and which clients were dropped."""

    params: Params
    num_participations: jax.Array  # [N]
    dropped: jax.Array  # [N]


def flexible(
    *,
    least_work: float = 1.0,
    least_presence: float = 0.0,
    trial: int = 100,
    server_step: float = 1.0,
    weighting: Weighting = "loss",
) -> Algorithm:
    r"""Each participant does s_i of the C local steps and counts as if it had done all; absent clients count as 0.

        x = x + server_step (1/N) \sum_{i in S} (C / s_i) u_i

    s_i is drawn anew each time, uniformly from ceil(least_work C) .. C. N is the number of clients that have not been
    dropped, so x moves by less when fewer than all take part. (The authors compare the bias of keeping a
    client with that of dropping it, for which the optima must be known; here the user gives the threshold.)

    Args:
        least_work: The smallest share of the local steps that a participant does.
        least_presence: Drop clients whose number of participations is below this fraction of the largest one; 0 drops
            no client.
        trial: The number of rounds after which clients are dropped, once.
        server_step: The server's step size.
        weighting: How a client's share of the samples is used; see `fedavg`.

    >>> flexible(least_presence=0.3).numbers
    {'least_presence': 0.3, 'trial': 100, 'server_step': 1.0}
    """
    for name, value in (("least_work", least_work), ("least_presence", least_presence)):
        if not 0 <= value <= 1:
            raise ConfigError(f"{name}={value!r}: must be in [0, 1]")
    if trial < 1:
        raise ConfigError(f"trial={trial!r}: must be at least 1 round")
    plain = fedavg(weighting=weighting, server_step=server_step)
    upload = plain.contribute  # captured instead of `plain`, whose numbers are no part of the program

    def init_server(params: Params, num_clients: int) -> ParticipationCounts:
        return ParticipationCounts(params, jnp.zeros(num_clients, jnp.int32), jnp.zeros(num_clients, bool))

    def select(server: ParticipationCounts, available: jax.Array, facts: RoundFacts) -> Cohort:
        return uniform(available & ~server.dropped, facts)

    def step_scale(facts: ClientFacts) -> Any:
        works = jnp.where(facts.step < num_steps_done(facts, least_work), 1.0, 0.0)
        return works * facts.weight if weighting == "loss" else works

    def contribute(broadcast: Any, local: Params, client: ClientState, facts: ClientFacts) -> Contribution:
        update = upload(broadcast, local, client, facts).fresh["update"]
        return Contribution(fresh={"update": scale(update, facts.num_steps / num_steps_done(facts, least_work))})

    def merge(server: ParticipationCounts, sums: Sums, facts: RoundFacts) -> ParticipationCounts:
        assert facts.cohort is not None
        counts = server.num_participations  # of the rounds before this one
        rare = counts < facts.numbers["least_presence"] * jnp.max(counts)
        num_left = jnp.sum(~server.dropped)
        return ParticipationCounts(
            params=add(server.params, sums.fresh["update"], facts.numbers["server_step"] / num_left),
            num_participations=counts.at[facts.cohort.clients].add(facts.cohort.mask.astype(counts.dtype)),
            dropped=server.dropped | (rare & (facts.round == facts.numbers["trial"])),
        )

    numbers = {"least_presence": least_presence, "trial": trial, **plain.numbers}
    return replace(
        plain,
        name="flexible",
        title="Flexible participation",
        paper="Ruan et al. 2021, Towards Flexible Device Participation in Federated Learning",
        init_server=init_server,
        select=select,
        direction=Direction(scale=step_scale),
        contribute=contribute,
        merge=merge,
        requires=("fixed_clients",),
        settings={"least_work": least_work, **numbers, **plain.settings},
        numbers=numbers,
    )


def num_steps_done(facts: ClientFacts, least_work: float) -> Any:
    """Return s_i, at least 1."""
    least = max(1, math.ceil(least_work * facts.num_steps - 1e-9))  # 0.07 of 100 steps is 7 despite rounding
    chance = draw_uniform(facts.seed, Purpose.WORK, facts.id, facts.round)
    return least + jnp.floor(chance * (facts.num_steps - least + 1)).astype(jnp.int32)
