"""The compiled simulator: trials that share a program, run side by side, a block of rounds per call.

All programs are compiled by the module-level `jax.jit` functions below, whose static arguments are compared by value:
an engine with equal shapes and functions compiles nothing, and a later process finds the program on disk.
"""

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from fedlatest.data import Federation
from fedlatest.errors import ConfigError, DivergedError, FedlatestError
from fedlatest.identity import ByValue
from fedlatest.runs.array_files import ArrayFile
from fedlatest.simulation.compilation_cache import enable_compilation_cache
from fedlatest.simulation.evaluation import Score, evaluate, tally
from fedlatest.simulation.experiment_spec import ExperimentSpec
from fedlatest.simulation.local_training import DeviceData, put_on_device
from fedlatest.simulation.memory import available_bytes, nbytes
from fedlatest.simulation.processes import fetch_rows, place
from fedlatest.simulation.rounds import (
    INVALID_COHORT,
    MODEL_NOT_FINITE,
    Program,
    Record,
    State,
    Trial,
    average_error,
    initial_state,
    note_final_model,
    run_block,
)
from fedlatest.simulation.sharding import (
    DATA_SPECS,
    DIVIDED,
    DIVIDED_ROWS,
    REPLICATED,
    TestSet,
    make_mesh,
    num_own_samples,
    num_own_tests,
    on_each_device,
    replicate,
    shard_data,
    sum_over_devices,
)
from fedlatest.simulation.storage import compact
from fedlatest.streams import Purpose, bits
from fedlatest.trees import checked, named_leaves

STATE_SPECS: Any = State._make(
    [REPLICATED, REPLICATED, DIVIDED_ROWS, *[REPLICATED] * 5]
)  # how a state is divided among devices


class TrialBatch(NamedTuple):
    """Trials that run side by side in one program; a batch of one carries no axis of trials."""

    trials: Trial
    size: int
    shared_availability: bool  # all trials have the same, which then carries no axis of trials


class Measured(NamedTuple):
    """An evaluation of all trials, each field [trials]."""

    train: Score
    test: Score
    average_error: Any  # None for an algorithm that remembers nothing


