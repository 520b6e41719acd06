"""Asynchronous algorithms: clients that start and arrive at any time, in one compiled loop over the arrivals.

M clients are at work, each in a slot of `Flight`. A server step takes `Algorithm.buffer` arrivals, one after the other,
and ends with the merge. Between arrivals, time passes:

    1. clients that failed leave their slots
    2. free slots are filled with available clients, one by one
    3. time moves on to the next arrival or, while slots are free, to the next change of availability

All arrivals of a moment are processed before clients start at that moment. Among them, clients that started earlier
come first, then lower slots. Clients train before the next arrival is processed, because they see the model of the time
at which they started and nothing later; their uploads wait in the slots.

Axes: [N] clients, [M] slots, [B] the arrivals of a step.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedlatest.algorithms.base import NEVER, ClientState, Cohort, Contribution, Parts, RoundFacts, Sums
from fedlatest.errors import ConfigError
from fedlatest.simulation.client_rows import accumulate, read_rows, replace_rows
from fedlatest.simulation.clock import (
    NO_LIMIT,
    Now,
    availability_round,
    finish_times,
    later,
    until_end,
    until_next_round,
)
from fedlatest.simulation.device_data import DeviceData
from fedlatest.simulation.flight import Flight
from fedlatest.simulation.local_training import all_finite, batch_rows, client_facts, train_locally
from fedlatest.simulation.program import (
    INVALID_COHORT,
    NOBODY_AVAILABLE,
    NOT_FINITE,
    TRIALS,
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
    is_valid: jax.Array  # whether `select` has returned only available clients


def run_step(program: Program, data: DeviceData, trial: Trial, state: State) -> tuple[State, Record]:
    """Process the arrivals of one server step and merge them; if too few arrive, the server's state stays as it is."""
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
        is_valid=jnp.bool_(True),
    )

    def receive(number: jax.Array, step: _Step) -> _Step:
        # After a failure, or if nobody arrived before, nobody arrives any more.
        waits = (state.failure == 0) & ((number == 0) | step.arrivals.mask[number - 1])
        step, started = _wait(program, data, trial, state, step, waits)
        flight = _train_started(program, data, trial, state, step.flight, started)
        return _receive(program, data, trial, state, types, number, step._replace(flight=flight))

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
    merged = algorithm.merge(state.server, sums, facts._replace(last_round=last_round))
    server = jax.tree.map(lambda new, old: jnp.where(num == size, new, old), merged, state.server)
    failure = jnp.where(step.bad_client != NEVER, NOT_FINITE, 0)
    failure = jnp.where(num < size, NOBODY_AVAILABLE, failure)
    failure = jnp.where(step.is_valid, failure, INVALID_COHORT)
    fails = (state.failure == 0) & (failure != 0)
    staleness = round - last_round
    after = state._replace(
        round=round + 1,
        server=server,
        clients=clients,
        total=total,
        last_round=last_round,
        failure=jnp.where(fails, failure, state.failure),
        failed_round=jnp.where(fails, round, state.failed_round),
        failed_client=jnp.where(fails, step.bad_client, state.failed_client),
        now=step.now,
        flight=step.flight,
    )
    mean_staleness, max_staleness = jnp.mean(staleness.astype(jnp.float32)), jnp.max(staleness)
    return after, Record(jnp.sum(available), num, mean_staleness, max_staleness, arrivals, step.now)


class _Wait(NamedTuple):
    """What changes while the server waits for an arrival."""

    now: Now
    flight: Flight  # without the uploads: these are written once the server has stopped waiting
    started: jax.Array  # [M] slots in which clients have started
    is_filling: jax.Array  # whether another client may start at this moment
    idle: jax.Array  # how often time has passed without a client that will arrive
    is_valid: jax.Array  # whether `select` has returned only available clients


def _wait(
    program: Program, data: DeviceData, trial: Trial, state: State, step: _Step, waits: jax.Array
) -> tuple[_Step, jax.Array]:
    """Let time pass until a client arrives, if `waits` is true; also return in which slots clients started, [M].

    Nobody arrives after the end of the run's virtual time, or if nobody will be available any more.
    """
    assert trial.clock is not None
    end = jnp.minimum(trial.clock.until, MAX_NOW)

    def goes_on(wait: _Wait) -> jax.Array:
        is_over = jnp.any(_arrives(wait.flight)) | (wait.idle >= MAX_IDLE_ROUNDS) | (wait.now.seconds >= end)
        return waits & (wait.is_filling | ~is_over)

    begin = _Wait(
        now=step.now,
        flight=step.flight._replace(uploads=Contribution()),
        started=jnp.zeros_like(step.flight.is_busy),
        is_filling=jnp.bool_(False),
        idle=jnp.int32(0),
        is_valid=step.is_valid,
    )
    wait = lax.while_loop(goes_on, partial(_pass_time, program, data, trial, state), begin)
    flight = wait.flight._replace(uploads=step.flight.uploads)
    return step._replace(now=wait.now, flight=flight, is_valid=wait.is_valid), wait.started


