"""One round as a pure function, and a block of rounds: selection, local training, remembered state, merge.

`Program` is what a compiled round is specialised to, `Trial` what one seed of one experiment feeds into it. Axes:
[N, ...] all clients, [K, ...] the cohort's slots. The cohort is trained a few clients at a time, so that the models
in use fit the cache of a CPU; the rows of client state are updated in place. A round is `select_cohort` followed by
`finish_round`, between which rows that are not on the device can be fetched. With several devices
(`Program.num_devices`), these functions run on each of them (see `sharding.py`): the rows [N, ...] of client states are
then those of its own clients.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from fedlatest.algorithms.base import (
    NEVER,
    Algorithm,
    ClientFacts,
    ClientState,
    Cohort,
    Contribution,
    Params,
    Parts,
    RoundFacts,
    Sums,
)
from fedlatest.availability import Availability
from fedlatest.errors import ConfigError
from fedlatest.identity import ByValue
from fedlatest.models.native_training import NativeTraining
from fedlatest.simulation.client_rows import (
    accumulate,
    add_rows,
    as_stored,
    make_rows,
    mean_of_remembered,
    read_rows,
    replace_private,
    replace_rows,
    strongly_typed,
    sum_rows,
)
from fedlatest.simulation.local_training import DeviceData, LossOfBatch, batch_rows, train_locally
from fedlatest.simulation.row_storage import (
    ALL_ROWS,
    RowSlots,
    RowStorage,
    RowTypes,
    find_rows,
    initial_total,
    no_slots,
    row_types,
)
from fedlatest.simulation.sharding import (
    CohortPart,
    clients_per_device,
    held_here,
    in_slot_order,
    mean_of_rows,
    return_part,
    sum_over_devices,
    take_part,
)

NOT_FINITE, INVALID_COHORT, MODEL_NOT_FINITE = 1, 2, 3  # values of State.failure; 0 is none
PAIRWISE_COHORT = 256  # up to this size, distinct positions are checked by comparing all pairs


@dataclass(frozen=True, eq=False)
class Program:
    """What a compiled round is specialised to; compared by value, so that equal programs compile once."""

    algorithm: Algorithm
    loss: LossOfBatch
    cohort_size: int
    num_steps: int
    batch_size: int
    clients_at_once: int
    schedule: Callable[[jax.Array], Any] | None = None
    """round -> factor of the trial's learning rate."""
    client_optimizer: optax.GradientTransformation | None = None
    native_training: NativeTraining | None = None
    branches: bool = True
    """Branch on computed values: do not train chunks after the last client of the cohort, and search the client that
    is not finite only if there is one. Branches are cheap on a CPU and costly on an accelerator."""
    storage: RowStorage = ALL_ROWS
    """How the states of the clients are stored."""
    num_devices: int = 1
    """Among how many devices the clients are divided."""

    @cached_property
    def identity(self) -> ByValue:
        """Identify the program: the functions with all that they capture, and the shapes, but no traced number."""
        names = dict.fromkeys(self.algorithm.numbers, 0.0)
        code = replace(self.algorithm, name="", title="", paper="", settings={}, numbers=names)
        sizes = (
            self.cohort_size, self.num_steps, self.batch_size, self.clients_at_once, self.branches, self.num_devices,
        )  # fmt: skip
        functions = (self.loss, self.schedule, self.client_optimizer, self.native_training)
        return ByValue((code, sizes, functions, self.storage))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Program) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)


class Trial(NamedTuple):
    """One seed of one experiment: the arguments in which runs of one compiled program may differ."""

    seed: jax.Array
    availability: Availability
    learning_rate: jax.Array
    numbers: Mapping[str, jax.Array]  # the algorithm's
    rates: jax.Array | None = None  # [N] participation rates, where they are given
    federation: jax.Array | None = None  # which of several joined federations; None if there is one


class State(NamedTuple):
    """Everything that a trial carries from round to round."""

    round: jax.Array
    server: Any
    clients: Any  # ClientState, each leaf [N, ...] or [rows, ...]; the remembered update is u_i. Or `HostRows`
    total: Parts  # the sum of the remembered parts as stored, updated by differences as a server does: N u
    last_round: jax.Array  # [N] R_i
    failure: jax.Array  # the first failure: NOT_FINITE, INVALID_COHORT or 0
    failed_round: jax.Array
    failed_client: jax.Array  # id of the client, or NEVER
    slots: RowSlots | None = None  # which row belongs to which client, if only some have one


