"""The compiled simulator: trials that share a program, run side by side, a block of rounds per call.

All programs are compiled by the functions in `rounds.py`: an engine with equal shapes and functions compiles
nothing, and a later process finds the program on disk.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from fedlatest.data import Federation
from fedlatest.errors import ConfigError, DivergedError, FedlatestError
from fedlatest.identity import ByValue
from fedlatest.runs.array_files import ArrayFile
from fedlatest.simulation import rounds
from fedlatest.simulation.checkpoints import named_parts, restore_states
from fedlatest.simulation.compilation_cache import enable_compilation_cache
from fedlatest.simulation.compile_ahead import Compilation
from fedlatest.simulation.device_data import DeviceData, compact, put_on_device
from fedlatest.simulation.evaluation import Score
from fedlatest.simulation.experiment_spec import ExperimentSpec, kernels_of
from fedlatest.simulation.host_rows import HostRows
from fedlatest.simulation.joint_data import join
from fedlatest.simulation.memory import nbytes
from fedlatest.simulation.memory_needs import MemoryNeeds, RunSize, memory_room
from fedlatest.simulation.program import (
    INVALID_COHORT,
    MODEL_NOT_FINITE,
    NOBODY_AVAILABLE,
    Record,
    State,
    Trial,
    client_types,
    initial_state,
)
from fedlatest.simulation.row_storage import RowStorage

MOST_AVERAGED_BYTES = 4 * 2**30  # of rows in host memory or on disk that are averaged at every evaluation
WITHOUT_OPTIONS = "use fewer clients, fewer seeds or a smaller model"


class TrialBatch(NamedTuple):
    """Trials that run side by side in one program; a batch of one carries no axis of trials."""

    trials: Trial
    size: int
    shared_availability: bool  # all trials have the same, which then carries no axis of trials
    federations: tuple[int, ...]  # of each trial, the position in Engine.federations


class Measured(NamedTuple):
    """An evaluation of all trials, each field [trials]."""

    train: Score
    test: Score
    average_error: Any  # None for an algorithm that remembers nothing, and where it would take too long


class Engine:
    """Runs every seed of some specs that share a program; states and records carry a leading axis [trials].

    Trials are ordered by spec, then seed. On an accelerator they run side by side in one program. On a CPU each is a
    batch of one and they take turns: there, the products of small models are slower when batched.

    Where the specs leave open how the clients' states are stored, there is a row for every client if these fit into
    memory, and otherwise rows for clients that have taken part; `notes` then says so.

    Args:
        specs: Experiments with equal `batch_key`.
        clients_at_once: How many clients of a cohort train together; see `ExperimentSpec.program`.

    Raises:
        ConfigError: If the specs do not share a program.
    """

    def __init__(self, specs: Sequence[ExperimentSpec], *, clients_at_once: int | None = None) -> None:
        first = specs[0]
        if any(spec.batch_key != first.batch_key for spec in specs):
            raise ConfigError(
                "these experiments cannot share a compiled program: they differ in functions, shapes, number of "
                "clients, seeds or rounds; simulate them separately"
            )
        enable_compilation_cache()
        self.federations = list(dict.fromkeys(spec.executed.federation for spec in specs))
        numbers = [self.federations.index(spec.executed.federation) for spec in specs for _ in spec.seeds]
        trials = [trial for spec in specs for trial in spec.trials()]
        if len(self.federations) > 1:
            trials = [trial._replace(federation=jnp.int32(n)) for trial, n in zip(trials, numbers, strict=True)]
        self.seeds = np.array([trial.seed for trial in trials], np.uint32)  # [trials]
        self.batches = _batches(trials, numbers)
        self._init = ByValue(first.model.init)
        self._scoring = ByValue((first.model.apply, first.loss, kernels_of(first.model)))
        federation = self.federations[0]
        self.num_clients = federation.num_clients
        self.num_labels = federation.num_labels if federation.has_classes else 0
        self._spec = first
        self.num_devices = 1
        self.notes: list[str] = []
        self._prepare(first, clients_at_once)

    def _prepare(self, first: ExperimentSpec, clients_at_once: int | None) -> None:
        """Choose the program and copy the samples to the device."""
        self.program = first.program(clients_at_once, num_trials=self.batches[0].size)
        self._parts = [_device_data(federation) for federation in self.federations]
        if first.client_rows == "auto" and not self.needs.fits(memory_room()):
            self._store_seen_rows(clients_at_once)

    @cached_property
    def data(self) -> DeviceData:
        """The training samples of all federations on the device."""
        return join([data for data, _ in self._parts])

    def start(self) -> list[State]:
        """Return the states before round 0, one per batch; each seed has its own initial model."""
        return [self._start_batch(batch) for batch in self.batches]

    def _start_batch(self, batch: TrialBatch) -> State:
        models = [rounds.initial_model(seed, init=self._init) for seed in np.atleast_1d(batch.trials.seed)]
        storage = self.program.storage
        state = rounds.start(models, program=self.program, num_clients=self.num_clients)
        if storage.on_device:
            return state
        clients = rounds.start_clients(models, program=self.program)
        types = client_types(self.program, models[0]).stored
        rows = HostRows(clients, types, rows=storage.rows, num_clients=self.num_clients, capacity=storage.capacity)
        return state._replace(clients=rows)

    def advance(self, states: Sequence[State], num_rounds: int) -> tuple[list[State], Record]:
        """Run rounds and return the new states and the records, NumPy arrays [trials, rounds, ...].

        The given states must not be used afterwards: their buffers are donated.
        """
        done = [
            self._advance_batch(batch, state, num_rounds)
            for batch, state in zip(self.batches, states, strict=True)
        ]  # fmt: skip
        return [state for state, _ in done], fetch([record for _, record in done])

    def _advance_batch(self, batch: TrialBatch, state: State, num_rounds: int) -> tuple[State, Record]:
        if self.program.storage.rows != "all" and int(state.round[0]) + num_rounds > self._spec.rounds:
            raise ValueError(f"the rows suffice for {self._spec.rounds} rounds, the number of rounds of the spec")
        algorithm = self.program.algorithm
        try:
            return self._run_rounds(batch, state, num_rounds)
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            if isinstance(error, FedlatestError) or algorithm.merge.__module__.startswith("fedlatest."):
                raise
            raise ConfigError(
                f"algorithm {algorithm.name}: a round cannot be compiled ({type(error).__name__}: "
                f"{(str(error).splitlines() or [''])[0]}); docs/algorithms.md says what its functions must return"
            ) from error

    def _run_rounds(self, batch: TrialBatch, state: State, num_rounds: int) -> tuple[State, Record]:
        on_device = self.program.storage.on_device
        advance = rounds.advance if on_device else rounds.advance_from_host
        return advance(
            self.data, batch.trials, state, program=self.program, num_rounds=num_rounds, size=batch.size,
            shared_availability=batch.shared_availability,
        )  # fmt: skip

    def measure(self, states: Sequence[State], *, last: bool = True) -> Measured:
        """Return the scores on the full training and test sets, and the error of the average of remembered parts.

        The error requires all rows. Where these are many and not on an accelerator, it is measured only if `last`.
        """
        scores, trials = [], []
        for offset, batch, state in zip(self._offsets, self.batches, states, strict=True):
            for number, own in _trials_by_federation(batch):
                params = state.server.params
                if len(own) < batch.size:
                    params = jax.tree.map(lambda leaf, own=own: leaf[own], params)
                samples = self._samples(number)
                scores.append(rounds.score(params, *samples, functions=self._scoring, num_labels=self.num_labels))
                trials.append(offset + own)
        position = np.argsort(np.concatenate(trials))
        train, test = jax.tree.map(lambda leaf: leaf[position], fetch(scores))
        with_error = bool(states[0].total) and (last or self.averages_quickly)
        return Measured(train, test, fetch([self._error_of(state) for state in states]) if with_error else None)

    @property
    def averages_quickly(self) -> bool:
        """Whether the mean over all rows can be taken at every evaluation."""
        if self.program.storage.on_device and jax.default_backend() != "cpu":
            return True
        return self._size.rows_bytes(self.program.storage) <= MOST_AVERAGED_BYTES

    def _error_of(self, state: State) -> Any:
        if isinstance(state.clients, HostRows):
            return rounds.host_average_errors(state, state.clients)
        return rounds.average_errors(state, program=self.program)

    def _samples(self, number: int) -> tuple[Any, Any, jax.Array | None]:
        """Return the training samples, the test samples and the table of words of one federation."""
        data, test = self._parts[number]
        return (data.features, data.labels), test, data.table

    def failures(self, states: Sequence[State], *, ended: Sequence[bool] | None = None) -> list[FedlatestError | None]:
        """Return the first failure of each trial, or None.

        Args:
            states: The states of all trials.
            ended: Trials whose virtual time is over, in which it does not matter if nobody is available any more.
        """
        parts = [(state.failure, state.failed_round, state.failed_client) for state in states]
        failure, *others = (np.concatenate(column) for column in zip(*jax.device_get(parts), strict=True))
        if ended is not None:
            failure = np.where(np.asarray(ended) & (failure == NOBODY_AVAILABLE), 0, failure)
        return [
            self._failure(*values) if values[1] else None
            for values in zip(self.seeds.tolist(), failure, *others, strict=True)
        ]

    def _failure(self, seed: int, failure: int, round: int, client: int) -> FedlatestError:
        if failure == INVALID_COHORT:
            return ConfigError(
                f"algorithm {self.program.algorithm.name}: select returned a position twice, outside "
                f"0 .. {self.num_clients - 1} or of an unavailable client in round {round} (seed {seed})"
            )
        if failure == NOBODY_AVAILABLE:
            return ConfigError(
                f"availability: no update arrives after {round} server steps (seed {seed}): no client is available any "
                "more, or all that start fail; use fewer rounds, an availability model that repeats, shorter delays or "
                "interruption='pause'"
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

    def compilations(self, block_lengths: Iterable[int]) -> list[Compilation]:
        """Return the programs that `start`, `advance` (of these numbers of rounds) and `measure` call."""
        if not self.program.storage.on_device:
            return []  # the round is divided into several programs, which take less long to compile
        parts = [data for data, _ in self._parts]
        data, states = jax.eval_shape(join, parts), jax.eval_shape(self.start)
        scoring = {"functions": self._scoring, "num_labels": self.num_labels}
        found = [Compilation(rounds.initial_model, (jax.ShapeDtypeStruct((), np.uint32),), {"init": self._init})]
        for batch, state in zip(self.batches, states, strict=True):
            static = {"program": self.program, "size": batch.size, "shared_availability": batch.shared_availability}
            found += [
                Compilation(rounds.advance, (data, batch.trials, state), {**static, "num_rounds": length})
                for length in block_lengths
            ]
            for number, own in _trials_by_federation(batch):
                params = _with_length(len(own), state.server.params)
                found.append(Compilation(rounds.score, (params, *self._samples(number)), scoring))
            models = [_with_length(None, state.server.params)] * batch.size
            found.append(
                Compilation(rounds.start, (models,), {"program": self.program, "num_clients": self.num_clients})
            )
            if state.total:
                found.append(Compilation(rounds.average_errors, (state,), {"program": self.program}))
        return found

    @property
    def bytes_needed(self) -> int:
        """Memory of the device for the samples, for the state of every trial and, by an estimate, for training."""
        return nbytes(self._parts) + self.needs.device

    @property
    def _joined_bytes(self) -> int:
        """Memory for the joined copy of several federations."""
        parts = [data for data, _ in self._parts]
        return nbytes(jax.eval_shape(join, parts)) if len(parts) > 1 else 0

    @property
    def state_bytes(self) -> int:
        """Memory of the device for the state of every trial."""
        return self.needs.device - self._size.training_bytes

    @property
    def needs(self) -> MemoryNeeds:
        """What the run needs beside its samples."""
        return self._size.needs(self.program.storage)

    @cached_property
    def _size(self) -> RunSize:
        spec, num_clients, num_trials = self._spec, self.num_clients, len(self.seeds)
        without_rows = replace(self.program, storage=RowStorage("host"))
        one_trial = jax.eval_shape(
            lambda key: initial_state(without_rows, self._init.value(key), num_clients), jax.random.key(0)
        )
        at_once = self.program.clients_at_once * self.batches[0].size
        return RunSize(
            one=spec.one_client,
            num_clients=num_clients,
            capacity=spec.capacity,
            num_trials=num_trials,
            other_bytes=num_trials * nbytes(one_trial),
            training_bytes=at_once * spec.client_training_bytes + self._joined_bytes,
        )

    def check_memory(self) -> None:
        """Raise ConfigError if the run does not fit into the memory that the samples leave; allocates nothing."""
        room = memory_room()
        if self.needs.fits(room):
            return
        options = self._size.alternatives(self.program.storage, room)
        advice = f"it would fit with {', or '.join(options)}" if options else WITHOUT_OPTIONS
        raise ConfigError(f"{self.needs.explain(room)}; {advice}")

    def _store_seen_rows(self, clients_at_once: int | None) -> None:
        """Store only rows of clients that have taken part, if that makes the run fit."""
        program = self._spec.program(clients_at_once, rows="seen", num_trials=self.batches[0].size)
        if not self._size.needs(program.storage).fits(memory_room()):
            return
        every, seen = (self._size.rows_bytes(each.storage) / 2**30 for each in (self.program, program))
        self.notes.append(
            f"client_rows=seen: rows for all {self.num_clients} clients ({every:.1f} GiB) do not fit into "
            f"memory; rows for the {self._spec.capacity} that can take part ({seen:.1f} GiB) do, with the same results"
        )
        self.program = program

    def named_parts(self, states: Sequence[State], trials: slice) -> dict[str, list[Any]]:
        """Return the named arrays of some trials' states as lists of parts [trials, ...], without copying them."""
        return named_parts(states, self._offsets, trials)

    def restore(self, sources: Sequence[ArrayFile | None]) -> list[State]:
        """Return states from the checkpoints of the specs, in their order; the inverse of `named_parts`.

        Raises:
            RunFolderError: If an array is missing or has another shape or type.
        """
        files = [source for source in sources if source is not None]
        return restore_states(self.start(), files, len(self.seeds) // len(files))

    @cached_property
    def _offsets(self) -> list[int]:
        """The first trial of each batch."""
        return [0, *np.cumsum([batch.size for batch in self.batches])[:-1].tolist()]

    def params(self, states: Sequence[State]) -> Any:
        """Return the models of all trials as NumPy arrays [trials, ...]."""
        return fetch([state.server.params for state in states])


_ON_DEVICE: WeakKeyDictionary[Federation, tuple[DeviceData, Any]] = WeakKeyDictionary()


def _device_data(federation: Federation) -> tuple[DeviceData, Any]:
    """Return training and test samples on the device, copied once per federation however many engines use it."""
    if federation not in _ON_DEVICE:
        test = jax.tree.map(jnp.asarray, (compact(federation.test_features), federation.test_labels))
        _ON_DEVICE[federation] = put_on_device(federation), test
    return _ON_DEVICE[federation]


def _batches(trials: list[Trial], federations: list[int]) -> list[TrialBatch]:
    """Put all trials into one batch on an accelerator, each into its own on a CPU."""
    if not _side_by_side() or len(trials) == 1:
        return [TrialBatch(trial, 1, True, (number,)) for trial, number in zip(trials, federations, strict=True)]
    first = trials[0].availability
    shared = all(trial.availability is first for trial in trials)

    def stack(*leaves: Any) -> jax.Array:
        return jnp.stack(leaves)

    columns = [
        [None] * len(trials) if shared and column[0] is first else column for column in zip(*trials, strict=True)
    ]
    stacked = Trial._make(jax.tree.map(stack, *column) for column in columns)
    together = stacked._replace(availability=first) if shared else stacked
    return [TrialBatch(together, len(trials), shared, tuple(federations))]


def _trials_by_federation(batch: TrialBatch) -> list[tuple[int, npt.NDArray[np.intp]]]:
    """Return each federation of a batch with the positions of its trials."""
    numbers = np.array(batch.federations)
    return [(number, np.flatnonzero(numbers == number)) for number in dict.fromkeys(batch.federations)]


def _with_length(length: int | None, tree: Any) -> Any:
    """Return the shapes of a tree with another length of the first axis, or without that axis."""
    first = () if length is None else (length,)
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((*first, *leaf.shape[1:]), leaf.dtype), tree)


def _side_by_side() -> bool:
    return jax.default_backend() != "cpu"


def fetch(parts: list[Any]) -> Any:
    """Fetch what the batches returned, all at once, as NumPy arrays [trials, ...]."""
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *jax.device_get(parts))
