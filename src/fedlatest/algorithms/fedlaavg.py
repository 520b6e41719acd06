"""FedLaAvg: every client's latest update stays in the average while the client is unavailable.

Yan et al., "Distributed Non-Convex Optimization with Sublinear Speedup under Intermittent Client Availability",
Algorithm 2 (Algorithm 1 when there is one local step).
"""

import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax

from fedlatest.algorithms.base import NEVER, Algorithm, Cohort, RoundFacts, Sums, UpdateUpload, add, scale
from fedlatest.algorithms.selection import age_weighted, oldest_first
from fedlatest.algorithms.server_optimizer import make_server_step, server_numbers, server_settings
from fedlatest.algorithms.weighting import Weighting, weighted_direction
from fedlatest.errors import ConfigError

Selection = Literal["oldest", "weighted"]
Fresh = Literal["average", "cohort"] | float


def fedlaavg(
    *,
    weighting: Weighting = "loss",
    empty_round: Literal["step", "hold"] = "step",
    fresh: Fresh = "average",
    average_over: Literal["all", "seen"] = "all",
    damping: float = 0.0,
    selection: Selection = "oldest",
    server_optimizer: optax.GradientTransformation | None = None,
    server_step: float = 1.0,
) -> Algorithm:
    r"""Select the K clients that have been absent longest; add the average of all clients' latest updates.

        B_r = the K clients of C_r with the lowest R_i
        u   = u + (1/N) \sum_{i in B_r} (u_i_new - u_i)          so that u = (1/N) \sum_i u_i at all times
        x   = x + server_step u

    The step may give this round's differences another weight than the average does; u itself is not affected:

        x   = x + server_step (u_old + a \sum_{i in B_r} (u_i_new - u_i)),    a = 1/N in the paper

    Each client keeps its latest update; the server keeps their sum. An upload has the size of the model. Participation
    rates are not needed.

    Args:
        weighting: How a client's share of the samples is used: "loss" multiplies its local loss by it, "update" its
            update (and the average is weighted), "none" ignores it.
        empty_round: What happens when nobody takes part: "step" moves along u as in any other round, which is how the
            paper is written; "hold" leaves the model unchanged.
        fresh: a, the weight of this round's differences in the step: "average" is the paper's 1/N, "cohort" is 1/|B_r|
            (the step of FedVARP), and a number in (0, 1] is a itself, usually between the two. With
            "cohort", the mean difference of the cohort stands for that of all clients.
        average_over: "all" divides the sum of the latest updates by N as in the paper; "seen" divides it by the number
            of clients that have taken part so far, so that the first steps are as long as later ones. It is the same
            once every client has taken part, and not available with weighting="update".
        damping: Multiply u_old in the step by (mean age)^-damping, 0 or larger; the age is the number of rounds since a
            client took part, and the mean is over the clients outside the cohort that have taken part before. A factor
            per client is not possible: the server knows the sum of the remembered updates only.
        selection: "oldest" takes the K clients absent longest as in the paper; "weighted" draws K clients with
            probabilities proportional to the square of their absence, which prevents resonance (docs/theory.md).
            Lemma 1 then holds with high probability only.
        server_optimizer: An optax transformation of u, such as `optax.scale_by_adam()`; the server then adds
            `server_step` times its result.
        server_step: The server's step size; 1 in the paper.

    >>> sorted(fedlaavg().client_state(jnp.zeros(3)).remembered)
    ['update']
    >>> fedlaavg(fresh=0.05).numbers
    {'fresh': 0.05, 'server_step': 1.0}
    """
    if empty_round not in ("step", "hold"):
        raise ConfigError(f"empty_round={empty_round!r}: choose 'step' (the paper) or 'hold'")
    if average_over not in ("all", "seen"):
        raise ConfigError(f"average_over={average_over!r}: choose 'all' (the paper) or 'seen'")
    if average_over == "seen" and weighting == "update":
        raise ConfigError(
            "average_over='seen': with weighting='update' the server does not know the weight of the clients seen so "
            "far; choose weighting 'loss' or 'none'"
        )
    if not (math.isfinite(damping) and damping >= 0):
        raise ConfigError(f"damping={damping!r}: must be a finite number, 0 or larger")
    if selection not in ("oldest", "weighted"):
        raise ConfigError(f"selection={selection!r}: choose 'oldest' (the paper) or 'weighted'")
    damps = damping > 0
    dampened = {"damping": damping} if damps else {}
    fresh_numbers, step_numbers = _fresh_numbers(fresh), server_numbers(server_step)
    fresh_kind = "number" if fresh_numbers else fresh  # what `merge` captures: the number itself comes from the facts
    init_server, step = make_server_step(server_optimizer)

    def select(server: Any, available: jax.Array, facts: RoundFacts) -> Cohort:
        del server
        return (oldest_first if selection == "oldest" else age_weighted)(available, facts)

    def merge(server: Any, sums: Sums, facts: RoundFacts) -> Any:
        moves = jnp.bool_(True) if empty_round == "step" else sums.num > 0
        everyone = facts.total_weight if weighting == "update" else facts.num_clients
        divisor = jnp.maximum(_num_seen(facts), 1) if average_over == "seen" else everyone
        stale = (_mean_age(facts) ** -facts.numbers["damping"] if damps else 1.0) / divisor
        update = scale(sums.total["update"], jnp.where(moves, stale, 0.0))
        if fresh_kind != "average" or damps:  # d total / N + (a - d / N) delta is d total_old / N + a delta
            if fresh_kind == "average":
                weight = 1.0 / divisor
            elif fresh_kind == "cohort":
                weight = 1.0 / jnp.where(sums.num > 0, sums.weight if weighting == "update" else sums.num, 1.0)
            else:
                weight = facts.numbers["fresh"] * (facts.num_clients / everyone)
            update = add(update, sums.delta["update"], jnp.where(moves & (sums.num > 0), weight - stale, 0.0))
        return step(server, update, moves, facts)

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
        oldest_first=selection == "oldest",
        settings={
            "weighting": weighting,
            "empty_round": empty_round,
            "fresh": fresh,
            "average_over": average_over,
            "damping": damping,
            "selection": selection,
            **server_settings(server_optimizer, step_numbers),
        },
        numbers={**fresh_numbers, **dampened, **step_numbers},
    )


