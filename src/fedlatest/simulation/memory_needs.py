"""What a run needs in memory and on disk, whether that fits, and which way of storing client states would fit.

What training needs is an estimate, since only the compiled program would tell: for each client that trains at the same
time the values that are live in a local step if XLA fused nothing, three models (where it starts, before and after a
step), the client optimizer's state and three rows (old, new, difference).
"""

from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedlatest.algorithms.base import ClientState
from fedlatest.identity import ByValue
from fedlatest.simulation.device_data import expand
from fedlatest.simulation.host_rows import free_disk_bytes
from fedlatest.simulation.memory import available_bytes, available_host_bytes, nbytes, peak_bytes
from fedlatest.simulation.row_storage import RememberedType, Rows, RowStorage, row_types


class MemoryRoom(NamedTuple):
    """Bytes that are available; None where that is not known."""

    device: int | None
    host: int | None
    disk: int | None
    shared: bool  # the device's memory is the host's: it is a CPU


def memory_room() -> MemoryRoom:
    """Return what is available now."""
    shared = jax.devices()[0].platform == "cpu"
    return MemoryRoom(available_bytes(), available_host_bytes(), free_disk_bytes(), shared)


class MemoryNeeds(NamedTuple):
    """Bytes that a run needs beside its samples: on the device, in host memory outside the device, and on disk."""

    device: int
    host: int = 0
    disk: int = 0

    def fits(self, room: MemoryRoom) -> bool:
        """Return whether this much is available."""
        return all(free is None or needed <= free for needed, free, _ in self._compared(room))

    def explain(self, room: MemoryRoom) -> str:
        """Return what is needed and what is available, for an error message."""
        compared = [(needed, free, what) for needed, free, what in self._compared(room) if needed]
        needs = " and ".join(f"{_gib(needed)} of {what}" for needed, _, what in compared)
        have = " and ".join(_gib(free) for _, free, _ in compared if free is not None)
        return f"the run needs {needs} in addition to its data, {have} are available"

    def _compared(self, room: MemoryRoom) -> list[tuple[int, int | None, str]]:
        if room.shared:
            memory = [(self.device + self.host, room.device, "memory")]
        else:
            memory = [(self.device, room.device, "device memory"), (self.host, room.host, "host memory")]
        return [*memory, (self.disk, room.disk, "disk space")]


class RunSize(NamedTuple):
    """The sizes from which a run's needs follow."""

    one: ClientState  # shapes of one client's state
    num_clients: int
    capacity: int  # clients that can take part
    num_trials: int
    other_bytes: int  # the state of all trials without rows
    training_bytes: int  # an estimate, with the joined copy of several federations

    def rows_bytes(self, storage: RowStorage) -> int:
        """Return the size of the rows of all trials."""
        sized = replace(storage, capacity=self.capacity)
        return self.num_trials * sized.num_rows(self.num_clients) * nbytes(row_types(sized, self.one).stored)

    def needs(self, storage: RowStorage) -> MemoryNeeds:
        """Return what a run with this storage needs beside its samples."""
        rows, working = self.rows_bytes(storage), self.other_bytes + self.training_bytes
        table = 0 if storage.rows == "all" else 4 * self.num_trials * self.num_clients  # which row is whose
        if storage.rows == "host":
            return MemoryNeeds(working, host=rows + table)
        if storage.rows == "disk":
            return MemoryNeeds(working, host=table, disk=rows)
        return MemoryNeeds(working + rows + table)

    def alternatives(self, storage: RowStorage, room: MemoryRoom) -> list[str]:
        """Return the options with which the run would fit; those that change results come last."""
        found: dict[Rows, str] = {}
        types: list[RememberedType | None] = [storage.dtype] if storage.dtype else [None, "bfloat16"]
        kinds: list[Rows] = ["all", "seen", "host", "disk"]
        if self.capacity >= self.num_clients:
            kinds.remove("seen")
        if room.shared:
            kinds.remove("host")
        for dtype, rows in product(types, kinds):
            needs = self.needs(RowStorage(rows, dtype))
            if rows in found or not needs.fits(room):
                continue
            options = [f"client_rows={rows}"] if rows != storage.rows else []
            options += [f"remembered_dtype={dtype}"] if dtype != storage.dtype else []
            memory = f"{_gib(needs.device + needs.host)} of memory"
            found[rows] = f"{' and '.join(options)} ({memory}{f', {_gib(needs.disk)} of disk' if needs.disk else ''})"
        return list(found.values())


def client_training_bytes(
    model: Any, loss: Any, optimizer: Any, federation: Any, batch_size: int, one: ClientState
) -> int:
    """Return an estimate of the memory that one client needs in training; see the top of this module."""
    features, labels = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((batch_size, *leaf.shape[1:]), leaf.dtype),
        (federation.features, federation.labels),
    )
    table = federation.table
    word_vectors = None if table is None else jax.ShapeDtypeStruct(table.shape, table.dtype)
    leaves, structure = jax.tree.flatten((features, labels, word_vectors))
    shapes = tuple((leaf.shape, np.dtype(leaf.dtype)) for leaf in leaves)
    return _step_bytes(ByValue((model.init, model.apply, loss, optimizer)), shapes, structure) + 3 * nbytes(one)


@lru_cache(maxsize=64)  # many experiments train the same model
def _step_bytes(functions: ByValue, shapes: tuple[Any, ...], structure: Any) -> int:
    init, apply, loss, optimizer = functions.value
    samples = jax.tree.unflatten(
        structure, [jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(dtype)) for shape, dtype in shapes]
    )
    params = jax.eval_shape(init, jax.random.key(0))

    def mean_loss(params: Any, features: Any, labels: Any, table: Any) -> jax.Array:
        return jnp.mean(loss.per_sample(apply(params, expand(features, table)), labels))

    state = None if optimizer is None else jax.eval_shape(optimizer.init, params)
    return peak_bytes(jax.grad(mean_loss), params, *samples) + 3 * nbytes(params) + nbytes(state)


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