class ArrayPart(NamedTuple):
    """Rows first .. last - 1 of an array on the device, fetched when they are converted to NumPy."""

    array: jax.Array
    first: int
    last: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the part."""
        return (self.last - self.first, *self.array.shape[1:])

    @property
    def dtype(self) -> Any:
        """The type of the array."""
        return self.array.dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.asarray(self.array, dtype)[self.first : self.last]


class RowsPart(NamedTuple):
    """Some trials' rows of all clients, gathered from several devices when they are converted to NumPy."""

    array: jax.Array
    first: int
    last: int
    num_clients: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the part."""
        return (self.last - self.first, self.num_clients, *self.array.shape[2:])

    @property
    def dtype(self) -> Any:
        """The type of the array."""
        return self.array.dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.asarray(fetch_rows(self.array, slice(self.first, self.last), self.num_clients), dtype)


class Engine:
    """Runs every seed of some specs that share a program; states and records carry a leading axis [trials].

    Trials are ordered by spec, then seed. On an accelerator they run side by side in one program. On a CPU each is a
    batch of one and they take turns: there, the products of small models are slower when batched.

    Args:
        specs: Experiments with equal `batch_key`.
        clients_at_once: How many clients of a cohort train together; see `ExperimentSpec.program`.
        devices: Among how many devices of each process the clients are divided; see `sharding.make_mesh`.

    Raises:
        ConfigError: If the specs do not share a program, or there are too few devices.
    """

    def __init__(
        self, specs: Sequence[ExperimentSpec], *, clients_at_once: int | None = None, devices: int | None = None
    ) -> None:
        first = specs[0]
        if any(spec.batch_key != first.batch_key for spec in specs):
            raise ConfigError(
                "these experiments cannot share a compiled program: they differ in functions, shapes, federation, "
                "seeds or rounds; simulate them separately"
            )
        enable_compilation_cache()
        trials = [trial for spec in specs for trial in spec.trials()]
        self.seeds = np.array([trial.seed for trial in trials], np.uint32)  # [trials]
        self.mesh = make_mesh(devices)
        self.num_devices = 1 if self.mesh is None else self.mesh.size
        self.batches = [batch._replace(trials=replicate(batch.trials, self.mesh)) for batch in _batches(trials)]
        self.program = first.program(clients_at_once, num_devices=self.num_devices)
        self._init, self._scoring = ByValue(first.model.init), ByValue((first.model.apply, first.loss))
        self.federation = first.executed.federation
        self.data, self.test = _device_data(self.federation, self.mesh)
        self.num_labels = self.federation.num_labels if self.federation.has_classes else 0

    def start(self) -> list[State]:
        """Return the states before round 0, one per batch; each seed has its own initial model."""
        return [self._start_batch(replicate(self._models(batch), self.mesh)) for batch in self.batches]

    def _models(self, batch: TrialBatch) -> list[Any]:
        return [_initial_model(seed, init=self._init) for seed in np.atleast_1d(batch.trials.seed)]

    def _start_batch(self, models: list[Any]) -> State:
        return _start(models, program=self.program, num_clients=self.federation.num_clients, mesh=self.mesh)

    def _structures(self) -> list[State]:
        """Return the shapes of the states, without computing anything."""
        return [jax.eval_shape(lambda batch=batch: self._start_batch(self._models(batch))) for batch in self.batches]

    def advance(self, states: Sequence[State], num_rounds: int) -> tuple[list[State], Record]:
        """Run rounds and return the new states and the records, NumPy arrays [trials, rounds, ...].

        The given states must not be used afterwards: their buffers are donated.
        """
        done = [
            self._advance_batch(batch, state, num_rounds)
            for batch, state in zip(self.batches, states, strict=True)
        ]  # fmt: skip
        return [state for state, _ in done], _fetch([record for _, record in done])

    def _advance_batch(self, batch: TrialBatch, state: State, num_rounds: int) -> tuple[State, Record]:
        algorithm = self.program.algorithm
        try:
            return _advance(
                self.data, batch.trials, state, program=self.program, num_rounds=num_rounds, size=batch.size,
                shared_availability=batch.shared_availability, mesh=self.mesh,
            )  # fmt: skip
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            if isinstance(error, FedlatestError) or algorithm.merge.__module__.startswith("fedlatest."):
                raise
            raise ConfigError(
                f"algorithm {algorithm.name}: a round cannot be compiled ({type(error).__name__}: "
                f"{(str(error).splitlines() or [''])[0]}); docs/algorithms.md says what its functions must return"
            ) from error

    def measure(self, states: Sequence[State]) -> Measured:
        """Return the scores on the full training and test sets, and the error of the average of remembered parts."""
        parts = [
            _measure(
                self.data, self.test, state, functions=self._scoring, num_labels=self.num_labels,
                num_tests=len(self.federation.test_labels), mesh=self.mesh,
            )
            for state in states
        ]  # fmt: skip
        measured = _fetch(parts)
        return measured if states[0].total else measured._replace(average_error=None)

    def failures(self, states: Sequence[State]) -> list[FedlatestError | None]:
        """Return the first failure of each trial, or None."""
        parts = [(state.failure, state.failed_round, state.failed_client) for state in states]
        columns = (np.concatenate(column) for column in zip(*jax.device_get(parts), strict=True))
        return [
            self._failure(*values) if values[1] else None for values in zip(self.seeds.tolist(), *columns, strict=True)
        ]

    def _failure(self, seed: int, failure: int, round: int, client: int) -> FedlatestError:
        if failure == INVALID_COHORT:
            return ConfigError(
                f"algorithm {self.program.algorithm.name}: select returned a position twice, outside "
                f"0 .. {self.federation.num_clients - 1} or of an unavailable client in round {round} (seed {seed})"
            )
        if failure == MODEL_NOT_FINITE:
            return DivergedError(
                f"training diverged: the model is not finite after round {round} (seed {seed}); "
                "try a smaller learning_rate"
            )
        return DivergedError(
            f"training diverged: the upload of client {client} in round {round} (seed {seed}) "
            "is not finite; try a smaller learning_rate"
        )

    @cached_property
    def bytes_needed(self) -> int:
        """Memory for the samples and for the state of every trial; what training needs temporarily is not counted."""
        samples = (self.data.features, self.data.labels, self.test)
        return self._bytes_here(samples, (self.data, self.test)) + self.state_bytes

    @cached_property
    def state_bytes(self) -> int:
        """Memory for the state of every trial."""
        structures = self._structures()
        return self._bytes_here([structure.clients for structure in structures], structures)

    def _bytes_here(self, divided: Any, everything: Any) -> int:
        """Return how much of some arrays lies on one accelerator, or on all CPU devices of this process together."""
        if self.mesh is None:
            return nbytes(everything)
        sharers = len(self.mesh.local_devices) if jax.default_backend() == "cpu" else 1
        return sharers * (nbytes(divided) // self.num_devices + nbytes(everything) - nbytes(divided))

    def check_memory(self) -> None:
        """Raise ConfigError if the state does not fit into memory, where the samples already are; allocate nothing."""
        room = available_bytes()
        if room is not None and self.state_bytes > room:
            raise ConfigError(
                f"the run needs {self.state_bytes / 2**30:.1f} GiB of memory in addition to its data, "
                f"{room / 2**30:.1f} GiB are available; use fewer clients, fewer seeds or a smaller model"
            )

    def named_parts(self, states: Sequence[State], trials: slice) -> dict[str, list[Any]]:
        """Return the named arrays of some trials' states as lists of parts [trials, ...], without copying them."""
        parts: dict[str, list[Any]] = {}
        for offset, state in zip(self._offsets, states, strict=True):
            divided = set() if self.mesh is None else _names_of_rows(state)
            for name, leaf in named_leaves(state).items():
                first, last = max(trials.start - offset, 0), min(trials.stop - offset, leaf.shape[0])
                if first < last and name in divided:
                    parts.setdefault(name, []).append(RowsPart(leaf, first, last, self.federation.num_clients))
                elif first < last:
                    parts.setdefault(name, []).append(ArrayPart(leaf, first, last))
        return parts

    def restore(self, sources: Sequence[ArrayFile | None]) -> list[State]:
        """Return states from the checkpoints of the specs, in their order; the inverse of `named_parts`.

        A checkpoint does not depend on the number of devices. Only the first process has the files.

        Raises:
            RunFolderError: If an array is missing or has another shape or type.
        """
        structures = self._structures()
        leaves: list[list[Any]] = [[] for _ in structures]
        divided = _names_of_rows(structures[0])
        for name, like in named_leaves(structures[0]).items():
            num_rows = [self.federation.num_clients] if name in divided else list(like.shape[1:2])
            shape = (len(self.seeds) // len(sources), *num_rows, *like.shape[2:])
            expected = jax.ShapeDtypeStruct(shape, like.dtype)
            whole = [checked(source, name, expected, source=source.path) for source in sources if source is not None]
            every = whole[0] if len(whole) == 1 else np.concatenate(whole) if whole else None
            for batch, (offset, structure) in enumerate(zip(self._offsets, structures, strict=True)):
                size = structure.round.shape[0]
                part = None if every is None else every[offset : offset + size]
                leaves[batch].append(self._place(part, (size, *like.shape[1:]), like.dtype, divided=name in divided))
        return [
            jax.tree.unflatten(jax.tree.structure(structure), parts)
            for structure, parts in zip(structures, leaves, strict=True)
        ]

    def _place(self, part: Any, shape: tuple[int, ...], dtype: Any, *, divided: bool) -> jax.Array:
        if self.mesh is None:
            return jnp.asarray(part)
        sharding = NamedSharding(self.mesh, DIVIDED_ROWS if divided else REPLICATED)
        return place(part, jax.ShapeDtypeStruct(shape, dtype), sharding)

    @cached_property
    def _offsets(self) -> list[int]:
        """The first trial of each batch."""
        return [0, *np.cumsum([batch.size for batch in self.batches])[:-1].tolist()]

    def params(self, states: Sequence[State]) -> Any:
        """Return the models of all trials as NumPy arrays [trials, ...]."""
        return _fetch([state.server.params for state in states])


@partial(jax.jit, static_argnames="init")
def _initial_model(seed: jax.Array, *, init: ByValue) -> Any:
    return init.value(initial_key(seed))


def initial_key(seed: jax.Array) -> jax.Array:
    """Return the random key of a seed's initial model."""
    return jax.random.key(bits(seed, Purpose.INITIAL_MODEL))


@partial(jax.jit, static_argnames=("program", "num_clients", "mesh"))
def _start(models: list[Any], *, program: Program, num_clients: int, mesh: Mesh | None) -> State:
    def start(models: list[Any]) -> State:
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)
        return jax.vmap(lambda params: initial_state(program, params, num_clients))(stacked)

    return on_each_device(start, mesh, in_specs=REPLICATED, out_specs=STATE_SPECS)(models)


