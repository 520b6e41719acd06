"""Federations from the partitioners of Flower Datasets (the extra `flwr-datasets`).

Nothing of that package is imported here: a partitioner is used through its methods.
"""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fedlatest.data.features import pixels
from fedlatest.data.federation import Federation
from fedlatest.errors import DataError

ROWS_AT_ONCE = 1000


class Partitioner(Protocol):
    """What is used of a `flwr_datasets.partitioner.Partitioner`."""

    @property
    def num_partitions(self) -> int:
        """The number of partitions."""

    def is_dataset_assigned(self) -> bool:
        """Return whether the partitioner has a data set."""

    def load_partition(self, partition_id: int) -> Any:
        """Return a partition as a `datasets.Dataset`."""


def federation_from_partitioner(
    partitioner: Partitioner, test: Any, *, features: str, labels: str = "label", name: str | None = None
) -> Federation:
    """Return a federation with one client for each partition of a partitioner of Flower Datasets.

    Images and other bytes become pixels in [0, 1]; all other numbers become float32. A sample becomes a vector: an
    image row by row, with the channels of a pixel next to each other, as `cnn` and `crop_flip` take it.

    Args:
        partitioner: A partitioner to which a data set is assigned: `partitioner.dataset = dataset`, or
            `FederatedDataset(...).partitioners["train"]` after its first use.
        test: The test set, a `datasets.Dataset`.
        features: Name of the column with the features: images, numbers, or (nested) lists of numbers of one shape.
        labels: Name of the column with the labels: whole numbers, or numbers if they are not classes.
        name: Name of the data set, for messages and manifests; by default that of the partitioner.

    Raises:
        DataError: The partitioner has no data set, a column is missing, or samples differ in shape.
    """
    name = name or type(partitioner).__name__
    if not partitioner.is_dataset_assigned():
        raise DataError(f"{name}: has no data set; assign one with `partitioner.dataset = dataset`")
    clients = [
        _arrays(partitioner.load_partition(number), features, labels, f"{name}, partition {number}")
        for number in range(partitioner.num_partitions)
    ]
    test_features, test_labels = _arrays(test, features, labels, f"{name}, test set")
    sizes = [len(own_labels) for _, own_labels in clients]
    return Federation(
        name=name,
        features=_joined([own_features for own_features, _ in clients], name),
        labels=_joined([own_labels for _, own_labels in clients], name),
        test_features=test_features,
        test_labels=test_labels,
        order=np.arange(sum(sizes), dtype=np.int32),
        offsets=np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]),
    )


def _arrays(dataset: Any, features: str, labels: str, source: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the features [samples, values] and the labels [samples] of a `datasets.Dataset`."""
    for column in (features, labels):
        if column not in dataset.column_names:
            raise DataError(f"{source}: has no column {column!r}; its columns are {', '.join(dataset.column_names)}")
    if len(dataset) == 0:
        raise DataError(f"{source}: has no sample; use fewer partitions or another partitioner")
    parts = [
        (_as_vectors(batch[features], f"{source}, column {features}"), np.asarray(batch[labels]))
        for batch in _batches(dataset.select_columns([features, labels]))
    ]
    joined = _joined([part for part, _ in parts], source)
    return joined, _as_labels(np.concatenate([part for _, part in parts]), f"{source}, column {labels}")


def _batches(dataset: Any) -> Iterator[dict[str, Any]]:
    yield from dataset.with_format("numpy").iter(batch_size=ROWS_AT_ONCE)


def _as_vectors(values: Any, source: str) -> npt.NDArray[np.float32]:
    values = np.asarray(values)
    if values.dtype == object or not (np.issubdtype(values.dtype, np.number) or values.dtype == bool):
        raise DataError(f"{source}: must hold images or numbers of the same shape for all samples")
    vectors = values.reshape(len(values), -1)
    return pixels(vectors) if values.dtype == np.uint8 else vectors.astype(np.float32)


def _as_labels(values: npt.NDArray[Any], source: str) -> npt.NDArray[Any]:
    if values.ndim != 1 or not (np.issubdtype(values.dtype, np.number) or values.dtype == bool):
        raise DataError(f"{source}: must hold one number per sample; encode texts with `dataset.class_encode_column`")
    whole = values.dtype == bool or np.issubdtype(values.dtype, np.integer)
    return values.astype(np.int32 if whole else np.float32)


def _joined(parts: list[npt.NDArray[Any]], source: str) -> npt.NDArray[Any]:
    shapes = {part.shape[1:] for part in parts}
    if len(shapes) > 1:
        raise DataError(f"{source}: samples have different shapes ({', '.join(map(str, sorted(shapes)))})")
    return np.concatenate(parts)
