"""Every iterate of a run, not only those at evaluations: for small problems that theory speaks about."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedlatest.algorithms.base import Params
from fedlatest.simulation.local_training import DeviceData
from fedlatest.simulation.rounds import Lane, Record, Rules, State, play_round

ROUNDS_AT_ONCE = 256

Look = Callable[[DeviceData, State], Any]
Follow = Callable[[DeviceData, Lane, State, int], tuple[State, Any, Record]]


def follower(rules: Rules, look: Look) -> Follow:
    """A function that plays rounds of a lane and looks at the state before each, and after the last.

    follow(samples, lane, state, rounds) -> final state, looks [rounds + 1, ...], records [rounds, ...]; the last
    two are NumPy arrays. One compiled program serves any number of rounds and everything that has the same shapes.
    """

    @jax.jit
    def block(samples: DeviceData, lane: Lane, state: State, num_rounds: jax.Array) -> tuple[State, tuple[Any, Record]]:
        def step(state: State, number: jax.Array) -> tuple[State, tuple[Any, Record]]:
            after, record = play_round(rules, samples, lane, state)
            played = number < num_rounds
            kept = jax.tree.map(lambda new, old: jnp.where(played, new, old), after, state)
            return kept, (look(samples, state), record)

        return lax.scan(step, state, jnp.arange(ROUNDS_AT_ONCE))

    look_once = jax.jit(look)

    def follow(samples: DeviceData, lane: Lane, state: State, rounds: int) -> tuple[State, Any, Record]:
        looks, records = [], []
        for first in range(0, rounds, ROUNDS_AT_ONCE):
            num_rounds = min(ROUNDS_AT_ONCE, rounds - first)
            state, noted = block(samples, lane, state, jnp.int32(num_rounds))
            looked, record = jax.tree.map(lambda leaf, end=num_rounds: np.asarray(leaf)[:end], noted)
            looks.append(looked)
            records.append(record)
        looks.append(jax.tree.map(lambda leaf: np.asarray(leaf)[None], look_once(samples, state)))
        return state, _joined(looks), _joined(records)

    return follow


def equal_clients(features: Any, num_clients: int) -> DeviceData:
    """Clients of equal weight that hold equal parts of the samples, side by side; the samples have no labels."""
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


def params_of(samples: DeviceData, state: State) -> Params:
    """A look at the model itself."""
    del samples
    return state.server.params


def _joined(parts: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
