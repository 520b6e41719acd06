"""The compiled simulator: trials that share a program, run side by side, a block of rounds per call.

All programs are compiled by the module-level `jax.jit` functions below, whose static arguments are compared by value:
an engine with equal shapes and functions compiles nothing, and a later process finds the program on disk.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property, partial
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
from fedlatest.simulation.compilation_cache import enable_compilation_cache
from fedlatest.simulation.compile_ahead import Compilation
from fedlatest.simulation.evaluation import Score, evaluate
from fedlatest.simulation.experiment_spec import ExperimentSpec
from fedlatest.simulation.joint_data import join, select
from fedlatest.simulation.local_training import DeviceData, put_on_device
from fedlatest.simulation.memory import available_bytes, nbytes
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
from fedlatest.simulation.storage import compact
from fedlatest.streams import Purpose, bits
from fedlatest.trees import checked, named_leaves


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


class Engine:
    """Runs every seed of some specs that share a program; states and records carry a leading axis [trials].

    Trials are ordered by spec, then seed. On an accelerator they run side by side in one program. On a CPU each is a
    batch of one and they take turns: there, the products of small models are slower when batched.

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
        self.program = first.program(clients_at_once)
        self._init, self._scoring = ByValue(first.model.init), ByValue((first.model.apply, first.loss))
        federation = self.federations[0]
        self.num_clients = federation.num_clients
        self.num_labels = federation.num_labels if federation.has_classes else 0

    @cached_property
    def data(self) -> DeviceData:
        """The training samples of all federations on the device."""
        return join([_device_data(federation)[0] for federation in self.federations])

    def start(self) -> list[State]:
        """Return the states before round 0, one per batch; each seed has its own initial model."""
        states = []
        for batch in self.batches:
            models = [_initial_model(seed, init=self._init) for seed in np.atleast_1d(batch.trials.seed)]
            states.append(_start(models, program=self.program, num_clients=self.num_clients))
        return states

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
                shared_availability=batch.shared_availability,
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
        scores, trials = [], []
        for offset, batch, state in zip(self._offsets, self.batches, states, strict=True):
            for number, own in _trials_by_federation(batch):
                params = state.server.params
                if len(own) < batch.size:
                    params = jax.tree.map(lambda leaf, own=own: leaf[own], params)
                scores.append(
                    _score(params, *self._samples(number), functions=self._scoring, num_labels=self.num_labels)
                )
                trials.append(offset + own)
        position = np.argsort(np.concatenate(trials))
        train, test = jax.tree.map(lambda leaf: leaf[position], _fetch(scores))
        return Measured(train, test, _fetch([_average_error(state) for state in states]) if states[0].total else None)

    def _samples(self, number: int) -> tuple[Any, Any, jax.Array | None]:
        """Return the training samples, the test samples and the table of words of one federation."""
        data, test = _device_data(self.federations[number])
        return (data.features, data.labels), test, data.table

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
                f"0 .. {self.num_clients - 1} or of an unavailable client in round {round} (seed {seed})"
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
        parts = [_device_data(federation)[0] for federation in self.federations]
        data, states = jax.eval_shape(join, parts), jax.eval_shape(self.start)
        scoring = {"functions": self._scoring, "num_labels": self.num_labels}
        found = [Compilation(_initial_model, (jax.ShapeDtypeStruct((), np.uint32),), {"init": self._init})]
        for batch, state in zip(self.batches, states, strict=True):
            static = {"program": self.program, "size": batch.size, "shared_availability": batch.shared_availability}
            found += [
                Compilation(_advance, (data, batch.trials, state), {**static, "num_rounds": length})
                for length in block_lengths
            ]
            for number, own in _trials_by_federation(batch):
                params = _with_length(len(own), state.server.params)
                found.append(Compilation(_score, (params, *self._samples(number)), scoring))
            models = [_with_length(None, state.server.params)] * batch.size
            found.append(Compilation(_start, (models,), {"program": self.program, "num_clients": self.num_clients}))
            if state.total:
                found.append(Compilation(_average_error, (state,), {}))
        return found

    @cached_property
    def bytes_needed(self) -> int:
        """Memory for the samples and for the state of every trial; what training needs temporarily is not counted."""
        return nbytes([_device_data(federation) for federation in self.federations]) + self.state_bytes

    @cached_property
    def state_bytes(self) -> int:
        """Memory for the state of every trial."""
        return nbytes(jax.eval_shape(self.start))

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
            for name, leaf in named_leaves(state).items():
                part = ArrayPart(leaf, max(trials.start - offset, 0), min(trials.stop - offset, leaf.shape[0]))
                if part.first < part.last:
                    parts.setdefault(name, []).append(part)
        return parts

    def restore(self, sources: Sequence[ArrayFile]) -> list[State]:
        """Return states from the checkpoints of the specs, in their order; the inverse of `named_parts`.

        Raises:
            RunFolderError: If an array is missing or has another shape or type.
        """
        structures = jax.eval_shape(self.start)
        leaves: list[list[Any]] = [[] for _ in structures]
        for name, like in named_leaves(structures[0]).items():
            seeds = len(self.seeds) // len(sources)
            expected = jax.ShapeDtypeStruct((seeds, *like.shape[1:]), like.dtype)
            whole = [checked(source, name, expected, source=source.path) for source in sources]
            every = whole[0] if len(whole) == 1 else np.concatenate(whole)
            for batch, (offset, structure) in enumerate(zip(self._offsets, structures, strict=True)):
                size = structure.round.shape[0]
                leaves[batch].append(jnp.asarray(every[offset : offset + size]))
        return [
            jax.tree.unflatten(jax.tree.structure(structure), parts)
            for structure, parts in zip(structures, leaves, strict=True)
        ]

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


@partial(jax.jit, static_argnames=("program", "num_clients"))
def _start(models: list[Any], *, program: Program, num_clients: int) -> State:
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)
    return jax.vmap(lambda params: initial_state(program, params, num_clients))(stacked)


@partial(
    jax.jit,
    static_argnames=("program", "num_rounds", "size", "shared_availability"),
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
) -> tuple[State, Record]:
    def block(trial: Trial, state: State) -> tuple[State, Record]:
        own = select(data, trial.federation)
        after, (record, _) = run_block(program, own, trial, state, length=num_rounds)
        return note_final_model(after), record

    if size > 1:
        axes = Trial._make([0, None if shared_availability else 0, 0, 0, 0, 0])
        return jax.vmap(block, in_axes=(axes, 0))(trials, state)
    # A vmap over one trial would make XLA choose matrix products for a CPU that are a third slower.
    outcome = block(trials, jax.tree.map(lambda leaf: leaf[0], state))
    return jax.tree.map(lambda leaf: leaf[None], outcome)


@partial(jax.jit, static_argnames=("functions", "num_labels"))
def _score(
    params: Any, train: Any, test: Any, table: jax.Array | None, *, functions: ByValue, num_labels: int
) -> tuple[Score, Score]:
    """Return the scores of models [trials, ...] on training and test samples; one program serves all algorithms."""
    apply, loss = functions.value

    def score(params: Any) -> tuple[Score, Score]:
        on = partial(evaluate, apply, loss, params, table=table)
        return on(*train), on(*test, num_labels=num_labels)

    return jax.vmap(score)(params)


@jax.jit
def _average_error(state: State) -> jax.Array:
    return jax.vmap(average_error)(state)


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


def _fetch(parts: list[Any]) -> Any:
    """Fetch what the batches returned, all at once, as NumPy arrays [trials, ...]."""
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *jax.device_get(parts))
