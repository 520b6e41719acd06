"""One round as a pure function, and a block of rounds: selection, local training, memory, merge.

Axes: [N, ...] all clients, [K, ...] the cohort's slots. The cohort is trained a few clients at a time, so that what is
in hand stays in the cache of a CPU; memory is added to in place.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedlatest.algorithms.base import (
    Algorithm,
    ClientFacts,
    Cohort,
    Contribution,
    Params,
    RoundFacts,
    Sums,
    add,
)
from fedlatest.availability import Availability
from fedlatest.simulation.local_training import DeviceData, LossOfBatch, batch_rows, train

NEVER = -1


@dataclass(frozen=True)
class Rules:
    """What a compiled round is specialised to."""

    algorithm: Algorithm
    loss: LossOfBatch
    cohort_size: int
    num_steps: int
    batch_size: int
    clients_at_once: int


class Lane(NamedTuple):
    """What may differ between runs that share a compiled round: one seed of one experiment."""

    seed: jax.Array
    availability: Availability
    learning_rate: jax.Array
    numbers: Mapping[str, jax.Array]  # the algorithm's


class State(NamedTuple):
    """Everything a run carries from round to round."""

    round: jax.Array
    server: Any
    memory: Contribution  # remembered parts, each [N, ...]: u_i
    total: Contribution  # their sum, kept by differences as the server keeps it: N u
    last_round: jax.Array  # [N] R_i
    failed_round: jax.Array  # first round with a contribution that was not finite, or NEVER
    failed_client: jax.Array  # id of the client


class Record(NamedTuple):
    """What is noted of a round."""

    num_available: jax.Array
    cohort_size: jax.Array
    mean_staleness: jax.Array  # after the selection, over all N
    max_staleness: jax.Array
    cohort: Cohort


class CohortSums(NamedTuple):
    """What training the cohort yields, summed up chunk by chunk."""

    memory: Contribution
    fresh: Contribution
    delta: Contribution


def start(rules: Rules, params: Params, num_clients: int) -> State:
    """The state before round 0: no client has been seen, every stored update is 0."""
    remembered, _ = _split(_like_contribution(rules.algorithm, params), rules.algorithm.remembers)
    return State(
        round=jnp.int32(0),
        server=rules.algorithm.init(params, num_clients),
        memory=jax.tree.map(lambda leaf: jnp.zeros((num_clients, *leaf.shape), leaf.dtype), remembered),
        total=remembered,
        last_round=jnp.full(num_clients, NEVER, jnp.int32),
        failed_round=jnp.int32(NEVER),
        failed_client=jnp.int32(NEVER),
    )


def play_block(rules: Rules, samples: DeviceData, lane: Lane, state: State, num_rounds: int) -> tuple[State, Record]:
    """`num_rounds` rounds in one program; records are stacked [rounds, ...]."""
    return lax.scan(lambda state, _: play_round(rules, samples, lane, state), state, length=num_rounds)


def play_round(rules: Rules, samples: DeviceData, lane: Lane, state: State) -> tuple[State, Record]:
    """One round of any algorithm; samples and lane are arguments, never constants of the program."""
    round, num_clients = state.round, samples.ids.shape[0]
    available = lane.availability.available(round, lane.seed)
    sizes = (num_clients, rules.cohort_size)
    facts = RoundFacts(round, lane.seed, *sizes, samples.ids, state.last_round, lane.numbers, total_weight=num_clients)
    cohort = rules.algorithm.select(state.server, available, facts)
    last_round = state.last_round.at[cohort.clients].max(jnp.where(cohort.mask, round, NEVER), unique_indices=True)

    harvest, broken = _train_cohort(rules, samples, lane, state, cohort)
    sums = Sums(
        fresh=harvest.fresh,
        delta=harvest.delta,
        total=add(state.total, harvest.delta),
        num=jnp.sum(cohort.mask),
        weight=jnp.sum(jnp.where(cohort.mask, samples.weights[cohort.clients], 0.0)),
    )
    failing = (state.failed_round == NEVER) & jnp.any(broken)
    staleness = round - last_round
    after = State(
        round=round + 1,
        server=rules.algorithm.merge(state.server, sums, facts),
        memory=harvest.memory,
        total=sums.total,
        last_round=last_round,
        failed_round=jnp.where(failing, round, state.failed_round),
        failed_client=jnp.where(failing, samples.ids[cohort.clients[jnp.argmax(broken)]], state.failed_client),
    )
    record = Record(jnp.sum(available), sums.num, jnp.mean(staleness.astype(jnp.float32)), jnp.max(staleness), cohort)
    return after, record


def average_error(state: State) -> jax.Array:
    """The audit: L2 norm of u - (1/N) sum of the stored updates, which the paper's invariant says is 0."""

    def squared(total: jax.Array, memory: jax.Array) -> jax.Array:
        num_clients = memory.shape[0]
        return jnp.sum((total / num_clients - jnp.mean(memory, axis=0)) ** 2)

    return jnp.sqrt(sum(jax.tree.leaves(jax.tree.map(squared, state.total, state.memory)), jnp.float32(0)))


