"""One round as a pure function, a block of rounds, and the compiled functions of the engine that use them.

Axes: [N, ...] all clients, [K, ...] the cohort's slots. A round is `select_cohort` followed by `finish_round`, between
which rows that are not on the device can be fetched. With several devices (`Program.num_devices`), these functions run
on each of them (see `sharding.py`): the rows [N, ...] of client states are then those of its own clients.

The static arguments of compiled functions are compared by value: equal programs compile once per process, and a later
process finds them on disk. Functions named `..._trials` are not compiled themselves; programs for several devices share
them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedlatest.algorithms.base import NEVER, ClientState, Cohort, Parts, Sums
from fedlatest.errors import ConfigError
from fedlatest.identity import ByValue
from fedlatest.simulation.arrivals import run_step
from fedlatest.simulation.client_rows import accumulate, mean_of_remembered
from fedlatest.simulation.clock import Now, availability_round, close_round, finish_times, later, until_next_round
from fedlatest.simulation.device_data import DeviceData
from fedlatest.simulation.evaluation import Score, evaluate
from fedlatest.simulation.host_rows import HostRows
from fedlatest.simulation.joint_data import select
from fedlatest.simulation.local_training import Chunk, all_finite, train_cohort, update_after_merge
from fedlatest.simulation.private_rounds import add_noise, within_limits
from fedlatest.simulation.program import (
    INVALID_COHORT,
    MODEL_NOT_FINITE,
    NOT_FINITE,
    TRIALS,
    Program,
    Record,
    State,
    Trial,
    client_types,
    initial_client,
    initial_state,
    round_facts,
)
from fedlatest.simulation.row_storage import encode, find_rows
from fedlatest.simulation.sharding import mean_of_rows
from fedlatest.simulation.traffic import Traffic, add_traffic, round_traffic, step_traffic
from fedlatest.streams import Purpose, bits

PAIRWISE_COHORT = 256  # up to this size, distinct positions are checked by comparing all pairs


class Selection(NamedTuple):
    """Who is available in a round, and who takes part."""

    available: jax.Array  # [N]
    cohort: Cohort
    end: Now | None = None  # the virtual time at the end of the round; None without it
    traffic: Traffic | None = None  # of the round; None without virtual time


def run_block(
    program: Program,
    data: DeviceData,
    trial: Trial,
    state: State,
    *,
    length: int,
    num_rounds: jax.Array | None = None,
    observe: Callable[[DeviceData, State], Any] | None = None,
) -> tuple[State, tuple[Record, Any]]:
    """Run rounds in one loop; records and observations are stacked [length, ...].

    Args:
        program: What the rounds are specialised to.
        data: The federation's samples.
        trial: The trial's numbers.
        state: The state before the first round.
        length: The number of rounds, part of the compiled program.
        num_rounds: Run only this many of the `length` rounds (a traced number); the others leave the state unchanged.
        observe: A function of (data, state before a round) whose results are returned beside the records.
    """

    def step(state: State, number: jax.Array) -> tuple[State, tuple[Record, Any]]:
        after, record = run_round(program, data, trial, state)
        if num_rounds is not None:
            after = jax.tree.map(lambda new, old: jnp.where(number < num_rounds, new, old), after, state)
        return after, (record, None if observe is None else observe(data, state))

    return lax.scan(step, state, jnp.arange(length, dtype=jnp.int32))


def run_round(program: Program, data: DeviceData, trial: Trial, state: State) -> tuple[State, Record]:
    """Run one round of any algorithm; data and trial are arguments, never constants of the program.

    A round of an asynchronous algorithm is a server step.
    """
    if program.algorithm.buffer is not None:
        after, record = run_step(program, data, trial, state)
        assert state.flight is not None
        assert after.flight is not None
        new = step_traffic(state.flight, after.flight, record.cohort_size, buffer=program.algorithm.buffer)
        traffic = add_traffic(state.traffic, new)
        return after._replace(traffic=traffic), record._replace(traffic=traffic)
    return finish_round(program, data, trial, state, select_cohort(program, data, trial, state))


def select_cohort(program: Program, data: DeviceData, trial: Trial, state: State) -> Selection:
    """Return who is available in the next round, and the cohort that the algorithm selects.

    With differential privacy, clients that would exceed their limits of participation are not available.
    """
    when = availability_round(program.clock, trial.clock, state.now, state.round)
    available = trial.availability.available(when, trial.seed)
    if trial.privacy is not None:
        assert state.participations is not None
        available &= within_limits(trial.privacy, state.round, state.last_round, state.participations)
    facts = round_facts(program, data, trial, state)
    cohort = program.algorithm.select(state.server, available, facts)
    slots, marked = jnp.shape(cohort.clients), jnp.shape(cohort.mask)
    if slots != marked or len(slots) != 1 or slots[0] > program.cohort_size:
        raise ConfigError(
            f"algorithm {program.algorithm.name}: select returns clients of shape {slots}, a mask of shape {marked}; "
            f"both must be vectors of at most cohort_size={program.cohort_size}"
        )
    if program.clock is None:
        return Selection(available, cohort)
    return _wait_for_answers(program, data, trial, state, Selection(available, cohort))


def _wait_for_answers(
    program: Program, data: DeviceData, trial: Trial, state: State, selection: Selection
) -> Selection:
    """Return the selection without the clients that do not answer before the round ends, and when it ends.

    A round without any client takes no time, or, if availability follows the time, until that may change.
    """
    cohort, now = selection.cohort, state.now
    assert program.clock is not None
    assert trial.clock is not None
    assert now is not None
    finish = finish_times(
        program.clock, trial.clock, trial.availability, now, seed=trial.seed, event=state.round,
        clients=cohort.clients, ids=data.ids[cohort.clients], mask=cohort.mask,
    )  # fmt: skip
    answered, elapsed = close_round(trial.clock, cohort, finish)
    if program.clock.by_time:
        elapsed = jnp.where(jnp.any(cohort.mask), elapsed, until_next_round(trial.clock, now))
    traffic = round_traffic(cohort, finish, answered)
    return Selection(selection.available, answered, later(now, elapsed), traffic)


def finish_round(
    program: Program, data: DeviceData, trial: Trial, state: State, selection: Selection
) -> tuple[State, Record]:
    """Train the cohort and merge its uploads.

    If the program's storage is off the device, `state.clients` holds the rows [K, ...] of the cohort alone.
    """
    algorithm, round, num_clients = program.algorithm, state.round, data.ids.shape[0]
    available, cohort, end, traffic = selection
    traffic = add_traffic(state.traffic, traffic)
    facts = round_facts(program, data, trial, state)._replace(available=available)
    last_round = state.last_round.at[cohort.clients].max(jnp.where(cohort.mask, round, NEVER), unique_indices=True)
    slots, rows = find_rows(program.storage, state.slots, cohort)
    whole = Chunk(cohort, rows)
    types = client_types(program, state.server.params)

    brief = {} if algorithm.brief is None else algorithm.brief(state.server, facts)
    trained, not_finite = train_cohort(program, data, trial, state, whole, types, facts, brief)
    total = accumulate(state.total, trained.delta)
    sums = Sums(
        fresh=trained.fresh,
        delta=_in_types_of(types.computed.remembered, trained.delta),
        total=_in_types_of(types.computed.remembered, total),
        num=jnp.sum(cohort.mask, dtype=jnp.int32),
        weight=jnp.sum(jnp.where(cohort.mask, data.weights[cohort.clients], 0.0)),
    )
    seen = sums if trial.privacy is None else add_noise(sums, trial.privacy, trial.seed, round)
    server = algorithm.merge(state.server, seen, facts._replace(cohort=cohort))
    clients = update_after_merge(program, data, facts, brief, whole, types, server, trained.clients)
    staleness = round - last_round
    after = State(round + 1, server, clients, total, last_round, state.failure, state.failed_round,
                  state.failed_client, slots, _count(state.participations, cohort), end, None, traffic)  # fmt: skip
    valid = _distinct(cohort.clients, num_clients) & jnp.all(available[cohort.clients] | ~cohort.mask)
    after = _note_failure(after, state, cohort, valid, not_finite, data.ids)
    mean_staleness, max_staleness = jnp.mean(staleness.astype(jnp.float32)), jnp.max(staleness)
    return after, Record(jnp.sum(available), sums.num, mean_staleness, max_staleness, cohort, end, traffic)


def average_error(state: State, stored: Parts | None = None, *, num_devices: int = 1) -> jax.Array:
    """Return the L2 norm of u - (1/N) sum_i u_i over the remembered parts, which the paper's invariant says is 0.

    Args:
        state: The state of a trial with all its rows.
        stored: The types to which the remembered parts are rounded; by default those of their sum.
        num_devices: Among how many devices the rows are divided.
    """
    num_clients = state.last_round.shape[0]
    if num_devices == 1:
        types = state.total if stored is None else stored
        means = mean_of_remembered(state.clients, types, state.total, num_clients)
    else:
        means = mean_of_rows(state.clients.remembered, num_clients=num_clients)

    def squared(total: jax.Array, mean: jax.Array) -> jax.Array:
        return jnp.sum((total / num_clients - mean) ** 2)

    parts = jax.tree.leaves(jax.tree.map(squared, state.total, means))
    return jnp.sqrt(sum(parts, jnp.float32(0)))


def _count(participations: jax.Array | None, cohort: Cohort) -> jax.Array | None:
    """Return the numbers of participations after a round, where they are counted."""
    if participations is None:
        return None
    return participations.at[cohort.clients].add(cohort.mask.astype(participations.dtype), unique_indices=True)


def _note_failure(
    after: State, before: State, cohort: Cohort, valid: jax.Array, not_finite: jax.Array, ids: jax.Array
) -> State:
    """Keep the first failure: a cohort that `select` must not return, or an upload that is not finite."""
    invalid, diverged = ~valid, jnp.any(not_finite)
    fails = (before.failure == 0) & (invalid | diverged)
    client = jnp.where(invalid, NEVER, ids[cohort.clients[jnp.argmax(not_finite)]])
    return after._replace(
        failure=jnp.where(fails, jnp.where(invalid, INVALID_COHORT, NOT_FINITE), before.failure),
        failed_round=jnp.where(fails, before.round, before.failed_round),
        failed_client=jnp.where(fails, client, before.failed_client),
    )


def _distinct(positions: jax.Array, num_clients: int) -> jax.Array:
    """Return whether the positions are distinct and in range(num_clients)."""
    in_range = jnp.all((positions >= 0) & (positions < num_clients))
    if positions.shape[0] <= PAIRWISE_COHORT:
        return in_range & (jnp.sum(positions[:, None] == positions[None, :]) == positions.shape[0])
    ordered = jnp.sort(positions)
    return in_range & jnp.all(ordered[1:] != ordered[:-1])


def note_final_model(state: State) -> State:
    """Note a model that is not finite although all uploads were, as the failure of the last round."""
    fails = (state.failure == 0) & ~all_finite(state.server.params)
    return state._replace(
        failure=jnp.where(fails, MODEL_NOT_FINITE, state.failure),
        failed_round=jnp.where(fails, state.round - 1, state.failed_round),
    )


def _in_types_of(like: Parts, sums: Parts) -> Parts:
    """Return sums of narrow floating-point numbers in the types in which the algorithm computes."""

    def narrowed(one: Any, part: jax.Array) -> jax.Array:
        return part.astype(one.dtype) if jnp.issubdtype(one.dtype, jnp.floating) else part

    return jax.tree.map(narrowed, like, sums)


@partial(jax.jit, static_argnames="init")
def initial_model(seed: jax.Array, *, init: ByValue) -> Any:
    """Return the initial model of a seed."""
    return init.value(initial_key(seed))


def initial_key(seed: jax.Array) -> jax.Array:
    """Return the random key of a seed's initial model."""
    return jax.random.key(bits(seed, Purpose.INITIAL_MODEL))