def _num_seen(facts: RoundFacts) -> jax.Array:
    """Return the number of clients that have taken part, including this round."""
    assert facts.cohort is not None
    return jnp.sum((facts.last_round != NEVER).at[facts.cohort.clients].max(facts.cohort.mask))


def _mean_age(facts: RoundFacts) -> jax.Array:
    """Return the mean number of rounds since the clients outside the cohort took part; 1 if there are none."""
    assert facts.cohort is not None
    absent = (facts.last_round != NEVER).at[facts.cohort.clients].min(~facts.cohort.mask)
    ages = jnp.where(absent, facts.round - facts.last_round, 0).astype(jnp.float32)
    return jnp.where(jnp.any(absent), jnp.sum(ages) / jnp.maximum(jnp.sum(absent), 1), 1.0)


def _fresh_numbers(fresh: Fresh) -> dict[str, float]:
    """Return the number that the merge reads from the facts, if the weight of fresh differences is given as one.

    Raises:
        ConfigError: If it is neither a known name nor a number in (0, 1].
    """
    if fresh in ("average", "cohort"):
        return {}
    if not isinstance(fresh, int | float) or isinstance(fresh, bool) or not 0 < fresh <= 1:
        raise ConfigError(
            f"fresh={fresh!r}: choose 'average' (1/N, the paper), 'cohort' (1/|S|) or a number in (0, 1], the weight "
            "of a difference in the step"
        )
    return {"fresh": float(fresh)}
