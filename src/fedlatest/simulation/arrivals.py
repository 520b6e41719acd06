"""Asynchronous algorithms: clients that start and arrive at any time, in one compiled loop over the arrivals.

M clients are at work, each in a slot of `Flight`. A server step takes `Algorithm.buffer` arrivals, one after the other,
and ends with the merge. Between arrivals, time passes:

    1. clients that failed leave their slots
    2. free slots are filled with available clients, which train with the current model; their uploads wait in the slots
    3. time moves on to the next arrival or, while slots are free, to the next change of availability

All arrivals of a moment are processed before clients start at that moment. Among them, clients that started earlier
come first, then lower slots. A client trains when it starts, because it sees the model of that time and nothing later.

Axes: [N] clients, [M] slots, [B] the arrivals of a step.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedlatest.algorithms.base import NEVER, ClientState, Cohort, Contribution, Parts, RoundFacts, Sums
from fedlatest.simulation.client_rows import accumulate, read_rows, replace_rows
from fedlatest.simulation.clock import (
    NO_LIMIT,
    Now,
    availability_round,
    finish_times,
    later,
    until_next_round,
)
from fedlatest.simulation.device_data import DeviceData
from fedlatest.simulation.flight import Flight
from fedlatest.simulation.local_training import all_finite, batch_rows, client_facts, train_locally
from fedlatest.simulation.program import (
    NOBODY_AVAILABLE,
    NOT_FINITE,
    Program,
    Record,
    State,
    Trial,
    client_types,
    initial_client,
    round_facts,
)
from fedlatest.simulation.row_storage import RowTypes

MAX_IDLE_ROUNDS = 10**6  # times that the clients at work change without one that will arrive, after which a run fails
MAX_NOW = 2**30  # seconds; time does not pass beyond it, so that 32 bits are enough


class _Step(NamedTuple):
    """What changes while the arrivals of a step are processed."""

    now: Now
    flight: Flight
    clients: ClientState  # [N, ...]
    last_round: jax.Array  # [N]
    fresh: Parts
    delta: Parts
    discount: jax.Array
    arrivals: Cohort  # [B]
    bad_client: jax.Array  # id of the first client whose upload is not finite, or NEVER


def run_step(program: Program, data: DeviceData, trial: Trial, state: State) -> tuple[State, Record]:
    """Process the arrivals of one server step and merge them."""
    algorithm, round, size = program.algorithm, state.round, program.algorithm.buffer
    types = client_types(program, state.server.params)
    assert size is not None
    assert state.now is not None
    assert state.flight is not None
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:], leaf.dtype), state.flight.uploads.fresh)
    begin = _Step(
        now=state.now,
        flight=state.flight,
        clients=state.clients,
        last_round=state.last_round,
        fresh=nothing,
        delta=jax.tree.map(jnp.zeros_like, state.total),
        discount=jnp.float32(0),
        arrivals=Cohort(jnp.zeros(size, jnp.int32), jnp.zeros(size, bool)),
        bad_client=jnp.int32(NEVER),
    )

    def receive(number: jax.Array, step: _Step) -> _Step:
        # After a failure, or if nobody arrived before, nobody arrives any more.
        waits = (state.failure == 0) & ((number == 0) | step.arrivals.mask[number - 1])
        now, flight = _wait(program, data, trial, state, step.now, step.flight, waits)
        return _receive(program, data, trial, state, types, number, step._replace(now=now, flight=flight))

    step = lax.fori_loop(0, size, receive, begin)
    clients, delta, last_round = step.clients, step.delta, step.last_round
    if algorithm.max_age is not None:
        clients, delta, last_round = _forget_old(types, algorithm.max_age, round, clients, delta, last_round)
    total, num = accumulate(state.total, delta), jnp.sum(step.arrivals.mask, dtype=jnp.int32)
    weights = jnp.where(step.arrivals.mask, data.weights[step.arrivals.clients], 0.0)
    sums = Sums(step.fresh, delta, total, num, jnp.sum(weights), step.discount)
    arrivals = _once_each(step.arrivals)
    when = availability_round(program.clock, trial.clock, step.now, round)
    available = trial.availability.available(when, trial.seed)
    facts = round_facts(program, data, trial, state)._replace(available=available, cohort=arrivals)
    server = algorithm.merge(state.server, sums, facts._replace(last_round=last_round))
    fails = (state.failure == 0) & ((step.bad_client != NEVER) | (num < size))
    staleness = round - last_round
    after = state._replace(
        round=round + 1,
        server=server,
        clients=clients,
        total=total,
        last_round=last_round,
        failure=jnp.where(fails, jnp.where(num < size, NOBODY_AVAILABLE, NOT_FINITE), state.failure),
        failed_round=jnp.where(fails, round, state.failed_round),
        failed_client=jnp.where(fails, step.bad_client, state.failed_client),
        now=step.now,
        flight=step.flight,
    )
    mean_staleness, max_staleness = jnp.mean(staleness.astype(jnp.float32)), jnp.max(staleness)
    return after, Record(jnp.sum(available), num, mean_staleness, max_staleness, arrivals, step.now)


def _wait(
    program: Program, data: DeviceData, trial: Trial, state: State, now: Now, flight: Flight, waits: jax.Array
) -> tuple[Now, Flight]:
    """Let time pass until a client arrives, if `waits` is true; clients start in the meantime."""
    assert trial.clock is not None
    clock, start = trial.clock, partial(_start, program, data, trial, state)

    def goes_on(carry: tuple[Now, Flight, jax.Array]) -> jax.Array:
        now, flight, idle = carry
        return waits & ~jnp.any(_arrives(flight)) & (idle < MAX_IDLE_ROUNDS) & (now.seconds < MAX_NOW)

    def pass_time(carry: tuple[Now, Flight, jax.Array]) -> tuple[Now, Flight, jax.Array]:
        now, flight, idle = carry
        flight = flight._replace(is_busy=flight.is_busy & ~(flight.fails & (flight.left == 0)))
        flight = start(now, flight)
        next_event = jnp.min(jnp.where(flight.is_busy, flight.left, NO_LIMIT))
        change = jnp.where(jnp.all(flight.is_busy), NO_LIMIT, until_next_round(clock, now))
        elapsed = jnp.minimum(next_event, change)
        moved = flight._replace(left=jnp.where(flight.is_busy, flight.left - elapsed, 0))
        will_arrive = flight.is_busy & ~flight.fails
        return later(now, elapsed), moved, jnp.where(jnp.any(will_arrive), 0, idle + 1)

    now, flight, _ = lax.while_loop(goes_on, pass_time, (now, flight, jnp.int32(0)))
    return now, flight


def _arrives(flight: Flight) -> jax.Array:
    """Return whose uploads arrive now, [M]."""
    return flight.is_busy & ~flight.fails & (flight.left == 0)


def _start(program: Program, data: DeviceData, trial: Trial, state: State, now: Now, flight: Flight) -> Flight:
    """Start available clients in the free slots: draw when they will finish, and train them."""
    plan = partial(_plan_start, program, data, trial, state, now)
    without = flight._replace(uploads=Contribution())  # XLA would copy the uploads of all slots for the branch
    starts, planned = lax.cond(
        jnp.all(flight.is_busy), lambda flight: (jnp.zeros_like(flight.is_busy), flight), plan, without
    )
    facts, dispatch = round_facts(program, data, trial, state), flight.dispatches
    algorithm, nth = program.algorithm, jnp.cumsum(starts)
    broadcast, own = algorithm.broadcast(state.server), initial_client(algorithm, state.server.params)

    def train(number: jax.Array, uploads: Contribution) -> Contribution:
        slot = jnp.argmax(nth > number)
        client = planned.clients[slot]
        rows = batch_rows(
            data, client, round=dispatch, seed=trial.seed, num_steps=program.num_steps, batch_size=program.batch_size
        )
        about = client_facts(facts, data, client, {})._replace(round=dispatch)
        local = train_locally(
            algorithm, program.loss, data, broadcast, own, rows, about, program.client_optimizer,
            program.native_training, program.augmentation,
        )  # fmt: skip
        upload = algorithm.contribute(broadcast, local, own, about)
        return jax.tree.map(lambda leaf, new: leaf.at[slot].set(new), uploads, upload)

    return planned._replace(uploads=lax.fori_loop(0, jnp.sum(starts), train, flight.uploads))


def _plan_start(
    program: Program, data: DeviceData, trial: Trial, state: State, now: Now, flight: Flight
) -> tuple[jax.Array, Flight]:
    """Return in which slots clients start, [M], and who they are and when they finish; nobody trains yet."""
    assert program.clock is not None
    assert trial.clock is not None
    when = availability_round(program.clock, trial.clock, now, state.round)
    at_work = jnp.zeros(data.ids.shape[0], bool).at[flight.clients].max(flight.is_busy)
    available = trial.availability.available(when, trial.seed) & ~at_work
    facts = round_facts(program, data, trial, state)._replace(round=flight.dispatches, last_round=flight.last_start)
    is_free = ~flight.is_busy
    first = partial(_first_clients, program, state.server, available, facts)
    every = partial(first, program.cohort_size)
    # Often one slot is free, and one client is found faster than a hundred.
    chosen, num_chosen = lax.cond(jnp.sum(is_free) == 1, partial(first, 1), every) if program.branches else every()
    rank = jnp.cumsum(is_free) - 1  # of each free slot among them
    starts = is_free & (rank < num_chosen)
    clients = jnp.where(starts, chosen[rank], flight.clients)
    finish = finish_times(
        program.clock, trial.clock, trial.availability, now, seed=trial.seed, event=flight.dispatches, clients=clients,
        ids=data.ids[clients], mask=starts,
    )  # fmt: skip

    def replace(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(starts, new, old)

    started = jnp.where(starts, flight.dispatches, NEVER)
    return starts, flight._replace(
        dispatches=flight.dispatches + 1,
        last_start=flight.last_start.at[clients].max(started),
        clients=clients,
        is_busy=flight.is_busy | starts,
        fails=replace(finish.fails, flight.fails),
        left=replace(finish.milliseconds, flight.left),
        dispatch=replace(flight.dispatches, flight.dispatch),
        version=replace(state.round, flight.version),
    )


def _first_clients(
    program: Program, server: Any, available: jax.Array, facts: RoundFacts, size: int
) -> tuple[jax.Array, jax.Array]:
    """Return the clients that should start first, [M], and how many of them there are, at most `size`."""
    cohort = program.algorithm.select(server, available, facts._replace(cohort_size=size))
    clients = cohort.clients[jnp.argsort(~cohort.mask, stable=True)]
    return jnp.pad(clients, (0, program.cohort_size - clients.shape[0])), jnp.sum(cohort.mask)


def _receive(
    program: Program,
    data: DeviceData,
    trial: Trial,
    state: State,
    types: RowTypes,
    number: jax.Array,
    step: _Step,
) -> _Step:
    """Add the first upload that arrives now to the sums, and free its slot."""
    flight, arrives = step.flight, _arrives(step.flight)
    exists = jnp.any(arrives)  # not if nobody became available
    slot = jnp.argmin(jnp.where(arrives, flight.dispatch, NO_LIMIT))
    client, version = flight.clients[slot], flight.version[slot]
    upload: Contribution = jax.tree.map(lambda leaf: leaf[slot], flight.uploads)
    discount = program.algorithm.discount
    factor = jnp.float32(1.0 if discount is None else discount(state.round - version, trial.numbers))

    def add(total: jax.Array, part: jax.Array) -> jax.Array:
        return jnp.where(exists, total + factor * part, total).astype(total.dtype)

    one = Cohort(client[None], exists[None])
    old = read_rows(step.clients, one.clients, types)
    new = ClientState(remembered=jax.tree.map(lambda leaf: leaf[None], upload.remembered))
    clients, delta = replace_rows(step.clients, one, old, new, step.delta, types)
    is_bad = exists & ~all_finite(upload) & (step.bad_client == NEVER)
    return step._replace(
        flight=flight._replace(is_busy=flight.is_busy.at[slot].set(flight.is_busy[slot] & ~exists)),
        clients=clients,
        last_round=step.last_round.at[client].max(jnp.where(exists, version, NEVER)),
        fresh=jax.tree.map(add, step.fresh, upload.fresh),
        delta=delta,
        discount=step.discount + jnp.where(exists, factor, 0.0),
        arrivals=Cohort(step.arrivals.clients.at[number].set(client), step.arrivals.mask.at[number].set(exists)),
        bad_client=jnp.where(is_bad, data.ids[client], step.bad_client),
    )


def _forget_old(
    types: RowTypes, max_age: int, round: jax.Array, rows: ClientState, delta: Parts, last_round: jax.Array
) -> tuple[ClientState, Parts, jax.Array]:
    """Replace the remembered parts of clients that started too long ago by zeros; these count as not seen yet."""

    def is_old(last_round: jax.Array) -> jax.Array:
        return (last_round != NEVER) & (round - last_round > max_age)

    def forget(carry: tuple[ClientState, Parts, jax.Array]) -> tuple[ClientState, Parts, jax.Array]:
        rows, delta, last_round = carry
        client = jnp.argmax(is_old(last_round)).astype(jnp.int32)
        one = Cohort(client[None], jnp.ones(1, bool))
        old = read_rows(rows, one.clients, types)
        zeros = ClientState(remembered=jax.tree.map(jnp.zeros_like, old.remembered))
        rows, delta = replace_rows(rows, one, old, zeros, delta, types)
        return rows, delta, last_round.at[client].set(NEVER)

    return lax.while_loop(lambda carry: jnp.any(is_old(carry[2])), forget, (rows, delta, last_round))


def _once_each(arrivals: Cohort) -> Cohort:
    """Return the arrivals without those of a client that arrives again later in the same step."""
    size = arrivals.clients.shape[0]
    same = (arrivals.clients[:, None] == arrivals.clients[None, :]) & arrivals.mask[None, :]
    later_slot = jnp.arange(size)[None, :] > jnp.arange(size)[:, None]
    return arrivals._replace(mask=arrivals.mask & ~jnp.any(same & later_slot, axis=1))