@partial(
    jax.jit,
    static_argnames=("program", "num_rounds", "size", "shared_availability", "mesh"),
    donate_argnames="state",
)
def _advance(
    data: DeviceData,
    trials: Trial,
    state: State,
    *,
    program: Program,
    num_rounds: int,
    size: int,
    shared_availability: bool,
    mesh: Mesh | None,
) -> tuple[State, Record]:
    def advance(data: DeviceData, trials: Trial, state: State) -> tuple[State, Record]:
        def block(trial: Trial, state: State) -> tuple[State, Record]:
            after, (record, _) = run_block(program, data, trial, state, length=num_rounds)
            return note_final_model(after), record

        if size > 1:
            axes = Trial._make([0, None if shared_availability else 0, 0, 0, 0])
            return jax.vmap(block, in_axes=(axes, 0))(trials, state)
        # A vmap over one trial would make XLA choose matrix products for a CPU that are a third slower.
        outcome = block(trials, jax.tree.map(lambda leaf: leaf[0], state))
        return jax.tree.map(lambda leaf: leaf[None], outcome)

    specs = (DATA_SPECS, REPLICATED, STATE_SPECS)
    return on_each_device(advance, mesh, in_specs=specs, out_specs=(STATE_SPECS, REPLICATED))(data, trials, state)


