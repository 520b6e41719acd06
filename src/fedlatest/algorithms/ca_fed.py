"""CA-Fed: exclude clients whose absence is correlated over time, where this reduces the error (Rodio et al. 2023)."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedlatest.algorithms.base import (
    NEVER,
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
from fedlatest.algorithms.server_optimizer import server_numbers
from fedlatest.algorithms.weighting import Weighting, refuse_update_weighting, weighted_direction
from fedlatest.errors import ConfigError


class HistoryServer(NamedTuple):
    """The model and what the server has seen of each client in the rounds so far; all arrays are [N]."""

    params: Params
    num_on: jax.Array  # rounds in which the client was available
    stayed_on: jax.Array  # rounds in which it was available, as in the round before
    stayed_off: jax.Array  # rounds in which it was unavailable, as in the round before
    was_on: jax.Array  # whether it was available in the last round
    excess: jax.Array  # estimate of F_i - F_i*; unused for clients that have not taken part
    excluded: jax.Array  # in the next round


class ReportForm(NamedTuple):
    """The broadcast: the model, and an array [N] in which each client reports its own entry."""

    params: Params
    entries: jax.Array


def ca_fed(
    *,
    bias: float = 1.0,
    tolerance: float = 0.0,
    smoothing: float = 1.0,
    server_step: float = 1.0,
    weighting: Weighting = "loss",
) -> Algorithm:
    r"""Divide updates by the clients' availability, and exclude clients if this reduces an estimate of the error.

        pi_i     = share of the rounds so far, including this one, in which client i was available
        lambda_i = P(available | was available) + P(unavailable | was unavailable) - 1, from the frequencies so far
        J(I)     = (1/|I|) \sum_{i in I} l_i + bias max_i(l_i) (1 - |I|/N)^2        l_i estimates F_i - F_i*
        I        = all clients; for i by decreasing |lambda_i|, then for i by increasing pi_i:
                   I = I without i, if J(I) - J(I without i) >= tolerance
        x        = x + server_step (1/N) \sum_{i in S and I} u_i / pi_i

    J is the paper's bound with the target weights alpha_i = 1/N (the share of the samples scales the loss): without the
    clients outside I the mean loss is optimised faster, but it is the mean over I, at the total variation distance
    1 - |I|/N from the target. The paper has the clients report their losses at x and subtracts their minima F_i*. Here

        l_i = (1 - smoothing) l_i + smoothing |u_i|^2 / (C^2 gamma^2 w_i N)

    the squared norm of the mean gradient (without w_i N if the weighting is "none"). This is proportional to F_i - F_i*
    for quadratic losses f~_i with a common curvature; as J is homogeneous in l, a common factor changes no decision
    unless there is a tolerance. l_i of a client that has not taken part is the mean of the others.

    In the paper all available clients report and those of I train: run it with K = N. Here the cohort is filled with
    available clients of I first, and with others, which only report l_i, if there is room; if more than K clients of I
    are available, the step is multiplied by their number over K. I is decided after a round for the next one, from
    the availability and reports so far; all clients are in it in the first round and never none. pi_i and lambda_i are
    frequencies, without the prior of the authors' code (which also divides both terms of lambda_i by the number of all
    rounds); lambda_i is 0 until a client was seen in both states.

    The server keeps six numbers per client, so clients cannot join or leave. An upload has the size of the model, and
    the report of one number (in the simulator, a vector of N numbers with one entry, because uploads are summed). The
    analysis assumes that availability is a Markov chain, one per client.

    Args:
        bias: The weight of the bias in J: the larger, the fewer clients are excluded.
        tolerance: The smallest decrease of J for which a client is excluded.
        smoothing: The weight of the current round in l_i, in (0, 1].
        server_step: The server's step size.
        weighting: "loss" multiplies a client's loss by its share of the samples, "none" ignores it.

    >>> ca_fed(bias=2.0).numbers
    {'bias': 2.0, 'tolerance': 0.0, 'smoothing': 1.0, 'server_step': 1.0}
    """
    for name, value in (("bias", bias), ("tolerance", tolerance)):
        if not (math.isfinite(value) and value >= 0):
            raise ConfigError(f"{name}={value!r}: must be a finite number, 0 or larger")
    if not 0 < smoothing <= 1:
        raise ConfigError(f"smoothing={smoothing!r}: must be in (0, 1]")
    refuse_update_weighting(weighting, "updates are weighted by 1/pi_i")
    numbers = {"bias": bias, "tolerance": tolerance, "smoothing": smoothing, **server_numbers(server_step)}

    def init_server(params: Params, num_clients: int) -> HistoryServer:
        counts, flags = jnp.zeros(num_clients, jnp.int32), jnp.zeros(num_clients, bool)
        return HistoryServer(params, counts, counts, counts, flags, jnp.zeros(num_clients, jnp.float32), flags)

    def select(server: HistoryServer, available: jax.Array, facts: RoundFacts) -> Cohort:
        return lowest_first(server.excluded.astype(jnp.float32), available, facts)

    def broadcast(server: HistoryServer) -> ReportForm:
        return ReportForm(server.params, jnp.zeros_like(server.excess))

    def brief(server: HistoryServer, facts: RoundFacts) -> dict[str, jax.Array]:
        assert facts.available is not None
        rates = (server.num_on + facts.available) / (facts.round + 1).astype(jnp.float32)
        weights = jnp.where(server.excluded | ~facts.available, 0.0, 1.0 / jnp.where(rates > 0, rates, 1.0))
        return {"weight": weights, "entry": jnp.arange(facts.num_clients, dtype=jnp.int32)}

    def contribute(broadcast: ReportForm, local: Params, client: ClientState, facts: ClientFacts) -> Contribution:
        del client
        update = subtract(local, broadcast.params)
        total_step = facts.num_steps * facts.learning_rate
        squared = sum(jnp.sum(jnp.square(leaf.astype(jnp.float32))) for leaf in jax.tree.leaves(update))
        excess = squared / jnp.where(total_step > 0, total_step, 1.0) ** 2
        excess = excess / facts.weight if weighting == "loss" else excess
        report = broadcast.entries.at[facts.brief["entry"]].set(excess.astype(jnp.float32))
        return Contribution(fresh={"update": scale(update, facts.brief["weight"]), "excess": report})

    def merge(server: HistoryServer, sums: Sums, facts: RoundFacts) -> HistoryServer:
        assert facts.cohort is not None
        assert facts.available is not None
        available, past = facts.available, facts.round  # the number of rounds before this one
        cohort, included = facts.cohort, ~server.excluded
        num_training = jnp.sum(cohort.mask & included[cohort.clients])
        num_willing = jnp.sum(available & included)
        step = facts.numbers["server_step"] / facts.num_clients * num_willing / jnp.maximum(num_training, 1)

        new = facts.numbers["smoothing"]
        took_part = jnp.zeros_like(available).at[cohort.clients].max(cohort.mask)
        known = facts.last_round != NEVER
        smoothed = jnp.where(known, (1 - new) * server.excess + new * sums.fresh["excess"], sums.fresh["excess"])
        excess = jnp.where(took_part, smoothed, server.excess).astype(jnp.float32)
        known = known | took_part
        mean = jnp.sum(jnp.where(known, excess, 0.0)) / jnp.maximum(jnp.sum(known), 1)

        stayed_on = server.stayed_on + (server.was_on & available & (past > 0))
        stayed_off = server.stayed_off + (~server.was_on & ~available & (past > 0))
        num_on, num_off = server.num_on, past - server.num_on  # before this round: transitions out of each state
        kept_on, kept_off = stayed_on / jnp.maximum(num_on, 1), stayed_off / jnp.maximum(num_off, 1)
        correlation = jnp.where((num_on > 0) & (num_off > 0), kept_on + kept_off - 1.0, 0.0)
        num_on = num_on + available
        excluded = exclude(
            jnp.where(known, excess, mean), correlation, num_on, facts.ids, facts.numbers["bias"],
            facts.numbers["tolerance"],
        )  # fmt: skip
        return HistoryServer(
            params=add(server.params, sums.fresh["update"], step),
            num_on=num_on.astype(jnp.int32),
            stayed_on=stayed_on.astype(jnp.int32),
            stayed_off=stayed_off.astype(jnp.int32),
            was_on=available,
            excess=excess,
            excluded=excluded & jnp.any(known),
        )

    return Algorithm(
        name="ca_fed",
        title="CA-Fed",
        paper="Rodio et al. 2023, Federated Learning under Heterogeneous and Correlated Client Availability",
        init_server=init_server,
        select=select,
        broadcast=broadcast,
        brief=brief,
        direction=weighted_direction(weighting),
        contribute=contribute,
        merge=merge,
        requires=("fixed_clients",),
        settings={**numbers, "weighting": weighting},
        numbers=numbers,
    )


def exclude(
    excess: jax.Array, correlation: jax.Array, num_on: jax.Array, ids: jax.Array, bias: Any, tolerance: Any
) -> jax.Array:
    """Return [N] which clients to exclude, by two greedy passes over all clients.

    Args:
        excess: l_i, [N].
        correlation: lambda_i, [N].
        num_on: A number per client that increases with pi_i, [N].
        ids: They break ties.
        bias: The weight of the bias.
        tolerance: The smallest decrease of J for which a client is excluded.
    """
    num_clients, worst = excess.shape[0], jnp.max(excess)

    def objective(total: jax.Array, count: jax.Array) -> jax.Array:
        return total / count + bias * worst * (1.0 - count / num_clients) ** 2

    def consider(
        included: tuple[jax.Array, jax.Array], client: tuple[jax.Array, jax.Array]
    ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        (total, count), (own, is_excluded) = included, client
        fewer = jnp.maximum(count - 1.0, 1.0)
        decrease = objective(total, count) - objective(total - own, fewer)
        leaves = ~is_excluded & (count > 1) & (decrease >= tolerance)
        total, count = jnp.where(leaves, total - own, total), jnp.where(leaves, fewer, count)
        return (total, count), is_excluded | leaves

    excluded = jnp.zeros(num_clients, bool)
    for order in (jnp.lexsort((ids, -jnp.abs(correlation))), jnp.lexsort((ids, num_on))):
        start = jnp.sum(jnp.where(excluded, 0.0, excess)), jnp.sum(~excluded).astype(jnp.float32)
        _, decided = lax.scan(consider, start, (excess[order], excluded[order]))
        excluded = excluded.at[order].set(decided)
    return excluded
