"""F3AST: selection and weights from learned participation rates (Ribero et al. 2022)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedlatest.algorithms.base import (
    Algorithm,
    ClientFacts,
    ClientState,
    Cohort,
    Contribution,
    Params,
    RoundFacts,
    Sums,
    add,
    scale,
    subtract,
)
from fedlatest.algorithms.selection import lowest_first
from fedlatest.algorithms.server_optimizer import check_positive
from fedlatest.algorithms.weighting import Weighting, refuse_update_weighting, weighted_direction
from fedlatest.errors import ConfigError


class RatesServer(NamedTuple):
    """The model and each client's smoothed participation rate."""

    params: Params
    rates: jax.Array  # [N] r_i; K/N is used in round 0


def f3ast(*, smoothing: float = 0.01, server_step: float = 1.0, weighting: Weighting = "loss") -> Algorithm:
    r"""Select the available clients that reduce the variance most; divide their updates by their long-run rates.

        S   = the K available clients with the highest p_i^2 / r_i^2, the derivatives of -H(r) = -\sum_i p_i^2 / r_i
        r_i = (1 - smoothing) r_i + smoothing [i in S]                    for all clients
        x   = x + server_step \sum_{i in S} (p_i / r_i) u_i

    All r_i start at K/N. p_i is 1/N here, because the share of the samples scales the loss: the clients with the lowest
    r_i are selected, and ties are broken at random. K is the same in all rounds, whereas the paper also treats limits
    that change over time. The authors' code starts r_i at p_i and divides the sum by K (server_step = 1/K here). In a
    round with an empty cohort only the rates change.

    The server keeps one number per client, so clients cannot join or leave; clients keep nothing and receive r_i with
    the model. An upload has the size of the model. The analysis assumes that the availability process is stationary.

    Args:
        smoothing: beta in the paper: the weight of the current round in r_i, in (0, 1].
        server_step: The server's step size.
        weighting: "loss" multiplies a client's loss by its share of the samples, "none" ignores it.

    >>> f3ast(smoothing=0.1).numbers
    {'smoothing': 0.1, 'server_step': 1.0}
    """
    if not 0 < smoothing <= 1:
        raise ConfigError(f"smoothing={smoothing!r}: must be in (0, 1]")
    check_positive("server_step", server_step)
    refuse_update_weighting(weighting, "updates are weighted by 1/r_i")

    def init_server(params: Params, num_clients: int) -> RatesServer:
        return RatesServer(params, jnp.zeros(num_clients, jnp.float32))

    def current_rates(server: RatesServer, facts: RoundFacts) -> jax.Array:
        return jnp.where(facts.round == 0, jnp.float32(facts.cohort_size / facts.num_clients), server.rates)

    def select(server: RatesServer, available: jax.Array, facts: RoundFacts) -> Cohort:
        return lowest_first(current_rates(server, facts), available, facts)

    def brief(server: RatesServer, facts: RoundFacts) -> dict[str, jax.Array]:
        smoothing = facts.numbers["smoothing"]
        return {"rate": (1 - smoothing) * current_rates(server, facts) + smoothing}  # of a client that takes part

    def contribute(broadcast: Any, local: Params, client: ClientState, facts: ClientFacts) -> Contribution:
        del client
        return Contribution(fresh={"update": scale(subtract(local, broadcast.params), 1.0 / facts.brief["rate"])})

    def merge(server: RatesServer, sums: Sums, facts: RoundFacts) -> RatesServer:
        assert facts.cohort is not None
        smoothing = facts.numbers["smoothing"]
        took_part = jnp.where(facts.cohort.mask, smoothing, 0.0)
        return RatesServer(
            params=add(server.params, sums.fresh["update"], facts.numbers["server_step"] / facts.num_clients),
            rates=((1 - smoothing) * current_rates(server, facts)).at[facts.cohort.clients].add(took_part),
        )

    numbers = {"smoothing": smoothing, "server_step": server_step}
    return Algorithm(
        name="f3ast",
        title="F3AST",
        paper="Ribero et al. 2022, Federated Learning Under Intermittent Client Availability and Time-Varying "
        "Communication Constraints",
        init_server=init_server,
        select=select,
        brief=brief,
        direction=weighted_direction(weighting),
        contribute=contribute,
        merge=merge,
        requires=("fixed_clients",),
        settings={**numbers, "weighting": weighting},
        numbers=numbers,
    )
