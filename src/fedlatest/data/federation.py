"""A Federation: all clients' samples as flat arrays plus offsets, never an object per client."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from fedlatest.data.features import Words
from fedlatest.data.partition import Partition
from fedlatest.digest import digest
from fedlatest.errors import DataError

Features = Any  # an array [samples, ...] or a tree of them
MOST_CLASSES = 1000

SECONDS_PER_DAY = 24 * 60 * 60


@dataclass(frozen=True, eq=False)
class Federation:
    """Clients' training data, and one common test set.

    Client i owns the rows `order[offsets[i] : offsets[i + 1]]` of `features` and `labels`. `ids` name the clients
    stably: random draws hang on them, so reordering the clients changes nothing.

    Texts are `Words` into a `table` of word vectors; a model gets them as `Sentences`. `second` is the time of day at
    which each training sample was made, where that is known.
    """

    name: str
    features: Features
    labels: npt.NDArray[Any]
    test_features: Features
    test_labels: npt.NDArray[Any]
    order: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]  # [N + 1]
    ids: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    table: npt.NDArray[np.float32] | None = None  # [words, dimensions]
    second: npt.NDArray[np.int32] | None = None  # [samples] seconds after midnight

    def __post_init__(self) -> None:
        if self.ids.size == 0:
            object.__setattr__(self, "ids", np.arange(self.num_clients, dtype=np.int32))
        self._check()

    @property
    def num_clients(self) -> int:
        """N."""
        return len(self.offsets) - 1

    @property
    def has_classes(self) -> bool:
        """Whether labels are classes, one whole number a sample, and few enough to be looked at one by one."""
        whole = all(np.issubdtype(labels.dtype, np.integer) for labels in (self.labels, self.test_labels))
        return whole and self.labels.ndim == 1 and self.num_labels <= MOST_CLASSES

    @property
    def num_labels(self) -> int:
        """How many classes there are; labels are 0 .. num_labels - 1."""
        return int(max(self.labels.max(), self.test_labels.max())) + 1

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """[N] samples per client."""
        return np.diff(self.offsets)

    @property
    def weights(self) -> npt.NDArray[np.float32]:
        """[N] w_i N: each client's share of the samples, 1 on average."""
        return (self.sizes * (self.num_clients / self.offsets[-1])).astype(np.float32)

    @cached_property
    def pooled(self) -> "Federation":
        """The same data held by one client."""
        return replace(self, offsets=self.offsets[[0, -1]], ids=np.zeros(1, np.int32))

    def client_labels(self) -> npt.NDArray[np.int64]:
        """[N] each client's most frequent label (the lowest of equals)."""
        owner = np.repeat(np.arange(self.num_clients), self.sizes)
        counts = np.zeros((self.num_clients, self.num_labels), np.int64)
        np.add.at(counts, (owner, self.labels[self.order]), 1)
        return counts.argmax(axis=1)

    @cached_property
    def checksums(self) -> dict[str, str]:
        """What the run was trained and tested on, as digests: the samples, and who holds them."""
        return {
            "train": digest(self.features, self.labels, self.table),
            "test": digest(self.test_features, self.test_labels),
            "partition": digest(self.order, self.offsets, self.ids),
        }

    def _check(self) -> None:
        samples = {len(leaf) for leaf in jax.tree.leaves((self.features, self.labels))}
        if len(samples) != 1:
            raise DataError(f"{self.name}: features and labels differ in length ({sorted(samples)})")
        if len({len(leaf) for leaf in jax.tree.leaves((self.test_features, self.test_labels))}) != 1:
            raise DataError(f"{self.name}: test features and labels differ in length")
        if len(self.test_labels) == 0:
            raise DataError(f"{self.name}: the test set is empty")
        for labels in (self.labels, self.test_labels):
            if np.issubdtype(labels.dtype, np.integer) and labels.min(initial=0) < 0:
                raise DataError(f"{self.name}: label {labels.min()} is negative; labels are 0 .. classes - 1")
        if self.ids.shape != (self.num_clients,) or np.unique(self.ids).size != self.num_clients:
            raise DataError(f"{self.name}: ids must name each of the {self.num_clients} clients once")
        if self.num_clients < 1 or self.offsets[0] != 0 or self.offsets[-1] != len(self.order):
            raise DataError(f"{self.name}: offsets must run from 0 to the number of rows in `order`")
        empty = np.flatnonzero(self.sizes < 1)
        if empty.size:
            raise DataError(f"{self.name}: client {self.ids[empty[0]]} holds no sample; use fewer clients")
        if self.order.min() < 0 or self.order.max() >= samples.pop():
            raise DataError(f"{self.name}: `order` points outside the samples")
        if np.unique(self.order).size != self.order.size:
            raise DataError(f"{self.name}: a sample belongs to two clients; `order` must name each row at most once")
        shapes = [[leaf.shape[1:] for leaf in jax.tree.leaves(part)] for part in (self.features, self.test_features)]
        if shapes[0] != shapes[1]:
            raise DataError(f"{self.name}: training samples have shape {shapes[0]}, test samples {shapes[1]}")
        if self.table is not None:
            _check_table(self.name, self.table)
        for part, tree in (("training", self.features), ("test", self.test_features)):
            _check_finite(self.name, part, tree)
            _check_words(self.name, part, tree, self.table)
        if self.second is not None:
            _check_second(self.name, self.second, len(self.labels))