def _pass_time(program: Program, data: DeviceData, trial: Trial, state: State, wait: _Wait) -> _Wait:
    """Start one client if there is a free slot for it; if no other can start now, move on to the next event."""
    assert program.clock is not None
    assert trial.clock is not None
    now, flight = wait.now, wait.flight
    flight = flight._replace(is_busy=flight.is_busy & ~(flight.fails & (flight.left == 0)))
    num_free = jnp.sum(~flight.is_busy, dtype=jnp.int32)
    slot = jnp.argmin(flight.is_busy)  # the first that is free
    at_work = jnp.zeros(data.ids.shape[0], bool).at[flight.clients].max(flight.is_busy)
    when = availability_round(program.clock, trial.clock, now, state.round)
    available = trial.availability.available(when, trial.seed) & ~at_work
    facts = round_facts(program, data, trial, state)
    facts = facts._replace(round=flight.dispatches, last_round=flight.last_start, cohort_size=1)
    client, is_real = _first_client(program, state.server, available, facts)
    in_range = (client >= 0) & (client < data.ids.shape[0])
    starts = is_real & (num_free > 0)
    finish = finish_times(
        program.clock, trial.clock, trial.availability, now, seed=trial.seed, event=flight.dispatches,
        clients=client[None], ids=data.ids[client][None], mask=starts[None],
    )  # fmt: skip
    can_fill = starts & (num_free > 1) & (jnp.sum(available) > 1)

    def put(values: jax.Array, new: jax.Array) -> jax.Array:
        return values.at[slot].set(jnp.where(starts, new, values[slot]))

    flight = flight._replace(
        dispatches=flight.dispatches + (~can_fill & (num_free > 0)).astype(jnp.int32),
        starts=flight.starts + starts,
        last_start=flight.last_start.at[client].max(jnp.where(starts, flight.dispatches, NEVER)),
        clients=put(flight.clients, client),
        is_busy=put(flight.is_busy, jnp.bool_(True)),
        fails=put(flight.fails, finish.fails[0]),
        left=put(flight.left, finish.milliseconds[0]),
        dispatch=put(flight.dispatch, flight.dispatches),
        version=put(flight.version, state.round),
    )
    next_event = jnp.min(jnp.where(flight.is_busy, flight.left, NO_LIMIT))
    change = jnp.where(num_free > starts, until_next_round(trial.clock, now), NO_LIMIT)
    elapsed = jnp.where(can_fill, 0, jnp.minimum(jnp.minimum(next_event, change), until_end(trial.clock, now)))
    flight = flight._replace(left=jnp.where(flight.is_busy, flight.left - elapsed, 0))
    return _Wait(
        now=later(now, elapsed),
        flight=flight,
        started=wait.started.at[slot].max(starts),
        is_filling=can_fill,
        idle=jnp.where(jnp.any(flight.is_busy & ~flight.fails), 0, wait.idle + 1),
        is_valid=wait.is_valid & (~is_real | (in_range & available[client])),
    )


def _arrives(flight: Flight) -> jax.Array:
    """Return whose uploads arrive now, [M]."""
    return flight.is_busy & ~flight.fails & (flight.left == 0)


def _first_client(
    program: Program, server: Any, available: jax.Array, facts: RoundFacts
) -> tuple[jax.Array, jax.Array]:
    """Return the client that should start first, and whether there is one."""
    cohort = program.algorithm.select(server, available, facts)
    if jnp.shape(cohort.clients) != (1,) or jnp.shape(cohort.mask) != (1,):
        raise ConfigError(
            f"algorithm {program.algorithm.name}: select returns clients of shape {jnp.shape(cohort.clients)} and a "
            f"mask of shape {jnp.shape(cohort.mask)} for a cohort_size of 1; both must be (1,)"
        )
    return cohort.clients[0], cohort.mask[0]


def _train_started(
    program: Program, data: DeviceData, trial: Trial, state: State, flight: Flight, started: jax.Array
) -> Flight:
    """Train the clients that have started, one after the other; they have all received the current model."""
    algorithm, facts = program.algorithm, round_facts(program, data, trial, state)
    broadcast, own = algorithm.broadcast(state.server), initial_client(algorithm, state.server.params)

    def train(_: jax.Array, carry: tuple[Contribution, jax.Array]) -> tuple[Contribution, jax.Array]:
        uploads, left = carry
        slot = jnp.argmax(left)
        client, dispatch = flight.clients[slot], flight.dispatch[slot]
        rows = batch_rows(
            data, client, round=dispatch, seed=trial.seed, num_steps=program.num_steps, batch_size=program.batch_size
        )
        about = client_facts(facts, data, client, {})._replace(round=dispatch)
        local = train_locally(
            algorithm, program.loss, data, broadcast, own, rows, about, program.client_optimizer,
            program.native_training, program.augmentation,
        )  # fmt: skip
        upload = algorithm.contribute(broadcast, local, own, about)

        def put(leaf: jax.Array, new: jax.Array) -> jax.Array:
            # Side by side with another trial that has more clients to train, this one may have none left.
            return leaf.at[slot].set(jnp.where(left[slot], new, leaf[slot]) if program.side_by_side else new)

        return jax.tree.map(put, uploads, upload), left.at[slot].set(False)

    count = jnp.sum(started, dtype=jnp.int32)
    if program.side_by_side:  # a number that all trials share, or XLA would copy the uploads of those that are done
        count = lax.pmax(count, TRIALS)
    uploads, _ = lax.fori_loop(0, count, train, (flight.uploads, started))
    return flight._replace(uploads=uploads)


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
