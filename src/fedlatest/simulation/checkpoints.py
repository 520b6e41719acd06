"""States as named arrays in a file, and back, a block of rows at a time: neither direction copies all rows.

A checkpoint contains the rows of the clients either for all clients, or for those that have taken part together with
`slots.row_of`. A run may be resumed with another `RowStorage.rows` than the one that wrote the checkpoint.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from fedlatest.algorithms.base import NEVER, ClientState
from fedlatest.errors import RunFolderError
from fedlatest.runs.array_files import ArrayFile
from fedlatest.simulation.host_rows import HostRows, row_blocks
from fedlatest.simulation.program import State
from fedlatest.simulation.row_storage import NO_ROW, RowSlots
from fedlatest.trees import check_array, named_leaves

ROW_OF = "slots.row_of"


class ArrayPart(NamedTuple):
    """Trials first .. last - 1 of an array [trials, ...] on the device or in host memory, fetched block by block."""

    array: Any
    first: int
    last: int
    num_rows: int | None = None  # only the first rows of each trial, for an array [trials, rows, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the part."""
        rest = self.array.shape[1:] if self.num_rows is None else (self.num_rows, *self.array.shape[2:])
        return (self.last - self.first, *rest)

    @property
    def dtype(self) -> Any:
        """The type of the array."""
        return self.array.dtype

    def blocks(self) -> Iterator[npt.NDArray[Any]]:
        """Yield the part in order, in blocks of rows; an array that is in host memory is not copied."""
        local = _on_host(self.array)
        if local is None and self.array.ndim < 2:
            local = np.asarray(self.array)
        if local is not None:
            part = local[self.first : self.last]
            yield from [part] if self.num_rows is None else (trial[: self.num_rows] for trial in part)
            return
        for trial in range(self.first, self.last):
            for first, last in row_blocks(self.array, self.shape[1]):
                yield np.asarray(_read_block(self.array, trial, first, size=last - first))


def named_parts(states: Sequence[State], offsets: Sequence[int], trials: slice) -> dict[str, list[Any]]:
    """Return the named arrays of some trials' states as lists of parts [trials, ...], without copying them.

    Args:
        states: The states of all batches.
        offsets: The first trial of each batch.
        trials: The trials whose states are wanted.
    """
    batches = []
    for offset, state in zip(offsets, states, strict=True):
        size = state.round.shape[0]
        first, last = max(trials.start - offset, 0), min(trials.stop - offset, size)
        if first < last:
            batches.append((_with_slots(state), first, last))
    used = [np.asarray(state.slots.num_used) for state, *_ in batches if state.slots is not None]
    num_rows = max((int(each.max()) for each in used), default=None)
    parts: dict[str, list[Any]] = {}
    for state, first, last in batches:
        for name, leaf in named_leaves(state).items():
            is_row = num_rows is not None and name.startswith("clients.")
            parts.setdefault(name, []).append(ArrayPart(leaf, first, last, num_rows if is_row else None))
    return parts


def restore_states(states: Sequence[State], sources: Sequence[ArrayFile], num_seeds: int) -> list[State]:
    """Return states from checkpoints, the inverse of `named_parts`.

    Args:
        states: The states before round 0, one per batch; their buffers are donated.
        sources: The checkpoints, each of `num_seeds` trials.
        num_seeds: The number of trials in each checkpoint.

    Raises:
        RunFolderError: If an array is missing or has another shape or type.
    """
    trials = saved_trials(sources, num_seeds)
    restored, offset = [], 0
    for state in states:
        size = state.round.shape[0]
        restored.append(_restore_batch(state, trials[offset : offset + size]))
        offset += size
    return restored


def saved_trials(sources: Sequence[ArrayFile], num_seeds: int) -> "list[SavedTrial]":
    """Return the trials of some checkpoints, each of `num_seeds` trials."""
    return [SavedTrial(source, number, num_seeds) for source in sources for number in range(num_seeds)]


