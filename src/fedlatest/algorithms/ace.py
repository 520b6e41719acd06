"""ACE: every arrival steps along the latest updates of all clients (Chang et al. 2025)."""

from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp

from fedlatest.algorithms.base import (
    NEVER,
    Algorithm,
    Cohort,
    ModelOnly,
    Params,
    RoundFacts,
    Sums,
    UpdateUpload,
    add,
    keep_model,
)
from fedlatest.algorithms.fedavg import select_uniformly
from fedlatest.algorithms.selection import uniform
from fedlatest.algorithms.server_optimizer import server_numbers
from fedlatest.algorithms.weighting import Weighting, refuse_update_weighting, weighted_direction
from fedlatest.errors import ConfigError

PAPER = "Chang et al. 2025, Mitigating Participation Imbalance Bias in Asynchronous Federated Learning"
FirstStep = Literal["arrival", "everyone"]


class InitialPhase(NamedTuple):
    """The model, and which clients have arrived at least once."""

    params: Params
    has_arrived: jax.Array  # [N]


def ace(*, server_step: float = 1.0, first_step: FirstStep = "arrival", weighting: Weighting = "loss") -> Algorithm:
    r"""After every arrival the server steps along the average of the clients' latest updates.

        u_i = x_local - x        of the client that arrives, relative to the model with which it started
        x   = x + server_step (1/|A|) \sum_{i in A} u_i

    A is the set of clients that have arrived at least once: the average grows as clients arrive. The paper first
    collects an update of every client, all computed with the initial model, and then takes the first step, so that A is
    everyone. `first_step="everyone"` does this: until everyone has arrived, the model stays as it is and clients that
    have arrived do not start again. It needs every client to be available at some time, and the N - 1 arrivals before
    the first step count as server steps.

    Two differences remain. In the paper all clients are at work at any time, and one that has arrived starts again at
    once; here `cohort_size` clients are, and they are replaced by available ones, drawn uniformly. With as many as
    there are clients, all of them always available, this is the same. A client uploads the result of its local steps;
    in the paper it is one stochastic gradient. `fedlaavg_async` divides by N from the start and prefers clients that
    started long ago.

    Each client's latest update is remembered. An upload has the size of the model.

    Args:
        server_step: eta, the server's step size. A step is taken after every arrival: for the progress per arrival of
            synchronous rounds of K clients, use about 1 / K.
        first_step: When the server takes it: after the first "arrival", or once "everyone" has arrived.
        weighting: How a client's share of the samples is used; "loss" or "none".

    >>> ace().buffer
    1
    """
    refuse_update_weighting(weighting, "the average over the clients does not depend on their weights")
    if first_step not in get_args(FirstStep):
        raise ConfigError(f"first_step={first_step!r}: choose one of {', '.join(get_args(FirstStep))}")
    waits = first_step == "everyone"
    numbers = server_numbers(server_step)
    return Algorithm(
        name="ace",
        title="ACE",
        paper=PAPER,
        init_server=_nobody_arrived if waits else keep_model,
        select=_select_missing if waits else select_uniformly,
        direction=weighted_direction(weighting),
        contribute=UpdateUpload(remembered=True),
        merge=_step_after_everyone if waits else _step_along_average,
        buffer=1,
        requires=("fixed_clients",) if waits else (),
        settings={**numbers, "first_step": first_step, "weighting": weighting},
        numbers=numbers,
    )


def _step_along_average(server: Any, sums: Sums, facts: RoundFacts) -> ModelOnly:
    """Move along the average of the updates that are remembered."""
    number = jnp.maximum(jnp.sum(facts.last_round != NEVER), 1)
    return ModelOnly(add(server.params, sums.total["update"], facts.numbers["server_step"] / number))


def _nobody_arrived(params: Params, num_clients: int) -> InitialPhase:
    return InitialPhase(params, jnp.zeros(num_clients, bool))


def _select_missing(server: InitialPhase, available: jax.Array, facts: RoundFacts) -> Cohort:
    """Draw clients that have not arrived yet; once everyone has, any."""
    return uniform(available & (~server.has_arrived | jnp.all(server.has_arrived)), facts)


def _step_after_everyone(server: InitialPhase, sums: Sums, facts: RoundFacts) -> InitialPhase:
    """Move along the average of all clients' updates once everyone has arrived."""
    has_arrived = facts.last_round != NEVER
    step = jnp.where(jnp.all(has_arrived), facts.numbers["server_step"] / facts.num_clients, 0.0)
    return InitialPhase(add(server.params, sums.total["update"], step), has_arrived)
