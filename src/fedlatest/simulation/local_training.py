"""Local training: of one client, its batches and its steps, and of a cohort, a few clients at a time.

`train_locally` trains one client, unbatched; `train_cohort` maps it over a cohort. The models in use fit the cache of a
CPU; the rows of client state are updated in place. With several devices (`Program.num_devices`), each trains a part of
the cohort (see `sharding.py`).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from fedlatest.algorithms.base import (
    Algorithm,
    ClientFacts,
    ClientState,
    Cohort,
    Contribution,
    Direction,
    Params,
    Parts,
    RoundFacts,
    UpdateUpload,
)
from fedlatest.errors import ConfigError
from fedlatest.models.native_training import LocalSteps, NativeTraining, Samples
from fedlatest.simulation.augmentation import Augmentation
from fedlatest.simulation.client_rows import (
    add_rows,
    as_stored,
    minus,
    read_rows,
    replace_private,
    replace_rows,
    sum_rows,
)
from fedlatest.simulation.device_data import DeviceData, expand
from fedlatest.simulation.private_rounds import clip_contribution
from fedlatest.simulation.program import LossOfBatch, Program, State, Trial
from fedlatest.simulation.row_storage import RowTypes
from fedlatest.simulation.sharding import (
    CohortPart,
    held_here,
    in_slot_order,
    return_part,
    sum_over_devices,
    take_part,
)
from fedlatest.streams import Purpose, bits, permute


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
    # Without the barrier XLA may compute the shuffle in the loop that reads the samples, once per feature; since jaxlib
    # 0.11 LLVM's time to compile such a loop is exponential in the length of the computation.
    return lax.optimization_barrier(rows.reshape(num_steps, batch_size))


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
    augmentation: Augmentation | None = None,
) -> Params:
    """Return the model of one client after its local steps.

    A step is x - learning_rate * d, where d is the algorithm's direction, transformed by the client optimizer if there
    is one; the optimizer's state starts anew in every round.

    Args:
        algorithm: Gives the starting point and the direction.
        loss: (params, features, labels) -> mean loss of a batch.
        data: The federation's samples.
        broadcast: What the client received.
        client: The client's remembered and private state.
        rows: The batches, [steps, batch].
        facts: What the client knows in this round; `facts.learning_rate` is the step size.
        optimizer: An optax transformation without learning rate and sign.
        native: How kernels train the model, if they can do so with this algorithm, loss and optimizer.
        augmentation: Random changes of the samples of a batch, if any; not applied by kernels.
    """
    start = broadcast.params if algorithm.start is None else algorithm.start(broadcast, client)
    _check_start(algorithm, start, broadcast.params)
    train = None if native is None else native.choose(data.features, rows.shape[1])
    if train is not None:
        steps = _declared_steps(algorithm.direction, start, broadcast, client, rows, facts)
        return train(Samples(data.features, data.labels, data.table), steps)
    direction = _direction_function(algorithm, start, broadcast, client, facts)

    def step(carry: tuple[Params, Any], at: tuple[jax.Array, jax.Array]) -> tuple[tuple[Params, Any], None]:
        (local, state), (number, batch) = carry, at
        features, labels = jax.tree.map(lambda leaf: leaf[batch], (data.features, data.labels))
        expanded = expand(features, data.table)
        if augmentation is not None:
            positions = jnp.arange(batch.shape[0], dtype=jnp.int32)
            draws = bits(facts.seed, Purpose.AUGMENTATION, facts.id, facts.round, number, positions)
            expanded = augmentation(expanded, draws)
        gradient = jax.grad(loss)(local, expanded, labels)
        descent = direction(gradient, local, facts._replace(step=number))
        if optimizer is not None:
            descent = jax.tree.map(lambda d, x: d.astype(x.dtype), descent, local)
            descent, state = optimizer.update(descent, state, local)
        moved = jax.tree.map(lambda x, d: x - (facts.learning_rate * d).astype(x.dtype), local, descent)
        return (moved, state), None

    state = None if optimizer is None else optimizer.init(start)
    (local, _), _ = lax.scan(step, (start, state), (jnp.arange(len(rows), dtype=jnp.int32), rows))
    return local


def _check_start(algorithm: Algorithm, start: Params, model: Params) -> None:
    """Raise ConfigError if local training starts from a model of another structure or shape."""
    shapes, expected = (jax.tree.map(jnp.shape, tree) for tree in (start, model))
    if shapes != expected:
        raise ConfigError(f"algorithm {algorithm.name}: start returns {shapes}, the model is {expected}")


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
    if offset is not None:  # its leaves may be single numbers
        offset = jax.tree.map(lambda x, leaf: jnp.broadcast_to(jnp.float32(rate * leaf), x.shape), start, offset)
    return LocalSteps(
        start=start,
        offset=offset,
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


class Chunk(NamedTuple):
    """Some slots of a cohort."""

    slots: Cohort
    rows: jax.Array  # the numbers of the clients' rows


class CohortSums(NamedTuple):
    """Client states and sums after training a part of the cohort."""

    clients: ClientState
    fresh: Parts
    delta: Parts


def train_cohort(
    program: Program,
    data: DeviceData,
    trial: Trial,
    state: State,
    cohort: Chunk,
    types: RowTypes,
    facts: RoundFacts,
    brief: Parts,
) -> tuple[CohortSums, jax.Array]:
    """Train the cohort, `clients_at_once` at a time; also return whose contribution is not finite [K]."""
    algorithm, num_clients, num_devices = program.algorithm, data.ids.shape[0], program.num_devices
    broadcast = algorithm.broadcast(state.server)

    def draw(client: jax.Array) -> jax.Array:
        return batch_rows(
            data, client, round=facts.round, seed=trial.seed, num_steps=program.num_steps, batch_size=program.batch_size
        )

    if num_devices == 1:
        part = CohortPart(cohort.slots, state.clients, data, position=lambda slot: slot, batches=draw)
        chunk = cohort
    else:
        part = take_part(state.clients, data, cohort.slots, draw, num_devices=num_devices)
        chunk = Chunk(part.slots, part.slots.clients)

    upload = algorithm.contribute  # a plain one is subtracted where the rows are added up, which saves a pass over them
    plain = upload if isinstance(upload, UpdateUpload) and not upload.weighted and trial.privacy is None else None

    def train(slot: jax.Array, own: ClientState) -> Contribution:
        about = client_facts(facts, data, part.position(slot), brief)
        local = train_locally(
            algorithm, program.loss, part.data, broadcast, own, part.batches(slot), about,
            program.client_optimizer, program.native_training, program.augmentation,
        )  # fmt: skip
        if plain:
            return plain.contribution(local)
        contribution = upload(broadcast, local, own, about)
        if trial.privacy is None:
            return contribution
        return clip_contribution(contribution, trial.privacy.clip_norm)

    base = plain.contribution(broadcast.params) if plain else None
    nothing = _zero_contribution(algorithm, train, types.computed)
    sums = CohortSums(part.clients, nothing.fresh, jax.tree.map(jnp.zeros_like, state.total))
    num_positions = num_clients if num_devices == 1 else chunk.rows.shape[0]
    trained, not_finite = _in_chunks(
        partial(_train_chunk, program, types, train, base), sums, chunk, program, num_positions=num_positions
    )
    if num_devices == 1:
        return trained, not_finite
    clients = return_part(
        state.clients, trained.clients, cohort.slots, num_clients=num_clients, num_devices=num_devices
    )
    summed = sum_over_devices(trained[1:])
    return CohortSums(clients, *summed), in_slot_order(not_finite, cohort.rows.shape[0])


def _train_chunk(
    program: Program,
    types: RowTypes,
    train: Callable[[jax.Array, ClientState], Contribution],
    base: Contribution | None,
    sums: CohortSums,
    chunk: Chunk,
) -> tuple[CohortSums, jax.Array]:
    """Train some clients together; also return whose contribution is not finite.

    Args:
        program: What the round is specialised to.
        types: The types of the rows.
        train: (slot, state of its client) -> its contribution.
        base: What is to be subtracted from every contribution, if anything.
        sums: Client states and sums before.
        chunk: The clients.
    """
    slots, rows = chunk.slots, Cohort(chunk.rows, chunk.slots.mask)
    old = read_rows(sums.clients, chunk.rows, types)
    new = jax.vmap(train)(slots.clients, old)
    new_state = ClientState(new.remembered, new.private)
    remembered, fresh = (None, None) if base is None else (base.remembered, base.fresh)
    clients, delta = replace_rows(sums.clients, rows, old, new_state, sums.delta, types, remembered)
    totals = add_rows(sums.fresh, new.fresh, slots.mask, fresh), delta
    totals = lax.optimization_barrier(totals)  # without it XLA computes the sums twice, once for the check for NaN

    def find_not_finite() -> jax.Array:
        uploads = minus(new.fresh, fresh), as_stored(minus(new.remembered, remembered), types)
        return ~jax.vmap(all_finite)(uploads)

    if program.branches:
        not_finite = lax.cond(all_finite(totals), lambda: jnp.zeros_like(slots.mask), find_not_finite)
    else:
        not_finite = find_not_finite()
    return CohortSums(clients, *totals), slots.mask & not_finite


def _in_chunks(
    train_chunk: Callable[[CohortSums, Chunk], tuple[CohortSums, jax.Array]],
    sums: CohortSums,
    cohort: Chunk,
    program: Program,
    *,
    num_positions: int,
) -> tuple[CohortSums, jax.Array]:
    """Train the cohort chunk by chunk, up to the last chunk that holds a real client.

    The cohort is filled up to whole chunks with masked slots; their positions and rows lie beyond the last ones, where
    writes are dropped, and are distinct.
    """
    (slots, rows), at_once = cohort, program.clients_at_once
    size = slots.clients.shape[0]
    if at_once >= size:
        return train_chunk(sums, cohort)
    num_chunks = -(-size // at_once)
    spare = num_chunks * at_once - size
    clients = jnp.concatenate([slots.clients, num_positions + jnp.arange(spare, dtype=slots.clients.dtype)])
    mask = jnp.concatenate([slots.mask, jnp.zeros(spare, bool)])
    if rows is slots.clients:
        rows = clients
    else:  # rows of masked slots may already lie `size` beyond the last one
        first = program.storage.num_rows(num_positions) + size
        rows = jnp.concatenate([rows, first + jnp.arange(spare, dtype=rows.dtype)])
    chunks = jax.tree.map(lambda leaf: leaf.reshape(num_chunks, at_once), Chunk(Cohort(clients, mask), rows))
    occupied = jnp.any(chunks.slots.mask, axis=1)
    num_needed = jnp.max(jnp.where(occupied, jnp.arange(1, num_chunks + 1, dtype=jnp.int32), 0))

    def body(number: jax.Array, carry: tuple[CohortSums, jax.Array]) -> tuple[CohortSums, jax.Array]:
        sums, not_finite = carry
        sums, found = train_chunk(sums, jax.tree.map(lambda leaf: leaf[number], chunks))
        return sums, not_finite.at[number].set(found)

    sums, not_finite = lax.fori_loop(
        0, num_needed if program.branches else num_chunks, body, (sums, jnp.zeros_like(chunks.slots.mask))
    )
    return sums, not_finite.reshape(-1)[:size]


def update_after_merge(
    program: Program,
    data: DeviceData,
    facts: RoundFacts,
    brief: Parts,
    cohort: Chunk,
    types: RowTypes,
    server: Any,
    clients: ClientState,
) -> ClientState:
    """Return the client states after `after_merge` has updated the private state of the cohort."""
    after_merge = program.algorithm.after_merge
    if after_merge is None:
        return clients
    broadcast = program.algorithm.broadcast(server)
    slots = Cohort(cohort.rows, cohort.slots.mask)
    if program.num_devices > 1:
        slots = held_here(cohort.slots, num_clients=data.ids.shape[0], num_devices=program.num_devices)
    old = read_rows(clients, slots.clients, types)

    def act(client: jax.Array, own: ClientState) -> Parts:
        return after_merge(broadcast, own, client_facts(facts, data, client, brief))

    new = jax.vmap(act)(cohort.slots.clients, old)
    return replace_private(clients, slots, old, new)


def client_facts(facts: RoundFacts, data: DeviceData, client: jax.Array, brief: Parts) -> ClientFacts:
    """Return what a client knows in a round."""
    return ClientFacts(
        round=facts.round,
        id=data.ids[client],
        weight=data.weights[client],
        num_steps=facts.num_steps,
        numbers=facts.numbers,
        seed=facts.seed,
        learning_rate=facts.learning_rate,
        last_round=facts.last_round[client],
        rate=None if facts.rates is None else facts.rates[client],
        brief={name: values[client] for name, values in brief.items()},
    )


def _zero_contribution(
    algorithm: Algorithm, train: Callable[[jax.Array, ClientState], Contribution], one: ClientState
) -> Contribution:
    """Return a contribution of zeros with the shapes that `contribute` returns, and check its parts' names."""
    shapes = jax.eval_shape(train, jax.ShapeDtypeStruct((), jnp.int32), one)
    for kind, found, declared in (
        ("remembered", shapes.remembered, one.remembered),
        ("private", shapes.private or one.private, one.private),
    ):
        if set(found) != set(declared):
            raise ConfigError(
                f"algorithm {algorithm.name}: contribute returns the {kind} parts {sorted(found)}, "
                f"init_client declares {sorted(declared)}; they must be the same"
            )
        for name in declared:
            shape, expected = (jax.tree.map(jnp.shape, parts[name]) for parts in (found, declared))
            if shape != expected:
                raise ConfigError(
                    f"algorithm {algorithm.name}: contribute returns the {kind} part {name} with the shape {shape}, "
                    f"init_client with {expected}; they must be the same"
                )
    one_row = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape), leaf.dtype), shapes)
    summed = jax.eval_shape(sum_rows, one_row)  # sums of narrow integers are wider
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), summed)


def all_finite(tree: Any) -> jax.Array:
    """Return whether all numbers of a tree are finite."""
    leaves = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]
    return jnp.all(jnp.stack(leaves)) if leaves else jnp.bool_(True)
