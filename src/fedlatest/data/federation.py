"""Samples and Federation: data before and after it is divided among clients.

The samples of all clients are flat arrays plus offsets; there is no object per client. Axis: [N] clients.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.data.features import Words
from fedlatest.data.partition import Partition
from fedlatest.digest import digest
from fedlatest.errors import DataError

Features = Any  # an array [samples, ...] or a tree of them
MAX_CLASSES = 1000
SECONDS_PER_DAY = 24 * 60 * 60
ROWS_AT_ONCE = 1024  # large data sets are checked in parts that fit the cache


@dataclass(frozen=True, eq=False)
class Federation:
    """The training data of N clients and a common test set.

    Client i owns the rows `order[offsets[i] : offsets[i + 1]]` of `features` and `labels`.

    Args:
        name: Name of the data set, for messages and manifests.
        features: Training features, an array [samples, ...] or a tree of them. Texts are `Words`, which a model
            receives as `Sentences`.
        labels: [samples] training labels.
        test_features: Test features, of the same form.
        test_labels: Test labels.
        order: Rows of the training samples, grouped by client.
        offsets: [N + 1] where each client begins in `order`.
        ids: [N] stable client ids, which select the random streams: reordering the clients does not change a run. By
            default 0 .. N - 1.
        table: [words, dimensions] word vectors for features that are `Words`; row 0 is zero.
        second: [samples] time of day at which each training sample was created, in seconds after midnight, if known.

    Raises:
        DataError: The arrays do not fit together, or contain invalid values.
    """

    name: str
    features: Features
    labels: npt.NDArray[Any]
    test_features: Features
    test_labels: npt.NDArray[Any]
    order: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    table: npt.NDArray[np.float32] | None = None
    second: npt.NDArray[np.int32] | None = None

    def __post_init__(self) -> None:
        if self.ids.size == 0:
            object.__setattr__(self, "ids", np.arange(self.num_clients, dtype=np.int32))
        self._check()

    @property
    def num_clients(self) -> int:
        """The number of clients, N."""
        return len(self.offsets) - 1

    @property
    def has_classes(self) -> bool:
        """Whether labels are classes: one whole number per sample, and at most 1000 different ones."""
        integers = all(np.issubdtype(labels.dtype, np.integer) for labels in (self.labels, self.test_labels))
        return integers and self.labels.ndim == 1 and self.num_labels <= MAX_CLASSES

    @property
    def num_labels(self) -> int:
        """The number of classes; labels are 0 .. num_labels - 1."""
        return int(max(self.labels.max(), self.test_labels.max())) + 1

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """[N] number of samples of each client."""
        return np.diff(self.offsets)

    @property
    def weights(self) -> npt.NDArray[np.float32]:
        """[N] each client's share of the samples times N (w_i N in the paper); the mean is 1."""
        return (self.sizes * (self.num_clients / self.offsets[-1])).astype(np.float32)

    @cached_property
    def pooled(self) -> "Federation":
        """The same data as a federation of one client."""
        return replace(self, offsets=self.offsets[[0, -1]], ids=np.zeros(1, np.int32))

    def client_labels(self) -> npt.NDArray[np.int64]:
        """Return [N] each client's most frequent label; the lowest if there are several."""
        owner = np.repeat(np.arange(self.num_clients), self.sizes)
        held, counts = np.unique(owner * self.num_labels + self.labels[self.order], return_counts=True)
        owner, label = np.divmod(held, self.num_labels)  # the labels that each client holds, ascending
        first = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]])
        most = np.maximum.reduceat(counts, first)
        frequent = np.flatnonzero(counts == most[owner])
        return label[frequent[np.r_[True, np.diff(owner[frequent]) > 0]]]

    def label_shares(self) -> npt.NDArray[np.float32]:
        """Return [N, classes] the share of each label among each client's samples."""
        owner = np.repeat(np.arange(self.num_clients), self.sizes)
        shape = self.num_clients, self.num_labels
        counts = np.bincount(owner * self.num_labels + self.labels[self.order], minlength=shape[0] * shape[1])
        return (counts.reshape(shape) / self.sizes[:, None]).astype(np.float32)

    @cached_property
    def checksums(self) -> dict[str, str]:
        """Digests of the training samples, the test samples and the partition."""
        return {
            "train": digest(self.features, self.labels, self.table),
            "test": digest(self.test_features, self.test_labels),
            "partition": digest(self.order, self.offsets, self.ids),
        }

    def _check(self) -> None:
        samples = {len(leaf) for leaf in _leaves((self.features, self.labels))}
        if len(samples) != 1:
            raise DataError(f"{self.name}: features and labels differ in length ({sorted(samples)})")
        if len({len(leaf) for leaf in _leaves((self.test_features, self.test_labels))}) != 1:
            raise DataError(f"{self.name}: test features and labels differ in length")
        if len(self.test_labels) == 0:
            raise DataError(f"{self.name}: the test set is empty")
        for labels in (self.labels, self.test_labels):
            if np.issubdtype(labels.dtype, np.integer) and labels.min(initial=0) < 0:
                raise DataError(f"{self.name}: label {labels.min()} is negative; labels are 0 .. classes - 1")
        if self.ids.shape != (self.num_clients,) or not _are_distinct(self.ids):
            raise DataError(f"{self.name}: ids must contain one distinct id for each of the {self.num_clients} clients")
        if self.num_clients < 1 or self.offsets[0] != 0 or self.offsets[-1] != len(self.order):
            raise DataError(f"{self.name}: offsets must start at 0 and end at the length of `order`")
        empty = np.flatnonzero(self.sizes < 1)
        if empty.size:
            raise DataError(f"{self.name}: client {self.ids[empty[0]]} has no sample; use fewer clients")
        if self.order.min() < 0 or self.order.max() >= samples.pop():
            raise DataError(f"{self.name}: `order` contains row numbers outside the samples")
        if not _are_distinct(self.order):
            raise DataError(f"{self.name}: a sample belongs to two clients; `order` must contain each row at most once")
        shapes = [[leaf.shape[1:] for leaf in _leaves(part)] for part in (self.features, self.test_features)]
        if shapes[0] != shapes[1]:
            raise DataError(f"{self.name}: training samples have shape {shapes[0]}, test samples {shapes[1]}")
        if self.table is not None:
            _check_table(self.name, self.table)
        for part, tree in (("training", self.features), ("test", self.test_features)):
            _check_finite(self.name, part, tree)
            _check_words(self.name, part, tree, self.table)
        if self.second is not None:
            _check_second(self.name, self.second, len(self.labels))


