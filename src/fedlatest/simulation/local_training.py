"""Local training of one client, unbatched: its batches and its steps. The round loop maps it over the cohort."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from fedlatest.algorithms.base import Algorithm, ClientFacts, ClientState, Direction, Params
from fedlatest.data import Federation
from fedlatest.models.native_training import LocalSteps, NativeTraining, Samples
from fedlatest.simulation.storage import compact, expand
from fedlatest.streams import Purpose, bits, permute

LossOfBatch = Callable[[Params, Any, jax.Array], jax.Array]


class DeviceData(NamedTuple):
    """A federation on the device: samples in client order, and where each client's samples begin."""

    features: Any  # [samples, ...], compact
    labels: jax.Array  # [samples, ...]
    starts: jax.Array  # [N]
    sizes: jax.Array  # [N]
    weights: jax.Array  # [N] w_i N
    ids: jax.Array  # [N]
    table: jax.Array | None  # [words, dimensions] where samples are texts


def put_on_device(federation: Federation) -> DeviceData:
    """Copy a federation to the device, each client's samples next to each other."""
    host = (compact(federation.features), federation.labels)
    features, labels = jax.tree.map(lambda leaf: jnp.asarray(leaf[federation.order]), host)
    if jnp.issubdtype(labels.dtype, jnp.integer):
        labels = labels.astype(jnp.int32)
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
    data: DeviceData, client: jax.Array, *, round: jax.Array, seed: jax.Array, num_steps: int, batch_size: int
) -> jax.Array:
    """Return the rows [steps, batch] of one client's local batches.

    The client's samples are shuffled anew at each participation and taken without replacement; when they run out, a
    new shuffle follows. Batches are always full.
    """
    size = data.sizes[client]
    positions = jnp.arange(num_steps * batch_size, dtype=jnp.int32)
    shuffle = bits(seed, Purpose.BATCHES, data.ids[client], round, positions // size)
    rows = data.starts[client] + permute(shuffle, size, positions % size)
    return rows.reshape(num_steps, batch_size)


def train_locally(
    algorithm: Algorithm,
    loss: LossOfBatch,
    data: DeviceData,
    broadcast: Any,
    client: ClientState,
    rows: jax.Array,
    facts: ClientFacts,
    optimizer: optax.GradientTransformation | None = None,
    native: NativeTraining | None = None,
) -> Params:
    """Return the model of one client after its local steps.

    A step is x - learning_rate * d, where d is the algorithm's direction, transformed by the client optimizer if there
    is one; the optimizer's state starts anew in every round.

    Args:
        algorithm: Gives the starting point and the direction.
        loss: (params, features, labels) -> mean loss of a batch.
        data: The federation's samples.
        broadcast: What the client received.
        client: What the client keeps.
        rows: The batches, [steps, batch].
        facts: What the client knows in this round; `facts.learning_rate` is the step size.
        optimizer: An optax transformation without learning rate and sign.
        native: How kernels train the model, if they can do so with this algorithm, loss and optimizer.
    """
    start = broadcast.params if algorithm.start is None else algorithm.start(broadcast, client)
    train = None if native is None else native.choose(data.features, rows.shape[1])
    if train is not None:
        steps = _declared_steps(algorithm.direction, start, broadcast, client, rows, facts)
        return train(Samples(data.features, data.labels, data.table), steps)
    direction = _direction_function(algorithm, start, broadcast, client, facts)

    def step(carry: tuple[Params, Any], at: tuple[jax.Array, jax.Array]) -> tuple[tuple[Params, Any], None]:
        (local, state), (number, batch) = carry, at
        features, labels = jax.tree.map(lambda leaf: leaf[batch], (data.features, data.labels))
        gradient = jax.grad(loss)(local, expand(features, data.table), labels)
        descent = direction(gradient, local, facts._replace(step=number))
        if optimizer is not None:
            descent = jax.tree.map(lambda d, x: d.astype(x.dtype), descent, local)
            descent, state = optimizer.update(descent, state, local)
        moved = jax.tree.map(lambda x, d: x - (facts.learning_rate * d).astype(x.dtype), local, descent)
        return (moved, state), None

    state = None if optimizer is None else optimizer.init(start)
    (local, _), _ = lax.scan(step, (start, state), (jnp.arange(len(rows), dtype=jnp.int32), rows))
    return local


def _declared_steps(
    direction: Any, start: Params, broadcast: Any, client: ClientState, rows: jax.Array, facts: ClientFacts
) -> LocalSteps:
    """Return the steps of a declared `Direction` with the learning rate multiplied into every term."""
    rate = jnp.float32(facts.learning_rate)

    def at_every_step(term: Callable[[ClientFacts], Any]) -> jax.Array:
        numbers = jnp.arange(len(rows), dtype=jnp.int32)
        values = jax.vmap(lambda number: jnp.float32(term(facts._replace(step=number))))(numbers)
        return values * rate

    offset = None if direction.offset is None else direction.offset(broadcast, client, facts)
    return LocalSteps(
        start=start,
        offset=None if offset is None else jax.tree.map(lambda leaf: jnp.float32(rate * leaf), offset),
        rows=rows,
        rates=jnp.full(len(rows), rate) if direction.scale is None else at_every_step(direction.scale),
        pulls=None if direction.pull is None else at_every_step(direction.pull),
    )


def _direction_function(
    algorithm: Algorithm, start: Params, broadcast: Any, client: ClientState, facts: ClientFacts
) -> Callable[[Params, Params, ClientFacts], Params]:
    """Return (gradient, local, facts) -> the direction of a step."""
    declared = algorithm.direction
    if not isinstance(declared, Direction):
        return lambda gradient, local, facts: declared(gradient, local, start, broadcast, client, facts)
    offset = None if declared.offset is None else declared.offset(broadcast, client, facts)

    def direction(gradient: Params, local: Params, facts: ClientFacts) -> Params:
        descent = gradient
        if declared.scale is not None:
            factor = declared.scale(facts)
            descent = jax.tree.map(lambda g: factor * g, descent)
        if declared.pull is not None:
            strength = declared.pull(facts)
            descent = jax.tree.map(lambda d, x, x0: d + strength * (x - x0), descent, local, start)
        if offset is not None:
            descent = jax.tree.map(jnp.add, descent, offset)
        return descent

    return direction
