"""The compiled functions of the engine: they start, advance and evaluate the trials of a batch.

Their static arguments are compared by value: equal programs compile once per process, and a later process finds them
on disk. Functions that are not compiled themselves are shared with the programs for several devices.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedlatest.algorithms.base import ClientState
from fedlatest.identity import ByValue
from fedlatest.simulation.evaluation import Score, evaluate
from fedlatest.simulation.host_rows import HostRows
from fedlatest.simulation.joint_data import select
from fedlatest.simulation.local_training import DeviceData
from fedlatest.simulation.rounds import (
    Program,
    Record,
    Selection,
    State,
    Trial,
    average_error,
    client_types,
    finish_round,
    initial_client,
    initial_state,
    note_final_model,
    run_block,
    select_cohort,
)
from fedlatest.simulation.row_storage import encode
from fedlatest.streams import Purpose, bits


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
        axes = Trial._make([0, None if shared_availability else 0, 0, 0, 0, 0])
        return jax.vmap(function, in_axes=(axes, *[0] * len(trees)))(trials, *trees)
    # A vmap over one trial would make XLA choose matrix products for a CPU that are a third slower.
    outcome = function(trials, *jax.tree.map(lambda leaf: leaf[0], trees))
    return jax.tree.map(lambda leaf: leaf[None], outcome)


_note_final_models = jax.jit(jax.vmap(note_final_model))


@partial(jax.jit, static_argnames=("functions", "num_labels"))
def score(
    params: Any, train: Any, test: Any, table: jax.Array | None, *, functions: ByValue, num_labels: int
) -> tuple[Score, Score]:
    """Return the scores of models [trials, ...] on training and test samples; one program serves all algorithms."""
    apply, loss = functions.value

    def score_one(params: Any) -> tuple[Score, Score]:
        on = partial(evaluate, apply, loss, params, table=table)
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