@partial(jax.jit, static_argnames=("program", "num_clients"))
def start(models: list[Any], *, program: Program, num_clients: int) -> State:
    """Return what `start_trials` returns, compiled."""
    return start_trials(models, program=program, num_clients=num_clients)


def start_trials(models: list[Any], *, program: Program, num_clients: int) -> State:
    """Return the states [trials, ...] before round 0 of trials with these initial models; not compiled."""
    return jax.vmap(lambda params: initial_state(program, params, num_clients))(_stacked(models))


@partial(jax.jit, static_argnames="program")
def start_clients(models: list[Any], *, program: Program) -> ClientState:
    """Return the state of a client before its first round, for each trial."""
    algorithm, storage = program.algorithm, program.storage
    states = jax.vmap(lambda params: storage.stored(initial_client(algorithm, params)))(_stacked(models))
    return jax.tree.map(encode, states)


def _stacked(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


@partial(jax.jit, static_argnames=("program", "num_rounds", "size", "shared_availability"), donate_argnames="state")
def advance(data: DeviceData, trials: Trial, state: State, **static: Any) -> tuple[State, Record]:
    """Return what `advance_trials` returns, compiled; the static arguments are its keyword arguments."""
    return advance_trials(data, trials, state, **static)


def advance_trials(
    data: DeviceData,
    trials: Trial,
    state: State,
    *,
    program: Program,
    num_rounds: int,
    size: int,
    shared_availability: bool,
) -> tuple[State, Record]:
    """Run a block of rounds for the trials of a batch; not compiled.

    Args:
        data: The samples of all federations.
        trials: What the trials differ in.
        state: Their states, [trials, ...].
        program: What the rounds are specialised to.
        num_rounds: The number of rounds.
        size: The number of trials.
        shared_availability: Whether all trials have the same availability.
    """

    def block(trial: Trial, state: State) -> tuple[State, Record]:
        own = select(data, trial.federation)
        after, (record, _) = run_block(program, own, trial, state, length=num_rounds)
        return note_final_model(after), record

    return _for_each_trial(block, trials, state, size=size, shared_availability=shared_availability)


def advance_from_host(
    data: DeviceData, trials: Trial, state: State, *, num_rounds: int, **static: Any
) -> tuple[State, Record]:
    """Run rounds whose rows are not on the device: select, fetch the rows of the cohort, train, store them."""
    rows, records = state.clients, []
    for _ in range(num_rounds):
        state = state._replace(clients=ClientState())
        selection = _select(data, trials, state, **static)
        cohort = jax.device_get(selection.cohort)
        state, record = _finish(data, trials, state._replace(clients=rows.read(cohort)), selection, **static)
        rows.write(cohort, jax.device_get(state.clients))
        records.append(record)
    joined = jax.tree.map(lambda *leaves: np.stack(leaves, axis=1), *jax.device_get(records))
    return _note_final_models(state._replace(clients=ClientState()))._replace(clients=rows), joined


@partial(jax.jit, static_argnames=("program", "size", "shared_availability"))
def _select(
    data: DeviceData, trials: Trial, state: State, *, program: Program, size: int, shared_availability: bool
) -> Selection:
    def choose(trial: Trial, state: State) -> Selection:
        return select_cohort(program, select(data, trial.federation), trial, state)

    return _for_each_trial(choose, trials, state, size=size, shared_availability=shared_availability)


@partial(jax.jit, static_argnames=("program", "size", "shared_availability"), donate_argnames="state")
def _finish(
    data: DeviceData,
    trials: Trial,
    state: State,
    selection: Selection,
    *,
    program: Program,
    size: int,
    shared_availability: bool,
) -> tuple[State, Record]:
    def finish(trial: Trial, state: State, selection: Selection) -> tuple[State, Record]:
        return finish_round(program, select(data, trial.federation), trial, state, selection)

    return _for_each_trial(finish, trials, state, selection, size=size, shared_availability=shared_availability)


def _for_each_trial(
    function: Callable[..., Any], trials: Trial, *trees: Any, size: int, shared_availability: bool
) -> Any:
    """Apply a function of (trial, tree, ...) to the trials of a batch; trees and results are [trials, ...]."""
    if size > 1:
        axes = Trial._make([0, None if shared_availability else 0, *[0] * (len(Trial._fields) - 2)])
        return jax.vmap(function, in_axes=(axes, *[0] * len(trees)), axis_name=TRIALS)(trials, *trees)
    # A vmap over one trial would make XLA choose matrix products for a CPU that are a third slower.
    outcome = function(trials, *jax.tree.map(lambda leaf: leaf[0], trees))
    return jax.tree.map(lambda leaf: leaf[None], outcome)


_note_final_models = jax.jit(jax.vmap(note_final_model))


@partial(jax.jit, static_argnames=("functions", "num_labels"))
def score(
    params: Any, train: Any, test: Any, table: jax.Array | None, *, functions: ByValue, num_labels: int
) -> tuple[Score, Score]:
    """Return the scores of models [trials, ...] on training and test samples; one program serves all algorithms."""
    apply, loss, native = functions.value

    def score_one(params: Any) -> tuple[Score, Score]:
        on = partial(evaluate, apply, loss, params, table=table, native=native)
        return on(*train), on(*test, num_labels=num_labels)

    return jax.vmap(score_one)(params)


@partial(jax.jit, static_argnames="program")
def average_errors(state: State, *, program: Program) -> jax.Array:
    """Return what `average_error` returns, for each trial."""

    def error(state: State) -> jax.Array:
        return average_error(state, client_types(program, state.server.params).stored.remembered)

    return jax.vmap(error)(state)


def host_average_errors(state: State, rows: HostRows) -> np.ndarray[Any, Any]:
    """Return what `average_error` returns, for each trial, where the rows are not on the device."""
    num_clients = state.last_round.shape[1]
    squared = [
        np.sum((np.asarray(total, np.float64) / num_clients - mean).reshape(len(mean), -1) ** 2, axis=1)
        for total, mean in zip(
            jax.tree.leaves(state.total), jax.tree.leaves(rows.mean_of_remembered()), strict=True
        )
    ]  # fmt: skip
    return np.sqrt(np.sum(squared, axis=0)).astype(np.float32)