class Record(NamedTuple):
    """What is recorded of a round."""

    num_available: jax.Array
    cohort_size: jax.Array
    mean_staleness: jax.Array  # after the selection, over all N
    max_staleness: jax.Array
    cohort: Cohort


class Selection(NamedTuple):
    """Who is available in a round, and who takes part."""

    available: jax.Array  # [N]
    cohort: Cohort


class Chunk(NamedTuple):
    """Some slots of a cohort."""

    slots: Cohort
    rows: jax.Array  # the numbers of the clients' rows


class CohortSums(NamedTuple):
    """Client states and sums after training a part of the cohort."""

    clients: ClientState
    fresh: Parts
    delta: Parts


def initial_state(program: Program, params: Params, num_clients: int) -> State:
    """Return the state before round 0: no client has taken part. Rows off the device are left out."""
    one, storage = initial_client(program.algorithm, params), program.storage
    stored = storage.stored(one)
    return State(
        round=jnp.int32(0),
        server=program.algorithm.init_server(params, num_clients),
        clients=make_rows(stored, _num_rows(program, num_clients)) if storage.on_device else ClientState(),
        total=initial_total(one.remembered, stored.remembered, num_clients),
        last_round=jnp.full(num_clients, NEVER, jnp.int32),
        failure=jnp.int32(0),
        failed_round=jnp.int32(NEVER),
        failed_client=jnp.int32(NEVER),
        slots=no_slots(storage, num_clients),
    )


def initial_client(algorithm: Algorithm, params: Params) -> ClientState:
    """Return the state of one client before its first round."""
    return strongly_typed(algorithm.client_state(params))


def client_types(program: Program, params: Params) -> RowTypes:
    """Return the shapes and types of one client's state."""
    return row_types(program.storage, jax.eval_shape(lambda params: initial_client(program.algorithm, params), params))


def _num_rows(program: Program, num_clients: int) -> int:
    """Return the number of rows on this device."""
    if program.num_devices > 1:
        return clients_per_device(num_clients, program.num_devices)
    return program.storage.num_rows(num_clients)


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
    """Run one round of any algorithm; data and trial are arguments, never constants of the program."""
    return finish_round(program, data, trial, state, select_cohort(program, data, trial, state))


def select_cohort(program: Program, data: DeviceData, trial: Trial, state: State) -> Selection:
    """Return who is available in the next round, and the cohort that the algorithm selects."""
    available = trial.availability.available(state.round, trial.seed)
    facts = _round_facts(program, data, trial, state)
    return Selection(available, program.algorithm.select(state.server, available, facts))


def finish_round(
    program: Program, data: DeviceData, trial: Trial, state: State, selection: Selection
) -> tuple[State, Record]:
    """Train the cohort and merge its uploads.

    If the program's storage is off the device, `state.clients` holds the rows [K, ...] of the cohort alone.
    """
    algorithm, round, num_clients = program.algorithm, state.round, data.ids.shape[0]
    (available, cohort), facts = selection, _round_facts(program, data, trial, state)
    last_round = state.last_round.at[cohort.clients].max(jnp.where(cohort.mask, round, NEVER), unique_indices=True)
    slots, rows = find_rows(program.storage, state.slots, cohort)
    whole = Chunk(cohort, rows)
    types = client_types(program, state.server.params)

    brief = {} if algorithm.brief is None else algorithm.brief(state.server, facts)
    trained, not_finite = _train_cohort(program, data, trial, state, whole, types, facts, brief)
    total = accumulate(state.total, trained.delta)
    sums = Sums(
        fresh=trained.fresh,
        delta=_in_types_of(types.computed.remembered, trained.delta),
        total=_in_types_of(types.computed.remembered, total),
        num=jnp.sum(cohort.mask, dtype=jnp.int32),
        weight=jnp.sum(jnp.where(cohort.mask, data.weights[cohort.clients], 0.0)),
    )
    server = algorithm.merge(state.server, sums, facts._replace(cohort=cohort))
    clients = _after_merge(program, data, facts, brief, whole, types, server, trained.clients)
    staleness = round - last_round
    after = State(round + 1, server, clients, total, last_round, state.failure, state.failed_round,
                  state.failed_client, slots)  # fmt: skip
    valid = _distinct(cohort.clients, num_clients) & jnp.all(available[cohort.clients] | ~cohort.mask)
    after = _note_failure(after, state, cohort, valid, not_finite, data.ids)
    record = Record(jnp.sum(available), sums.num, jnp.mean(staleness.astype(jnp.float32)), jnp.max(staleness), cohort)
    return after, record


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


