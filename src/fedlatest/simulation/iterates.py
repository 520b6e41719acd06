"""Every iterate of a run, not only those at evaluations: for small problems with known theory."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedlatest.algorithms.base import Params
from fedlatest.identity import ByValue
from fedlatest.simulation.device_data import DeviceData
from fedlatest.simulation.program import Program, Record, State, Trial
from fedlatest.simulation.rounds import run_block

ROUNDS_AT_ONCE = 256


def observe_rounds(
    program: Program,
    data: DeviceData,
    trial: Trial,
    state: State,
    rounds: int,
    observe: Callable[[DeviceData, State], Any],
) -> tuple[State, Any, Record]:
    """Run rounds of a trial and observe the state before each of them and after the last.

    One compiled program serves any number of rounds.

    Args:
        program: What the rounds are specialised to.
        data: The clients' samples.
        trial: The trial's numbers.
        state: The state before the first round.
        rounds: The number of rounds.
        observe: (data, state) -> a tree of arrays.

    Returns:
        The final state, the observations [rounds + 1, ...] and the records [rounds, ...]; the last two are NumPy
        arrays.
    """
    look, observations, records = ByValue(observe), [], []
    for first in range(0, rounds, ROUNDS_AT_ONCE):
        num_rounds = min(ROUNDS_AT_ONCE, rounds - first)
        state, (record, seen) = _run(data, trial, state, jnp.int32(num_rounds), program=program, observe=look)
        seen, record = jax.tree.map(lambda leaf, end=num_rounds: np.asarray(leaf)[:end], (seen, record))
        observations.append(seen)
        records.append(record)
    observations.append(jax.tree.map(lambda leaf: np.asarray(leaf)[None], _observe(data, state, observe=look)))
    return state, _joined(observations), _joined(records)


def equal_clients(features: Any, num_clients: int) -> DeviceData:
    """Return clients of equal weight that hold equal contiguous parts of the samples; the samples have no labels."""
    num_samples = len(jax.tree.leaves(features)[0])
    each = num_samples // num_clients
    return DeviceData(
        features=jax.tree.map(jnp.asarray, features),
        labels=jnp.zeros(num_samples, jnp.int32),
        starts=jnp.arange(num_clients, dtype=jnp.int32) * each,
        sizes=jnp.full(num_clients, each, jnp.int32),
        weights=jnp.ones(num_clients, jnp.float32),
        ids=jnp.arange(num_clients, dtype=jnp.int32),
        table=None,
    )


def observe_params(data: DeviceData, state: State) -> Params:
    """Return the model, as an `observe` function."""
    del data
    return state.server.params


@partial(jax.jit, static_argnames=("program", "observe"))
def _run(
    data: DeviceData, trial: Trial, state: State, num_rounds: jax.Array, *, program: Program, observe: ByValue
) -> tuple[State, tuple[Record, Any]]:
    return run_block(program, data, trial, state, length=ROUNDS_AT_ONCE, num_rounds=num_rounds, observe=observe.value)


@partial(jax.jit, static_argnames="observe")
def _observe(data: DeviceData, state: State, *, observe: ByValue) -> Any:
    return observe.value(data, state)


def _joined(parts: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
