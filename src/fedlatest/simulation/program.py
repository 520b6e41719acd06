"""What a compiled round is specialised to, what a trial feeds into it, and what it carries from round to round.

`Program` is static and compared by value; `Trial`, `State` and `Record` are traced arrays. Axes: [N, ...] all clients,
[K, ...] the cohort's slots.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedlatest.algorithms.base import NEVER, Algorithm, ClientState, Cohort, Params, Parts, RoundFacts
from fedlatest.availability import Availability
from fedlatest.identity import ByValue
from fedlatest.models.native_training import NativeTraining
from fedlatest.simulation.augmentation import Augmentation
from fedlatest.simulation.client_rows import make_rows, strongly_typed
from fedlatest.simulation.clock import ClockProgram, Now, TrialClock, start_of_time
from fedlatest.simulation.device_data import DeviceData
from fedlatest.simulation.flight import Flight, initial_flight
from fedlatest.simulation.private_rounds import TrialPrivacy
from fedlatest.simulation.row_storage import (
    ALL_ROWS,
    RowSlots,
    RowStorage,
    RowTypes,
    initial_total,
    no_slots,
    row_types,
)
from fedlatest.simulation.schedules import Schedule
from fedlatest.simulation.sharding import clients_per_device
from fedlatest.simulation.traffic import Traffic, no_traffic

LossOfBatch = Callable[[Params, Any, jax.Array], jax.Array]
TRIALS = "trials"  # name of the axis of trials that run side by side
NOT_FINITE, INVALID_COHORT, MODEL_NOT_FINITE, NOBODY_AVAILABLE = 1, 2, 3, 4  # values of State.failure; 0 is none


@dataclass(frozen=True, eq=False)
class Program:
    """What a compiled round is specialised to; compared by value, so that equal programs compile once."""

    algorithm: Algorithm
    loss: LossOfBatch
    cohort_size: int
    num_steps: int
    batch_size: int
    clients_at_once: int
    schedule: Schedule | None = None
    """round -> factor of the trial's learning rate."""
    augmentation: Augmentation | None = None
    """Random changes of the samples in local training."""
    client_optimizer: optax.GradientTransformation | None = None
    native_training: NativeTraining | None = None
    branches: bool = True
    """Branch on computed values: do not train chunks after the last client of the cohort, and search the client that
    is not finite only if there is one. Branches are cheap on a CPU and costly on an accelerator."""
    side_by_side: bool = False
    """Whether several trials run in one program, under the name `TRIALS` of their axis."""
    storage: RowStorage = ALL_ROWS
    """How the states of the clients are stored."""
    num_devices: int = 1
    """Among how many devices the clients are divided."""
    noise_window: int = 0
    """From how many rounds the noise of a round is combined; 0 without differential privacy."""
    clock: ClockProgram | None = None
    """How virtual time passes; None without it."""

    @cached_property
    def identity(self) -> ByValue:
        """Identify the program: the functions with all that they capture, and the shapes, but no traced number."""
        names = dict.fromkeys(self.algorithm.numbers, 0.0)
        code = replace(self.algorithm, name="", title="", paper="", settings={}, numbers=names)
        sizes = (
            self.cohort_size, self.num_steps, self.batch_size, self.clients_at_once, self.branches, self.num_devices,
            self.noise_window, self.clock, self.side_by_side,
        )  # fmt: skip
        functions = (self.loss, self.schedule, self.augmentation, self.client_optimizer, self.native_training)
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
    privacy: TrialPrivacy | None = None  # None without differential privacy
    clock: TrialClock | None = None  # None without virtual time


class State(NamedTuple):
    """Everything that a trial carries from round to round."""

    round: jax.Array
    server: Any
    clients: Any  # ClientState, each leaf [N, ...] or [rows, ...]; the remembered update is u_i. Or `HostRows`
    total: Parts  # the sum of the remembered parts as stored, updated by differences as a server does: N u
    last_round: jax.Array  # [N] R_i
    failure: jax.Array  # the first failure, one of the values above, or 0
    failed_round: jax.Array
    failed_client: jax.Array  # id of the client, or NEVER
    slots: RowSlots | None = None  # which row belongs to which client, if only some have one
    participations: jax.Array | None = None  # [N] rounds in which a client took part; with differential privacy only
    now: Now | None = None  # the virtual time; None without it
    flight: Flight | None = None  # the clients that are at work; None if rounds are synchronous
    traffic: Traffic | None = None  # None without virtual time


class Record(NamedTuple):
    """What is recorded of a round."""

    num_available: jax.Array
    cohort_size: jax.Array
    mean_staleness: jax.Array  # after the selection, over all N
    max_staleness: jax.Array
    cohort: Cohort
    time: Now | None = None  # the virtual time at the end of the round; None without it
    traffic: Traffic | None = None  # at the end of the round; None without virtual time


def initial_state(program: Program, params: Params, num_clients: int) -> State:
    """Return the state before round 0: no client has taken part. Rows off the device are left out."""
    algorithm, size, storage = program.algorithm, program.cohort_size, program.storage
    one = initial_client(algorithm, params)
    stored = storage.stored(one)
    return State(
        round=jnp.int32(0),
        server=algorithm.init_server(params, num_clients),
        clients=make_rows(stored, _num_rows(program, num_clients)) if storage.on_device else ClientState(),
        total=initial_total(one.remembered, stored.remembered, num_clients),
        last_round=jnp.full(num_clients, NEVER, jnp.int32),
        failure=jnp.int32(0),
        failed_round=jnp.int32(NEVER),
        failed_client=jnp.int32(NEVER),
        slots=no_slots(storage, num_clients),
        participations=jnp.zeros(num_clients, jnp.int32) if program.noise_window else None,
        now=None if program.clock is None else start_of_time(),
        flight=None
        if algorithm.buffer is None
        else initial_flight(algorithm, params, num_slots=size, num_clients=num_clients),
        traffic=None if program.clock is None else no_traffic(),
    )


def round_facts(program: Program, data: DeviceData, trial: Trial, state: State) -> RoundFacts:
    """Return what the server knows in a round, before the selection."""
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