def _round_facts(program: Program, data: DeviceData, trial: Trial, state: State) -> RoundFacts:
    schedule = program.schedule
    return RoundFacts(
        round=state.round,
        seed=trial.seed,
        num_clients=data.ids.shape[0],
        cohort_size=program.cohort_size,
        ids=data.ids,
        last_round=state.last_round,
        numbers=trial.numbers,
        total_weight=data.ids.shape[0],
        learning_rate=trial.learning_rate if schedule is None else trial.learning_rate * schedule(state.round),
        num_steps=program.num_steps,
        rates=trial.rates,
    )


def _client_facts(facts: RoundFacts, data: DeviceData, client: jax.Array, brief: Parts) -> ClientFacts:
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


def _train_cohort(
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

    def train(slot: jax.Array, own: ClientState) -> Contribution:
        client_facts = _client_facts(facts, data, part.position(slot), brief)
        local = train_locally(
            algorithm, program.loss, part.data, broadcast, own, part.batches(slot), client_facts,
            program.client_optimizer, program.native_training,
        )  # fmt: skip
        return algorithm.contribute(broadcast, local, own, client_facts)

    def train_chunk(sums: CohortSums, chunk: Chunk) -> tuple[CohortSums, jax.Array]:
        slots, rows = chunk.slots, Cohort(chunk.rows, chunk.slots.mask)
        old = read_rows(sums.clients, chunk.rows, types)
        new = jax.vmap(train)(slots.clients, old)
        kept = ClientState(new.remembered, new.private)
        clients, delta = replace_rows(sums.clients, rows, old, kept, sums.delta, types)
        totals = add_rows(sums.fresh, new.fresh, slots.mask), delta
        totals = lax.optimization_barrier(totals)  # without it XLA computes the sums twice, once for the check for NaN

        def find_not_finite() -> jax.Array:
            return ~jax.vmap(_finite)((new.fresh, as_stored(new.remembered, types)))

        if program.branches:
            not_finite = lax.cond(_finite(totals), lambda: jnp.zeros_like(slots.mask), find_not_finite)
        else:
            not_finite = find_not_finite()
        return CohortSums(clients, *totals), slots.mask & not_finite

    nothing = _zero_contribution(algorithm, train, types.computed)
    sums = CohortSums(part.clients, nothing.fresh, jax.tree.map(jnp.zeros_like, state.total))
    if num_devices == 1:
        return _in_chunks(train_chunk, sums, chunk, program, num_positions=num_clients)
    size = chunk.rows.shape[0]
    trained, not_finite = _in_chunks(train_chunk, sums, chunk, program, num_positions=size)
    clients = return_part(
        state.clients, trained.clients, cohort.slots, num_clients=num_clients, num_devices=num_devices
    )
    summed = sum_over_devices(trained[1:])
    return CohortSums(clients, *summed), in_slot_order(not_finite, cohort.rows.shape[0])


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


def _after_merge(
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
        return after_merge(broadcast, own, _client_facts(facts, data, client, brief))

    new = jax.vmap(act)(cohort.slots.clients, old)
    return replace_private(clients, slots, old, new)


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
    one_row = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape), leaf.dtype), shapes)
    summed = jax.eval_shape(sum_rows, one_row)  # sums of narrow integers are wider
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), summed)


def note_final_model(state: State) -> State:
    """Note a model that is not finite although all uploads were, as the failure of the last round."""
    fails = (state.failure == 0) & ~_finite(state.server.params)
    return state._replace(
        failure=jnp.where(fails, MODEL_NOT_FINITE, state.failure),
        failed_round=jnp.where(fails, state.round - 1, state.failed_round),
    )


def _in_types_of(like: Parts, sums: Parts) -> Parts:
    """Return sums in the types in which the algorithm computes, which may be narrower than those of the sums."""
    return jax.tree.map(lambda one, part: part.astype(one.dtype), like, sums)


def _finite(tree: Any) -> jax.Array:
    leaves = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]
    return jnp.all(jnp.stack(leaves)) if leaves else jnp.bool_(True)