def _leaves(tree: Any, **options: Any) -> list[Any]:
    """Return the leaves of a tree; clients of a deployment import this module, and start without JAX."""
    import jax

    return jax.tree.leaves(tree, **options)


def _are_distinct(numbers: npt.NDArray[Any]) -> bool:
    ordered = np.sort(numbers)
    return not (ordered[1:] == ordered[:-1]).any()


def _check_finite(name: str, part: str, features: Features) -> None:
    for leaf in _leaves(features):
        if not np.issubdtype(leaf.dtype, np.floating):
            continue
        for first in range(0, len(leaf), ROWS_AT_ONCE):
            finite = np.isfinite(leaf[first : first + ROWS_AT_ONCE])
            if not finite.all():
                row = first + np.argwhere(~finite)[0][0]
                raise DataError(f"{name}: {part} sample {row} contains NaN or infinity; clean the data first")


def _check_table(name: str, table: npt.NDArray[np.float32]) -> None:
    if table.ndim != 2 or len(table) == 0 or table[0].any():
        raise DataError(f"{name}: `table` must be [words, dimensions] with zeros in row 0, which is used for padding")
    if table.dtype != np.float32:
        raise DataError(f"{name}: `table` holds {table.dtype}; convert it with table.astype(np.float32)")
    if not np.isfinite(table).all():
        row = np.argwhere(~np.isfinite(table))[0][0]
        raise DataError(f"{name}: row {row} of `table` contains NaN or infinity; remove that word")


def _check_words(name: str, part: str, features: Features, table: npt.NDArray[np.float32] | None) -> None:
    leaves = _leaves(features, is_leaf=lambda leaf: isinstance(leaf, Words))
    for ids, lengths in (leaf for leaf in leaves if isinstance(leaf, Words)):
        if table is None:
            raise DataError(f"{name}: {part} samples are Words, which need a `table` of word vectors")
        if ids.ndim != 2 or lengths.ndim != 1 or not all(np.issubdtype(a.dtype, np.integer) for a in (ids, lengths)):
            raise DataError(f"{name}: {part} Words must be whole numbers, ids [texts, longest] and lengths [texts]")
        if ids.size and not 0 <= ids.min() <= ids.max() < len(table):
            seen = f"{ids.min()} .. {ids.max()}"
            raise DataError(f"{name}: {part} word ids {seen} are outside the {len(table)} rows of `table`")
        if lengths.size and not 0 <= lengths.min() <= lengths.max() <= ids.shape[1]:
            seen = f"{lengths.min()} .. {lengths.max()}"
            raise DataError(f"{name}: {part} texts have lengths {seen}; they must be 0 .. {ids.shape[1]}")


def _check_second(name: str, second: npt.NDArray[np.int32], num_samples: int) -> None:
    if second.shape != (num_samples,):
        raise DataError(f"{name}: `second` must have one time for each of the {num_samples} samples")
    if second.min(initial=0) < 0 or second.max(initial=0) >= SECONDS_PER_DAY:
        seen = f"{second.min()} .. {second.max()}"
        raise DataError(f"{name}: `second` has values {seen}; seconds after midnight are 0 .. {SECONDS_PER_DAY - 1}")


class Samples(NamedTuple):
    """A data set that is not divided among clients yet: training and test samples.

    Args:
        name: Name of the data set.
        features: [samples, ...] training features.
        labels: [samples] training labels.
        test_features: Test features.
        test_labels: Test labels.
    """

    name: str
    features: npt.NDArray[np.float32]
    labels: npt.NDArray[Any]
    test_features: npt.NDArray[np.float32]
    test_labels: npt.NDArray[Any]

    def to_federation(self, partition: Partition) -> Federation:
        """Return the Federation in which these samples are divided among clients according to the partition."""
        return Federation(*self, order=partition.order, offsets=partition.offsets)