def _check_finite(name: str, part: str, features: Features) -> None:
    for leaf in jax.tree.leaves(features):
        if np.issubdtype(leaf.dtype, np.floating) and not np.isfinite(leaf).all():
            row = np.argwhere(~np.isfinite(leaf))[0][0]
            raise DataError(f"{name}: {part} sample {row} holds NaN or infinity; clean the data first")


def _check_table(name: str, table: npt.NDArray[np.float32]) -> None:
    if table.ndim != 2 or len(table) == 0 or table[0].any():
        raise DataError(f"{name}: `table` must be [words, dimensions] with zeros in row 0, the padding's")
    if not np.isfinite(table).all():
        row = np.argwhere(~np.isfinite(table))[0][0]
        raise DataError(f"{name}: row {row} of `table` holds NaN or infinity; leave that word out")


def _check_words(name: str, part: str, features: Features, table: npt.NDArray[np.float32] | None) -> None:
    leaves = jax.tree.leaves(features, is_leaf=lambda leaf: isinstance(leaf, Words))
    for ids, lengths in (leaf for leaf in leaves if isinstance(leaf, Words)):
        if table is None:
            raise DataError(f"{name}: {part} samples are words, which need a `table` of word vectors")
        if ids.ndim != 2 or lengths.ndim != 1 or not all(np.issubdtype(a.dtype, np.integer) for a in (ids, lengths)):
            raise DataError(f"{name}: {part} words must be whole numbers, ids [texts, longest] and lengths [texts]")
        if ids.size and not 0 <= ids.min() <= ids.max() < len(table):
            seen = f"{ids.min()} .. {ids.max()}"
            raise DataError(f"{name}: {part} words {seen} point outside the {len(table)} of `table`")
        if lengths.size and not 0 <= lengths.min() <= lengths.max() <= ids.shape[1]:
            seen = f"{lengths.min()} .. {lengths.max()}"
            raise DataError(f"{name}: {part} texts have {seen} words, there is room for 0 .. {ids.shape[1]}")


def _check_second(name: str, second: npt.NDArray[np.int32], num_samples: int) -> None:
    if second.shape != (num_samples,):
        raise DataError(f"{name}: `second` must give a time for each of the {num_samples} samples")
    if second.min(initial=0) < 0 or second.max(initial=0) >= SECONDS_PER_DAY:
        seen = f"{second.min()} .. {second.max()}"
        raise DataError(f"{name}: `second` runs over {seen}; it is seconds after midnight, 0 .. {SECONDS_PER_DAY - 1}")


class Samples(NamedTuple):
    """A data set: training and test samples, no clients yet."""

    name: str
    features: npt.NDArray[np.float32]
    labels: npt.NDArray[Any]
    test_features: npt.NDArray[np.float32]
    test_labels: npt.NDArray[Any]

    def to_federation(self, partition: Partition) -> Federation:
        """The Federation in which the partition's clients hold these samples."""
        return Federation(*self, order=partition.order, offsets=partition.offsets)