class SavedTrial(NamedTuple):
    """One trial of a checkpoint."""

    source: ArrayFile
    number: int
    num_seeds: int

    def read(self, name: str, shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
        """Return one array of the trial, as a view of the file."""
        like = jax.ShapeDtypeStruct((self.num_seeds, *shape), dtype)
        return check_array(self.source.mapped(name), name, like, source=self.source.path)[self.number]

    def rows(self, name: str, shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
        """Return the rows of the trial's clients, of which there may be any number, as a view of the file."""
        found = self.source.mapped(name)
        num_rows = found.shape[1] if found is not None and found.ndim > 1 else 0
        return self.read(name, (num_rows, *shape), dtype)

    def row_of(self, seen: npt.NDArray[Any], num_clients: int) -> npt.NDArray[np.int32]:
        """Return which row of the checkpoint belongs to which client [N], or NO_ROW.

        Args:
            seen: The clients that have taken part.
            num_clients: The number of clients, N.

        Raises:
            RunFolderError: If the checkpoint is damaged: not each client that has taken part has a row of its own.
        """
        if ROW_OF not in self.source:
            row_of = np.full(num_clients, NO_ROW, np.int32)
            row_of[seen] = seen
            return row_of
        row_of = np.array(self.read(ROW_OF, (num_clients,), np.int32))
        complete = np.array_equal(np.flatnonzero(row_of != NO_ROW), seen)
        if not (complete and np.array_equal(np.sort(row_of[seen]), np.arange(seen.size))):
            raise RunFolderError(
                f"{self.source.path}: damaged: {ROW_OF} does not match the clients that have taken part; "
                "start the run again"
            )
        return row_of

    def seen(self, num_clients: int) -> npt.NDArray[np.int32]:
        """Return the clients that have taken part."""
        last_round = self.read("last_round", (num_clients,), np.int32)
        return np.flatnonzero(last_round != NEVER).astype(np.int32)

    def client_rows(self, name: str, sources: npt.NDArray[Any], shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
        """Return the rows of the trial, as a view of the file; raise RunFolderError if a source is not among them."""
        saved = self.rows(name, shape, dtype)
        if sources.size and sources.max() >= len(saved):
            raise RunFolderError(f"{self.source.path}: holds {len(saved)} rows for {name}, {sources.max() + 1} needed")
        return saved


class SavedRows:
    """The rows [trials, N, ...] of all clients in checkpoints; indexing reads a part of them.

    Args:
        trials: The trials.
        name: The name of the array.
        initial: [trials, ...] the state of clients that have not taken part.
        num_clients: The number of clients, N.

    Raises:
        RunFolderError: If an array is missing or has another shape or type.
    """

    def __init__(self, trials: "list[SavedTrial]", name: str, initial: npt.NDArray[Any], num_clients: int) -> None:
        self.initial = initial
        self.row_of = [trial.row_of(trial.seen(num_clients), num_clients) for trial in trials]
        self.rows = [
            trial.client_rows(name, row_of, initial.shape[1:], initial.dtype)
            for trial, row_of in zip(trials, self.row_of, strict=True)
        ]

    def __getitem__(self, index: tuple[slice, ...]) -> npt.NDArray[Any]:
        """Return some trials' rows of some clients."""
        trials, clients, *rest = index
        parts = []
        for row_of, rows, initial in zip(self.row_of[trials], self.rows[trials], self.initial[trials], strict=True):
            wanted = row_of[clients]
            part = np.repeat(initial[None], wanted.size, axis=0)
            part[wanted != NO_ROW] = rows[wanted[wanted != NO_ROW]]
            parts.append(part)
        return np.stack(parts)[(slice(None), slice(None), *rest)]


def _restore_batch(state: State, trials: list[SavedTrial]) -> State:
    plain = state._replace(clients=ClientState(), slots=None)
    leaves = [
        jnp.asarray(np.stack([trial.read(name, leaf.shape[1:], leaf.dtype) for trial in trials]))
        for name, leaf in named_leaves(plain).items()
    ]
    restored: State = jax.tree.unflatten(jax.tree.structure(plain), leaves)
    last_round = np.asarray(restored.last_round)
    num_clients = last_round.shape[1]
    clients, tables = state.clients, []
    for number, (trial, rounds) in enumerate(zip(trials, last_round, strict=True)):
        seen = np.flatnonzero(rounds != NEVER).astype(np.int32)
        saved = trial.row_of(seen, num_clients)
        compact = isinstance(clients, HostRows) or state.slots is not None
        table = _compact_rows(trial, saved, seen) if compact else np.arange(num_clients, dtype=np.int32)
        clients = _copy_rows(trial, clients, number, saved[seen], table[seen])
        tables.append((table, seen.size))
    row_of, num_used = np.stack([table for table, _ in tables]), np.array([used for _, used in tables], np.int32)
    if isinstance(clients, HostRows):
        clients.row_of, clients.num_used = row_of, num_used
        return restored._replace(clients=clients)
    slots = None if state.slots is None else RowSlots(jnp.asarray(row_of), jnp.asarray(num_used))
    return restored._replace(clients=clients, slots=slots)


def _compact_rows(trial: SavedTrial, saved: npt.NDArray[np.int32], seen: npt.NDArray[np.int32]) -> npt.NDArray[Any]:
    """Return which row belongs to which client [N] if only clients that have taken part have one."""
    if ROW_OF in trial.source:
        return saved
    row_of = np.full_like(saved, NO_ROW)
    row_of[seen] = np.arange(seen.size)
    return row_of


def _copy_rows(
    trial: SavedTrial, clients: Any, number: int, sources: npt.NDArray[Any], targets: npt.NDArray[Any]
) -> Any:
    """Copy rows of a checkpoint to the rows of a trial, in the order of the targets."""
    order = np.argsort(targets, kind="stable")
    sources, targets = sources[order], targets[order]
    tree = clients.arrays if isinstance(clients, HostRows) else clients
    copied = []
    for name, leaf in named_leaves({"clients": tree}).items():
        saved = trial.client_rows(name, sources, leaf.shape[2:], leaf.dtype)
        for first, last in row_blocks(leaf, targets.size):
            block = saved[sources[first:last]]
            if isinstance(leaf, np.ndarray):
                leaf[number, targets[first:last]] = block
            else:
                leaf = _write_block(leaf, number, targets[first:last], block)
        copied.append(leaf)
    return clients if isinstance(clients, HostRows) else jax.tree.unflatten(jax.tree.structure(tree), copied)


def _with_slots(state: State) -> State:
    """Return the state with its rows as arrays, wherever they are stored."""
    rows = state.clients
    if not isinstance(rows, HostRows):
        return state
    return state._replace(clients=rows.arrays, slots=RowSlots(rows.row_of, rows.num_used))  # type: ignore[arg-type]


def _on_host(array: Any) -> npt.NDArray[Any] | None:
    """Return an array that is in host memory as a NumPy array, without a copy; None if it is not."""
    if isinstance(array, np.ndarray):
        return array
    devices = array.devices()
    return np.asarray(array) if len(devices) == 1 and next(iter(devices)).platform == "cpu" else None


@partial(jax.jit, static_argnames="size")
def _read_block(array: jax.Array, trial: int, first: int, *, size: int) -> jax.Array:
    begin = (trial, first, *[0] * (array.ndim - 2))
    return jax.lax.dynamic_slice(array, begin, (1, size, *array.shape[2:]))


@partial(jax.jit, donate_argnames="leaf")
def _write_block(leaf: jax.Array, trial: int, rows: jax.Array, block: jax.Array) -> jax.Array:
    return leaf.at[trial, rows].set(block, unique_indices=True)
