"""The simulator on several devices: the engine with its clients divided among the devices of a mesh.

`sharding.py` says what each device holds and what the devices exchange. Every process of a simulation runs its own
engine; they call the methods together.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.sharding import Mesh, NamedSharding

from fedlatest.data import Federation
from fedlatest.errors import ConfigError
from fedlatest.identity import ByValue
from fedlatest.runs.array_files import ArrayFile
from fedlatest.simulation.checkpoints import ArrayPart, SavedRows, SavedTrial, saved_trials
from fedlatest.simulation.compile_ahead import Compilation
from fedlatest.simulation.device_data import DeviceData
from fedlatest.simulation.engine import Engine, Measured, TrialBatch, fetch
from fedlatest.simulation.evaluation import Score, tally
from fedlatest.simulation.experiment_spec import ExperimentSpec
from fedlatest.simulation.host_rows import row_blocks
from fedlatest.simulation.memory import available_bytes, nbytes
from fedlatest.simulation.processes import fetch_rows, from_first, place
from fedlatest.simulation.program import Program, Record, State, Trial
from fedlatest.simulation.rounds import advance_trials, average_error, initial_model, start_clients, start_trials
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
from fedlatest.trees import named_leaves

STATE_SPECS: Any = State(*[REPLICATED] * len(State._fields))._replace(clients=DIVIDED_ROWS)  # type: ignore[arg-type]


def make_engine(
    specs: Sequence[ExperimentSpec], *, clients_at_once: int | None = None, devices: int | None = None
) -> Engine:
    """Return the engine for some specs.

    Args:
        specs: Experiments with equal `batch_key`.
        clients_at_once: How many clients of a cohort train together on a device.
        devices: Among how many devices of each process the clients are divided; see `sharding.make_mesh`.
    """
    mesh = make_mesh(devices)
    if mesh is None:
        return Engine(specs, clients_at_once=clients_at_once)
    return ShardedEngine(specs, mesh, clients_at_once=clients_at_once)


class RowsPart(NamedTuple):
    """Some trials' rows of all clients, gathered from several devices when they are written."""

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

    def blocks(self) -> Iterable[npt.NDArray[Any]]:
        """Yield the part in blocks of rows; all processes must do so together."""
        for trial in range(self.first, self.last):
            for first, last in row_blocks(self.array, self.num_clients):
                yield fetch_rows(self.array, trial, first, size=last - first)