def _train_cohort(
    rules: Rules, samples: DeviceData, lane: Lane, state: State, cohort: Cohort
) -> tuple[CohortSums, jax.Array]:
    """Train everyone in the cohort, `clients_at_once` at a time; also says whose contribution is not finite [K]."""
    nothing = _like_contribution(rules.algorithm, state.server.params)
    remembered, fresh = _split(nothing, rules.algorithm.remembers)
    harvest = CohortSums(state.memory, fresh, remembered)

    def visit(harvest: CohortSums, slots: Cohort) -> tuple[CohortSums, jax.Array]:
        old = jax.tree.map(lambda leaf: leaf[slots.clients], harvest.memory)
        new = jax.vmap(lambda client, memory: _visit_client(rules, samples, lane, state, client, memory))(
            slots.clients, old
        )
        remembered, fresh = _split(new, rules.algorithm.remembers)
        change = _masked(slots.mask, jax.tree.map(jnp.subtract, remembered, old))
        memory = jax.tree.map(
            lambda leaf, delta: leaf.at[slots.clients].add(delta, unique_indices=True), harvest.memory, change
        )
        sums = add(harvest.fresh, _sum(_masked(slots.mask, fresh))), add(harvest.delta, _sum(change))
        sums = lax.optimization_barrier(sums)  # or XLA would sum twice, once to look for NaN
        broken = lax.cond(_finite(sums), lambda: jnp.zeros_like(slots.mask), lambda: ~jax.vmap(_finite)(new))
        return CohortSums(memory, *sums), slots.mask & broken

    whole = len(cohort.clients) // rules.clients_at_once * rules.clients_at_once
    chunks = jax.tree.map(lambda leaf: leaf[:whole].reshape(-1, rules.clients_at_once), cohort)
    harvest, broken = lax.scan(visit, harvest, chunks)
    if whole == len(cohort.clients):
        return harvest, broken.reshape(-1)
    harvest, rest = visit(harvest, jax.tree.map(lambda leaf: leaf[whole:], cohort))
    return harvest, jnp.concatenate([broken.reshape(-1), rest])


def _visit_client(
    rules: Rules, samples: DeviceData, lane: Lane, state: State, client: jax.Array, memory: Contribution
) -> Contribution:
    facts = ClientFacts(
        state.round, samples.ids[client], samples.weights[client], rules.num_steps, lane.numbers, lane.seed
    )
    rows = batch_rows(
        samples, client, round=state.round, seed=lane.seed, num_steps=rules.num_steps, batch_size=rules.batch_size
    )
    return train(rules.algorithm, rules.loss, samples, state.server.params, memory, rows, facts, lane.learning_rate)


def _like_contribution(algorithm: Algorithm, params: Params) -> Contribution:
    """A contribution of zeros, its shape read off the algorithm without running it."""

    def blank(params: Params) -> Contribution:
        facts = ClientFacts(jnp.int32(0), jnp.int32(0), jnp.float32(1), 1, algorithm.numbers)
        return algorithm.contribute(params, params, {}, facts)

    shapes = jax.eval_shape(blank, params)
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def _split(contribution: Contribution, names: tuple[str, ...]) -> tuple[Contribution, Contribution]:
    """The named parts, and the others."""
    others = {part: tree for part, tree in contribution.items() if part not in names}
    return {part: contribution[part] for part in names}, others


def _masked(mask: jax.Array, tree: Any) -> Any:
    """[K, ...] with zeros in the slots that are not real, whatever stood there."""
    return jax.tree.map(lambda leaf: jnp.where(mask.reshape(-1, *[1] * (leaf.ndim - 1)), leaf, 0), tree)


def _sum(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), tree)


def _finite(tree: Any) -> jax.Array:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))
