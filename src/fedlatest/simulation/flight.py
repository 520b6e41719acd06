"""The clients of an asynchronous algorithm that are at work. Axes: [N] clients, [M] slots."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedlatest.algorithms.base import NEVER, Algorithm, ClientFacts, Contribution, Params
from fedlatest.simulation.client_rows import strongly_typed


class Flight(NamedTuple):
    """The clients that are at work, in M slots."""

    dispatches: jax.Array  # at how many moments clients were to start so far, also if none was available
    starts: jax.Array  # how many clients have started so far
    last_start: jax.Array  # [N] the dispatch in which a client last started, or NEVER
    clients: jax.Array  # [M] positions
    is_busy: jax.Array  # [M]
    fails: jax.Array  # [M] whether the client will fail instead of arriving
    left: jax.Array  # [M] milliseconds until it arrives or fails
    dispatch: jax.Array  # [M] in which it started
    version: jax.Array  # [M] the number of merges when it started
    uploads: Contribution  # [M, ...]


def initial_flight(algorithm: Algorithm, params: Params, *, num_slots: int, num_clients: int) -> Flight:
    """Return the state of an asynchronous algorithm before the first client starts: M free slots."""
    numbers, never = jnp.zeros(num_slots, jnp.int32), jnp.zeros(num_slots, bool)
    uploads = jax.eval_shape(lambda params: _any_upload(algorithm, params, num_clients), params)
    return Flight(
        dispatches=jnp.int32(0),
        starts=jnp.int32(0),
        last_start=jnp.full(num_clients, NEVER, jnp.int32),
        clients=numbers,
        is_busy=never,
        fails=never,
        left=numbers,
        dispatch=numbers,
        version=numbers,
        uploads=jax.tree.map(lambda leaf: jnp.zeros((num_slots, *leaf.shape), leaf.dtype), uploads),
    )


def _any_upload(algorithm: Algorithm, params: Params, num_clients: int) -> Contribution:
    """Return an upload with the shapes of all others."""
    numbers = {name: jnp.float32(number) for name, number in algorithm.numbers.items()}
    facts = ClientFacts(jnp.int32(0), jnp.int32(0), jnp.float32(1), 1, numbers, learning_rate=jnp.float32(1))
    broadcast = algorithm.broadcast(algorithm.init_server(params, num_clients))
    return algorithm.contribute(broadcast, params, strongly_typed(algorithm.client_state(params)), facts)