@partial(jax.jit, static_argnames=("functions", "num_labels", "num_tests", "mesh"))
def _measure(
    data: DeviceData,
    test: TestSet,
    state: State,
    *,
    functions: ByValue,
    num_labels: int,
    num_tests: int,
    mesh: Mesh | None,
) -> Measured:
    apply, loss = functions.value

    def measure(data: DeviceData, test: TestSet, state: State) -> Measured:
        score = partial(evaluate, apply, loss, state.server.params, table=data.table)
        on_train = score(data.features, data.labels)
        return Measured(on_train, score(*test, num_labels=num_labels), average_error(state))

    def measure_part(data: DeviceData, test: TestSet, state: State) -> Measured:
        assert mesh is not None
        add_up = partial(tally, apply, loss, state.server.params, table=data.table)
        parts = (
            add_up(data.features, data.labels, num_real=num_own_samples(data, mesh.size)),
            add_up(*test, num_labels=num_labels, num_real=num_own_tests(num_tests, mesh.size)),
        )
        train, tests = sum_over_devices(parts)
        num_samples = jnp.sum(data.sizes)
        return Measured(
            Score(train.loss / num_samples, train.accuracy / num_samples, train.num_correct),
            Score(tests.loss / num_tests, tests.accuracy / num_tests, tests.num_correct),
            average_error(state, num_devices=mesh.size),
        )

    def measure_all(data: DeviceData, test: TestSet, state: State) -> Measured:
        return jax.vmap(partial(measure if mesh is None else measure_part, data, test))(state)

    specs = (DATA_SPECS, DIVIDED, STATE_SPECS)
    return on_each_device(measure_all, mesh, in_specs=specs, out_specs=REPLICATED)(data, test, state)


_ON_DEVICE: WeakKeyDictionary[Federation, dict[Mesh | None, tuple[DeviceData, TestSet]]] = WeakKeyDictionary()


def _device_data(federation: Federation, mesh: Mesh | None) -> tuple[DeviceData, TestSet]:
    """Return training and test samples on the devices, copied once per federation however many engines use it."""
    copies = _ON_DEVICE.setdefault(federation, {})
    if mesh not in copies:
        if mesh is None:
            test = jax.tree.map(jnp.asarray, (compact(federation.test_features), federation.test_labels))
            copies[mesh] = put_on_device(federation), TestSet(*test)
        else:
            copies[mesh] = shard_data(federation, mesh)
    return copies[mesh]


def _batches(trials: list[Trial]) -> list[TrialBatch]:
    """Put all trials into one batch on an accelerator, each into its own on a CPU."""
    if not _side_by_side() or len(trials) == 1:
        return [TrialBatch(trial, 1, shared_availability=True) for trial in trials]
    first = trials[0].availability
    shared = all(trial.availability is first for trial in trials)

    def stack(*leaves: Any) -> jax.Array:
        return jnp.stack(leaves)

    columns = [
        [None] * len(trials) if shared and column[0] is first else column for column in zip(*trials, strict=True)
    ]
    stacked = Trial._make(jax.tree.map(stack, *column) for column in columns)
    together = stacked._replace(availability=first) if shared else stacked
    return [TrialBatch(together, len(trials), shared_availability=shared)]


def _names_of_rows(state: State) -> set[str]:
    """Return the names of the arrays that hold a row per client, as `named_leaves` gives them."""
    return {f"clients.{name}" for name in named_leaves(state.clients)}


def _side_by_side() -> bool:
    return jax.default_backend() != "cpu"


def _fetch(parts: list[Any]) -> Any:
    """Fetch what the batches returned, all at once, as NumPy arrays [trials, ...]."""
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *jax.device_get(parts))
