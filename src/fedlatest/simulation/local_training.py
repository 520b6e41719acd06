"""Local training: which samples a client sees, and its steps of SGD. One client, unbatched; the round loop vmaps it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedlatest.algorithms.base import Algorithm, ClientFacts, Contribution, Params
from fedlatest.data import Federation
from fedlatest.simulation.storage import compact, expand
from fedlatest.streams import Purpose, bits, permute

LossOfBatch = Callable[[Params, Any, jax.Array], jax.Array]


class DeviceData(NamedTuple):
    """A federation on the device: samples in client order, and where each client's begin."""

    features: Any  # [samples, ...], compact
    labels: jax.Array  # [samples, ...]
    starts: jax.Array  # [N]
    sizes: jax.Array  # [N]
    weights: jax.Array  # [N] w_i N
    ids: jax.Array  # [N]
    table: jax.Array | None  # [words, dimensions] where samples are texts


def place(federation: Federation) -> DeviceData:
    """Put a federation on the device, each client's samples side by side."""
    data = (compact(federation.features), federation.labels)
    features, labels = jax.tree.map(lambda leaf: jnp.asarray(leaf[federation.order]), data)
    return DeviceData(
        features,
        labels,
        starts=jnp.asarray(federation.offsets[:-1], jnp.int32),
        sizes=jnp.asarray(federation.sizes, jnp.int32),
        weights=jnp.asarray(federation.weights),
        ids=jnp.asarray(federation.ids),
        table=None if federation.table is None else jnp.asarray(federation.table),
    )


def batch_rows(
    samples: DeviceData, client: jax.Array, *, round: jax.Array, seed: jax.Array, num_steps: int, batch_size: int
) -> jax.Array:
    """[steps, batch] rows of one client's local batches.

    Its samples are shuffled afresh at each participation and walked through without replacement, on into a new shuffle
    when they run out: batches are always full.
    """
    size = samples.sizes[client]
    walk = jnp.arange(num_steps * batch_size, dtype=jnp.int32)
    lap, position = walk // size, walk % size
    shuffle = bits(seed, Purpose.BATCHES, samples.ids[client], round, lap)
    rows = samples.starts[client] + permute(shuffle, size, position)
    return rows.reshape(num_steps, batch_size)


def train(
    algorithm: Algorithm,
    loss: LossOfBatch,
    samples: DeviceData,
    broadcast: Params,
    memory: Contribution,
    rows: jax.Array,
    facts: ClientFacts,
    learning_rate: jax.Array,
) -> Contribution:
    """C steps of SGD from the broadcast model along the algorithm's direction, then what the client contributes."""
    local = descend(algorithm, loss, samples, broadcast, memory, rows, facts, learning_rate)
    return algorithm.contribute(broadcast, local, memory, facts)


def descend(
    algorithm: Algorithm,
    loss: LossOfBatch,
    samples: DeviceData,
    broadcast: Params,
    memory: Contribution,
    rows: jax.Array,
    facts: ClientFacts,
    learning_rate: jax.Array,
) -> Params:
    """The model after C steps of SGD."""

    def step(local: Params, at: tuple[jax.Array, jax.Array]) -> tuple[Params, None]:
        number, batch = at
        features, labels = jax.tree.map(lambda leaf: leaf[batch], (samples.features, samples.labels))
        gradient = jax.grad(loss)(local, expand(features, samples.table), labels)
        descent = algorithm.direction(gradient, local, broadcast, memory, facts._replace(step=number))
        return jax.tree.map(lambda x, d: x - (learning_rate * d).astype(x.dtype), local, descent), None

    local, _ = lax.scan(step, broadcast, (jnp.arange(len(rows), dtype=jnp.int32), rows))
    return local
