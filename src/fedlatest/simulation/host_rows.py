"""Rows of client state outside the device: in host memory or in a memory-mapped file.

Rows are assigned in order, each when its client first takes part, so that only the rows of clients that have taken
part occupy memory or disk space. The file has no name: it disappears with the process.

Axes: [trials, rows, ...] stored rows, [trials, K, ...] the cohort's.
"""

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from fedlatest.algorithms.base import ClientState, Cohort, Parts
from fedlatest.errors import ConfigError, RunFolderError
from fedlatest.paths import cache_folder
from fedlatest.simulation.row_storage import NO_ROW, Rows

BLOCK_BYTES = 16 * 2**20  # rows are copied in blocks of about this size


class HostRows:
    """The rows of the trials of a batch. `read` and `write` access those of a cohort.

    Args:
        initial: The state of a client before its first round, for each trial, as its bits are stored; [trials, ...].
        types: The types of the numbers in a row.
        rows: "host" or "disk".
        num_clients: The number of clients, N.
        capacity: The number of clients that can take part.
    """

    def __init__(
        self, initial: ClientState, types: ClientState, *, rows: Rows, num_clients: int, capacity: int
    ) -> None:
        self.initial: ClientState = jax.tree.map(np.asarray, initial)
        self.types = types
        num_trials = jax.tree.leaves(self.initial)[0].shape[0]

        self._files: list[_RowFile] = []

        def allocate(leaf: npt.NDArray[Any]) -> npt.NDArray[Any]:
            shape = (num_trials, capacity, *leaf.shape[1:])
            if rows == "host" or 0 in shape:
                return np.zeros(shape, leaf.dtype)
            self._files.append(_RowFile(shape, leaf.dtype))
            return self._files[-1].array

        self.arrays: ClientState = jax.tree.map(allocate, self.initial)
        self.row_of = np.full((num_trials, num_clients), NO_ROW, np.int32)
        self.num_used = np.zeros(num_trials, np.int32)

    def read(self, cohort: Cohort) -> ClientState:
        """Return the states [trials, K, ...] of a cohort [trials, K]."""
        found = np.take_along_axis(self.row_of, _within(cohort.clients, self.row_of.shape[1]), axis=1)

        def gather(stored: npt.NDArray[Any], initial: npt.NDArray[Any]) -> npt.NDArray[Any]:
            states = np.empty((*found.shape, *stored.shape[2:]), stored.dtype)
            for trial, rows in enumerate(found):
                known = rows != NO_ROW
                if known.all():
                    np.take(stored[trial], rows, axis=0, out=states[trial], mode="clip")
                else:
                    states[trial, known] = stored[trial, rows[known]]
                    states[trial, ~known] = initial[trial]
            return states

        return jax.tree.map(gather, self.arrays, self.initial)

    def write(self, cohort: Cohort, states: ClientState) -> None:
        """Store the states [trials, K, ...] of the real clients of a cohort.

        Of a client that is selected twice, which the round reports, the first state is stored.

        Raises:
            RunFolderError: If the disk is full.
        """
        clients, mask = _within(cohort.clients, self.row_of.shape[1]), np.asarray(cohort.mask)
        for trial, marked in enumerate(mask):
            real = _first_of_each(clients[trial], marked)
            rows = self._assign(trial, clients[trial, real])

            def scatter(
                stored: npt.NDArray[Any],
                new: npt.NDArray[Any],
                trial: int = trial,
                real: Any = real,
                rows: Any = rows,
            ) -> None:
                stored[trial, rows] = new[trial] if real.all() else new[trial, real]

            jax.tree.map(scatter, self.arrays, states)

    def mean_of_remembered(self) -> Parts:
        """Return the mean over all clients of their remembered parts, [trials, ...] in float64, block by block."""
        num_clients = self.row_of.shape[1]

        def mean(bits: npt.NDArray[Any], initial: npt.NDArray[Any], like: Any) -> npt.NDArray[np.float64]:
            stored, others = bits.view(like.dtype), num_clients - self.num_used
            totals = initial.view(like.dtype).astype(np.float64) * others.reshape(-1, *[1] * (initial.ndim - 1))
            for trial, used in enumerate(self.num_used.tolist()):
                for first, last in row_blocks(stored, used):
                    totals[trial] += stored[trial, first:last].astype(np.float32).sum(axis=0, dtype=np.float64)
            return totals / num_clients

        return jax.tree.map(mean, self.arrays.remembered, self.initial.remembered, self.types.remembered)

    def _assign(self, trial: int, clients: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Return the rows of clients, after giving the next rows to those that have none."""
        rows = self.row_of[trial, clients]
        new = rows == NO_ROW
        for file in self._files:
            file.reserve(trial, int(self.num_used[trial]), int(new.sum()))
        rows[new] = self.num_used[trial] + np.arange(new.sum(), dtype=np.int32)
        self.row_of[trial, clients] = rows
        self.num_used[trial] += new.sum()
        return rows


def row_blocks(array: Any, num_rows: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of blocks of rows of an array [trials, rows, ...], each of about BLOCK_BYTES."""
    row_bytes = int(np.prod(array.shape[2:], dtype=np.int64)) * np.dtype(array.dtype).itemsize
    size = max(1, BLOCK_BYTES // max(1, row_bytes))
    for first in range(0, num_rows, size):
        yield first, min(first + size, num_rows)


def disk_folder() -> Path:
    """Return the folder in which rows on disk are stored: the cache folder, which is on disk even where /tmp is not."""
    return cache_folder()


def free_disk_bytes() -> int:
    """Return the free space where rows on disk are stored."""
    disk_folder().mkdir(parents=True, exist_ok=True)
    return shutil.disk_usage(disk_folder()).free


class _RowFile:
    """An array [trials, rows, ...] of zeros in a memory-mapped file without a name.

    Disk space is reserved before rows are used: writing to a mapping for which there is no space would end the process.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape, self.row_bytes = shape, int(np.prod(shape[2:], dtype=np.int64)) * dtype.itemsize
        size = shape[0] * shape[1] * self.row_bytes
        try:
            disk_folder().mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=disk_folder()) as file:
                file.truncate(size)
                self.array = np.asarray(np.memmap(file, dtype=dtype, mode="r+", shape=shape))
                self.descriptor = os.dup(file.fileno())
        except OSError as error:
            raise ConfigError(
                f"client_rows=disk: {disk_folder()} cannot hold {size / 2**30:.1f} GiB ({error.strerror or error}); "
                "choose another folder with FEDLATEST_CACHE"
            ) from error
        weakref.finalize(self, os.close, self.descriptor)

    def reserve(self, trial: int, first: int, count: int) -> None:
        """Reserve disk space for some rows of a trial; raise RunFolderError if there is none."""
        if count == 0 or not hasattr(os, "posix_fallocate"):
            return
        begin = (trial * self.shape[1] + first) * self.row_bytes
        try:
            os.posix_fallocate(self.descriptor, begin, count * self.row_bytes)
        except OSError as error:
            raise RunFolderError(
                f"client_rows=disk: {disk_folder()} is full ({error.strerror or error}); make space there or choose "
                "another folder with FEDLATEST_CACHE, then continue from the last checkpoint with --resume"
            ) from error


def _first_of_each(clients: npt.NDArray[np.int32], mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return the mask without slots whose client is already in an earlier one."""
    slots = np.flatnonzero(mask)
    first = np.zeros_like(mask)
    first[slots[np.unique(clients[slots], return_index=True)[1]]] = True
    return first


def _within(clients: Any, num_clients: int) -> npt.NDArray[np.int32]:
    """Return positions as NumPy array; those that are out of range, which the round reports, become valid ones."""
    return np.clip(np.asarray(clients), 0, num_clients - 1)
