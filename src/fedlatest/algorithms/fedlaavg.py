"""FedLaAvg: every client's latest update stays in the average while the client is unavailable.

Yan et al., "Distributed Non-Convex Optimization with Sublinear Speedup under Intermittent Client Availability",
Algorithm 2 (Algorithm 1 when there is one local step).
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax

from fedlatest.algorithms.base import Algorithm, Cohort, RoundFacts, Sums, UpdateUpload, scale
from fedlatest.algorithms.selection import oldest_first
from fedlatest.algorithms.server_optimizer import make_server_step, server_numbers, server_settings
from fedlatest.algorithms.weighting import Weighting, weighted_direction
from fedlatest.errors import ConfigError


def fedlaavg(
    *,
    weighting: Weighting = "loss",
    empty_round: Literal["step", "hold"] = "step",
    server_optimizer: optax.GradientTransformation | None = None,
    server_step: float = 1.0,
) -> Algorithm:
    r"""Select the K clients that have been absent longest; add the average of all clients' latest updates.

        B_r = the K clients of C_r with the lowest R_i
        u   = u + (1/N) \sum_{i in B_r} (u_i_new - u_i)          so that u = (1/N) \sum_i u_i at all times
        x   = x + u

    Args:
        weighting: How a client's share of the samples is used: "loss" multiplies its local loss by it, "update" its
            update (and the average is weighted), "none" ignores it.
        empty_round: What happens when nobody takes part: "step" moves along u as in any other round, which is how the
            paper is written; "hold" leaves the model unchanged.
        server_optimizer: An optax transformation of u, such as `optax.scale_by_adam()`; the server then adds
            `server_step` times its result.
        server_step: Used with a `server_optimizer` only.

    >>> sorted(fedlaavg().client_state(jnp.zeros(3)).remembered)
    ['update']
    """
    if empty_round not in ("step", "hold"):
        raise ConfigError(f"empty_round={empty_round!r}: choose 'step' (the paper) or 'hold'")
    numbers = server_numbers(server_optimizer, server_step)
    init_server, step = make_server_step(server_optimizer)

    def select(server: Any, available: jax.Array, facts: RoundFacts) -> Cohort:
        del server
        return oldest_first(available, facts)

    def merge(server: Any, sums: Sums, facts: RoundFacts) -> Any:
        moves = jnp.bool_(True) if empty_round == "step" else sums.num > 0
        divisor = facts.total_weight if weighting == "update" else facts.num_clients
        average = scale(sums.total["update"], jnp.where(moves, 1.0 / divisor, 0.0))
        return step(server, average, moves, facts)

    return Algorithm(
        name="fedlaavg",
        title="FedLaAvg",
        paper=(
            "Yan et al. 2020, Distributed Non-Convex Optimization with Sublinear Speedup under Intermittent Client "
            "Availability"
        ),
        init_server=init_server,
        select=select,
        direction=weighted_direction(weighting),
        contribute=UpdateUpload(weighted=weighting == "update", remembered=True),
        merge=merge,
        oldest_first=True,
        settings={"weighting": weighting, "empty_round": empty_round, **server_settings(server_optimizer, numbers)},
        numbers=numbers,
    )
