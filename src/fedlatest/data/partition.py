"""Partitions: functions that assign the samples of a data set to clients."""

import heapq
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.errors import ConfigError


class Partition(NamedTuple):
    """Client i owns the samples order[offsets[i] : offsets[i + 1]].

    Args:
        order: Rows of the samples, grouped by client.
        offsets: [N + 1] where each client begins in `order`.
        names: [N] names of the clients, if they have names.
    """

    order: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    names: npt.NDArray[np.str_] | None = None


def by_label(labels: npt.ArrayLike, *, num_clients: int, seed: int) -> Partition:
    """Return the paper's partition: one label per client, N / classes clients per label, unbalanced sizes.

    The sizes within a label are proportional to 5 + normal(0, 1), clipped to [3, 7]. Every sample is assigned.

    Args:
        labels: [samples] labels of the training samples.
        num_clients: Number of clients, N.
        seed: Seed of the random assignment.

    >>> by_label(np.repeat([0, 1], 50), num_clients=4, seed=0).offsets[[0, 2, 4]].tolist()
    [0, 50, 100]
    """
    labels = _as_labels(labels)
    classes = np.unique(labels)
    if classes.size == 0:
        raise ConfigError("labels: there are no samples to assign")
    if num_clients < 1 or num_clients % classes.size:
        raise ConfigError(
            f"num_clients={num_clients}: one label per client needs a multiple of the {classes.size} labels, "
            f"such as {max(1, round(num_clients / classes.size)) * classes.size}"
        )
    rng = np.random.default_rng(seed)
    per_label = num_clients // classes.size
    order, sizes = [], []
    for label in classes:
        rows = rng.permutation(np.flatnonzero(labels == label))
        weights = np.clip(5 + rng.standard_normal(per_label), 3, 7)
        ends = np.round(np.cumsum(weights) / weights.sum() * rows.size).astype(np.int64)
        order.append(rows)
        sizes.append(np.diff(ends, prepend=0))
    return _partition(order, np.concatenate(sizes), labels.size)


def iid(labels: npt.ArrayLike, *, num_clients: int, seed: int) -> Partition:
    """Return a random partition into equal parts (sizes differ by at most one).

    Args:
        labels: [samples] labels of the training samples.
        num_clients: Number of clients, N.
        seed: Seed of the random assignment.

    >>> np.diff(iid(np.zeros(10), num_clients=3, seed=0).offsets).tolist()
    [4, 3, 3]
    """
    if num_clients < 1:
        raise ConfigError(f"num_clients={num_clients}: a federation has at least one client")
    labels = _as_labels(labels)
    rows = np.random.default_rng(seed).permutation(labels.size)
    parts = np.array_split(rows, num_clients)
    return _partition(parts, np.array([part.size for part in parts]), labels.size)


def dirichlet(labels: npt.ArrayLike, *, num_clients: int, seed: int, alpha: float = 0.1) -> Partition:
    """Return a partition in which each label is divided in shares drawn from Dirichlet(alpha).

    A client that would get no sample receives one from the largest client.

    Args:
        labels: [samples] labels of the training samples.
        num_clients: Number of clients, N.
        seed: Seed of the random assignment.
        alpha: Concentration; the smaller it is, the fewer labels dominate each client.
    """
    if num_clients < 1:
        raise ConfigError(f"num_clients={num_clients}: a federation has at least one client")
    if not (np.isfinite(alpha) and alpha > 0):
        raise ConfigError(f"alpha={alpha}: the Dirichlet concentration must be a finite number above 0")
    labels = _as_labels(labels)
    if num_clients > labels.size:
        raise ConfigError(f"num_clients={num_clients}: there are only {labels.size} samples")
    rng = np.random.default_rng(seed)
    owner = np.empty(labels.size, np.int64)
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.dirichlet(np.full(num_clients, alpha))
        ends = np.round(np.cumsum(shares) * rows.size).astype(np.int64)
        owner[rows] = np.searchsorted(ends, np.arange(rows.size), side="right").clip(max=num_clients - 1)
    _give_empty_clients_a_sample(owner, num_clients)
    return by_client(owner)._replace(names=None)


def _give_empty_clients_a_sample(owner: npt.NDArray[np.int64], num_clients: int) -> None:
    """Give every client without a sample the first one of the client that is then the largest, in place."""
    sizes = np.bincount(owner, minlength=num_clients)
    rows = np.argsort(owner, kind="stable")  # each client's rows, ascending
    first = np.cumsum(sizes) - sizes  # the next row that a client gives away
    largest = [(-size, client) for client, size in enumerate(sizes.tolist()) if size > 1]
    heapq.heapify(largest)
    for client in np.flatnonzero(sizes == 0):
        size, giver = largest[0]
        owner[rows[first[giver]]] = client
        first[giver] += 1
        heapq.heapreplace(largest, (size + 1, giver))


def by_client(clients: npt.ArrayLike) -> Partition:
    """Return the partition in which sample i belongs to client `clients[i]`; clients are numbered in sorted order.

    The partition keeps the clients' names, whole numbers too, so that a trace can be matched with them.

    >>> partition = by_client(["ann", "bob", "ann"])
    >>> partition.order.tolist(), partition.names.tolist()
    ([0, 2, 1], ['ann', 'bob'])
    """
    owners = np.asarray(clients)
    if owners.ndim != 1 or owners.size == 0:
        raise ConfigError(f"clients: must be one name or number for each sample, not an array of shape {owners.shape}")
    names, owner, sizes = np.unique(owners, return_inverse=True, return_counts=True)
    partition = _partition([np.argsort(owner, kind="stable")], sizes, owners.size)
    return partition._replace(names=names.astype(np.str_))


PARTITIONS: dict[str, Callable[..., Partition]] = {"label": by_label, "iid": iid, "dirichlet": dirichlet}


def _as_labels(labels: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return labels as an array [samples]; raise ConfigError if they have another shape."""
    array = np.asarray(labels)
    if array.ndim != 1:
        raise ConfigError(
            f"labels: must be one label per sample, not an array of shape {array.shape}; convert one-hot labels with "
            "labels.argmax(axis=1)"
        )
    return array


def _partition(order: list[npt.NDArray[Any]], sizes: npt.NDArray[Any], num_samples: int) -> Partition:
    if (sizes < 1).any():
        raise ConfigError(f"num_clients={sizes.size}: too many for {num_samples} samples; a client would have none")
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Partition(np.concatenate(order).astype(np.int32), offsets)
