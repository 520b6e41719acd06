"""Flexible participation: scale incomplete work up, kick out who is seldom here (Ruan et al. 2021).

The rival of Appendix A of the FedLaAvg paper. It makes up for clients that do part of their work; those
that do none bias it.
"""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedlatest.algorithms.base import (
    Algorithm,
    ClientFacts,
    Cohort,
    Contribution,
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
from fedlatest.streams import uniform as draw


class WithAttendance(NamedTuple):
    """The model, how often each client took part, and who was kicked out."""

    params: Params
    num_seen: jax.Array  # [N]
    out: jax.Array  # [N]


def flexible(
    *, least_work: float = 1.0, least_presence: float = 0.0, trial: int = 100, weighting: Weighting = "loss"
) -> Algorithm:
    r"""Whoever is here does s_i of the C local steps, and counts as if it had done all; who is away counts as nothing.

        x = x + (1/N) \sum_{i in S} (C / s_i) u_i

    s_i is drawn anew each time, evenly from ceil(least_work C) .. C. With `least_presence` above 0, clients that took
    part less than that many times as often as the one that came most often are kicked out for good after `trial`
    rounds, and N is how many are left. Where fewer than all take part, x moves by that much less. (The authors weigh
    the bias of keeping a client against that of dropping it, which takes the optima that training is to find; here the
    user says what is too seldom.)

    >>> flexible(least_presence=0.3).numbers
    {'least_presence': 0.3, 'trial': 100}
    """
    for name, value in (("least_work", least_work), ("least_presence", least_presence)):
        if not 0 <= value <= 1:
            raise ConfigError(f"{name}={value!r}: a share is in [0, 1]")
    if trial < 1:
        raise ConfigError(f"trial={trial!r}: clients are watched for at least one round")
    plain = fedavg(weighting=weighting)

    def init(params: Params, num_clients: int) -> WithAttendance:
        return WithAttendance(params, jnp.zeros(num_clients, jnp.int32), jnp.zeros(num_clients, bool))

    def select(server: WithAttendance, available: jax.Array, facts: RoundFacts) -> Cohort:
        return uniform(available & ~server.out, facts)

    def direction(
        gradient: Params, local: Params, broadcast: Params, memory: Contribution, facts: ClientFacts
    ) -> Params:
        descent = plain.direction(gradient, local, broadcast, memory, facts)
        return scale(descent, jnp.where(facts.step < _steps_done(facts, least_work), 1.0, 0.0))

    def contribute(broadcast: Params, local: Params, memory: Contribution, facts: ClientFacts) -> Contribution:
        update = plain.contribute(broadcast, local, memory, facts)["update"]
        return {"update": scale(update, facts.num_steps / _steps_done(facts, least_work))}

    def merge(server: WithAttendance, sums: Sums, facts: RoundFacts) -> WithAttendance:
        came = (facts.last_round == facts.round - 1) & (facts.round > 0)  # to the round before, the last that is known
        num_seen = server.num_seen + came
        seldom = num_seen < facts.numbers["least_presence"] * jnp.max(num_seen)
        kicked_out = seldom & (facts.round == facts.numbers["trial"])
        num_left = jnp.sum(~server.out)
        return WithAttendance(
            add(server.params, sums.fresh["update"], 1.0 / num_left), num_seen, server.out | kicked_out
        )

    numbers = {"least_presence": least_presence, "trial": trial}
    return replace(
        plain,
        name="flexible",
        init=init,
        select=select,
        direction=direction,
        contribute=contribute,
        merge=merge,
        settings={"least_work": least_work, **numbers, **plain.settings},
        numbers=numbers,
    )


def _steps_done(facts: ClientFacts, least_work: float) -> Any:
    """s_i, at least 1."""
    least = max(1, math.ceil(least_work * facts.num_steps - 1e-9))  # 0.07 of 100 steps are 7, whatever rounding says
    chance = draw(facts.seed, Purpose.WORK, facts.id, facts.round)
    return least + jnp.floor(chance * (facts.num_steps - least + 1)).astype(jnp.int32)