class ShardedEngine(Engine):
    """Runs every seed of some specs that share a program on the devices of a mesh.

    Args:
        specs: Experiments with equal `batch_key`, all on the same data.
        mesh: The devices.
        clients_at_once: How many clients of a cohort train together on a device.

    Raises:
        ConfigError: If the specs do not share a program or ask for what several devices do not support.
    """

    def __init__(self, specs: Sequence[ExperimentSpec], mesh: Mesh, *, clients_at_once: int | None = None) -> None:
        for spec in specs:
            if spec.client_rows not in ("auto", "all") or spec.remembered_dtype is not None:
                raise ConfigError(
                    f"client_rows={spec.client_rows}, remembered_dtype={spec.remembered_dtype}: not supported with "
                    "several devices; leave these options out"
                )
            if spec.algorithm.buffer is not None:
                raise ConfigError(f"devices: {spec.algorithm.name} is asynchronous and runs on one device")
        if len({spec.executed.federation for spec in specs}) > 1:
            raise ConfigError(
                "these experiments use different data and cannot run together on several devices; run them one by one"
            )
        self.mesh = mesh
        super().__init__(specs, clients_at_once=clients_at_once)
        self.batches = [batch._replace(trials=replicate(batch.trials, mesh)) for batch in self.batches]

    def _prepare(self, first: ExperimentSpec, clients_at_once: int | None) -> None:
        num_trials = self.batches[0].size
        self.num_devices = self.mesh.size
        self.program = first.program(clients_at_once, num_trials=num_trials, num_devices=self.num_devices)
        self._samples_here = _sharded_data(self.federations[0], self.mesh)

    @cached_property
    def data(self) -> DeviceData:
        """The training samples, divided among the devices."""
        return self._samples_here[0]

    def _start_batch(self, batch: TrialBatch) -> State:
        return self._start_models(replicate(self._models(batch), self.mesh))

    def _models(self, batch: TrialBatch) -> list[Any]:
        return [initial_model(seed, init=self._init) for seed in np.atleast_1d(batch.trials.seed)]

    def _start_models(self, models: list[Any]) -> State:
        return _start(models, program=self.program, num_clients=self.num_clients, mesh=self.mesh)

    def _structures(self) -> list[State]:
        """Return the shapes of the states, without computing anything."""
        return [jax.eval_shape(lambda batch=batch: self._start_models(self._models(batch))) for batch in self.batches]

    def _run_rounds(self, batch: TrialBatch, state: State, num_rounds: int) -> tuple[State, Record]:
        return _advance(
            self.data, batch.trials, state, program=self.program, num_rounds=num_rounds, size=batch.size,
            shared_availability=batch.shared_availability, mesh=self.mesh,
        )  # fmt: skip

    def measure(self, states: Sequence[State], *, last: bool = True) -> Measured:
        """Return the scores on the full training and test sets, and the error of the average of remembered parts."""
        del last
        num_tests = len(self.federations[0].test_labels)
        parts = [
            _measure(
                *self._samples_here, state, functions=self._scoring, num_labels=self.num_labels, num_tests=num_tests,
                mesh=self.mesh,
            )
            for state in states
        ]  # fmt: skip
        measured: Measured = fetch(parts)
        return measured if states[0].total else measured._replace(average_error=None)

    @property
    def averages_quickly(self) -> bool:
        """Whether the mean over all rows is taken at every evaluation: always."""
        return True

    def compilations(self, block_lengths: Iterable[int]) -> list[Compilation]:
        """Return nothing: the programs of several devices are compiled when they are called."""
        del block_lengths
        return []

    @property
    def bytes_needed(self) -> int:
        """Memory for the samples and for the state of every trial; what training needs temporarily is not counted."""
        data, test = self._samples_here
        return self._bytes_here((data.features, data.labels, test), (data, test)) + self.state_bytes

    @property
    def state_bytes(self) -> int:
        """Memory for the state of every trial."""
        structures = self._structures()
        return self._bytes_here([structure.clients for structure in structures], structures)

    def _bytes_here(self, divided: Any, everything: Any) -> int:
        """Return how much of some arrays lies on one accelerator, or on all CPU devices of this process together."""
        sharers = len(self.mesh.local_devices) if jax.default_backend() == "cpu" else 1
        return sharers * (nbytes(divided) // self.num_devices + nbytes(everything) - nbytes(divided))

    def check_memory(self) -> None:
        """Raise ConfigError if the state does not fit into the memory that the samples leave; allocates nothing."""
        room = available_bytes()
        if room is not None and self.state_bytes > room:
            raise ConfigError(
                f"the run needs {self.state_bytes / 2**30:.1f} GiB of memory in addition to its data, "
                f"{room / 2**30:.1f} GiB are available; use more devices, fewer clients, fewer seeds or a smaller model"
            )

    def named_parts(self, states: Sequence[State], trials: slice) -> dict[str, list[Any]]:
        """Return the named arrays of some trials' states as lists of parts [trials, ...], without copying them."""
        parts: dict[str, list[Any]] = {}
        for offset, state in zip(self._offsets, states, strict=True):
            divided = _names_of_rows(state)
            for name, leaf in named_leaves(state).items():
                first, last = max(trials.start - offset, 0), min(trials.stop - offset, leaf.shape[0])
                if first < last and name in divided:
                    parts.setdefault(name, []).append(RowsPart(leaf, first, last, self.num_clients))
                elif first < last:
                    parts.setdefault(name, []).append(ArrayPart(np.asarray(leaf), first, last))
        return parts

    def restore(self, sources: Sequence[ArrayFile | None]) -> list[State]:
        """Return states from the checkpoints of the specs, in their order; the inverse of `named_parts`.

        A checkpoint does not depend on the number of devices. Only the first process has the files.

        Raises:
            RunFolderError: If an array is missing or has another shape or type.
        """
        files = [source for source in sources if source is not None]
        trials = saved_trials(files, len(self.seeds) // len(sources))
        saved: list[dict[str, Any]] = []

        def read() -> None:
            for offset, batch, structure in zip(self._offsets, self.batches, self._structures(), strict=True):
                saved.append(self._read_batch(trials[offset : offset + batch.size], batch, structure))

        from_first(read)
        return [self._place(saved[number] if saved else {}, like) for number, like in enumerate(self._structures())]

    def _read_batch(self, trials: list[SavedTrial], batch: TrialBatch, structure: State) -> dict[str, Any]:
        """Return the arrays of a batch in checkpoints by name; clients' rows are read when they are placed."""
        clients = jax.device_get(start_clients(self._models(batch), program=self.program))
        initial = {f"clients.{name}": leaf for name, leaf in named_leaves(clients).items()}
        return {
            name: SavedRows(trials, name, initial[name], self.num_clients)
            if name in initial
            else np.stack([trial.read(name, like.shape[1:], like.dtype) for trial in trials])
            for name, like in named_leaves(structure).items()
        }

    def _place(self, arrays: Mapping[str, Any], structure: State) -> State:
        """Return a state on the devices from arrays that only the first process has."""
        divided = _names_of_rows(structure)
        leaves = [
            place(arrays.get(name), like, NamedSharding(self.mesh, DIVIDED_ROWS if name in divided else REPLICATED))
            for name, like in named_leaves(structure).items()
        ]
        placed: State = jax.tree.unflatten(jax.tree.structure(structure), leaves)
        return placed


@partial(jax.jit, static_argnames=("program", "num_clients", "mesh"))
def _start(models: list[Any], *, program: Program, num_clients: int, mesh: Mesh) -> State:
    start = partial(start_trials, program=program, num_clients=num_clients)
    return on_each_device(start, mesh, in_specs=REPLICATED, out_specs=STATE_SPECS)(models)


@partial(
    jax.jit,
    static_argnames=("program", "num_rounds", "size", "shared_availability", "mesh"),
    donate_argnames="state",
)
def _advance(data: DeviceData, trials: Trial, state: State, *, mesh: Mesh, **static: Any) -> tuple[State, Record]:
    def advance(data: DeviceData, trials: Trial, state: State) -> tuple[State, Record]:
        return advance_trials(data, trials, state, **static)

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
    mesh: Mesh,
) -> Measured:
    apply, loss, native = functions.value

    def measure(data: DeviceData, test: TestSet, state: State) -> Measured:
        add_up = partial(tally, apply, loss, state.server.params, table=data.table, native=native)
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
        return jax.vmap(partial(measure, data, test))(state)

    specs = (DATA_SPECS, DIVIDED, STATE_SPECS)
    return on_each_device(measure_all, mesh, in_specs=specs, out_specs=REPLICATED)(data, test, state)


_ON_DEVICES: WeakKeyDictionary[Federation, dict[Mesh, tuple[DeviceData, TestSet]]] = WeakKeyDictionary()


def _sharded_data(federation: Federation, mesh: Mesh) -> tuple[DeviceData, TestSet]:
    """Return training and test samples on the devices, copied once per federation however many engines use it."""
    copies = _ON_DEVICES.setdefault(federation, {})
    if mesh not in copies:
        copies[mesh] = shard_data(federation, mesh)
    return copies[mesh]


def _names_of_rows(state: State) -> set[str]:
    """Return the names of the arrays that hold a row per client, as `named_leaves` gives them."""
    return {f"clients.{name}" for name in named_leaves(state.clients)}
