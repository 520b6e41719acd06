"""A federation like that of a fleet: as many clients with as many samples, and a model with the job's shapes."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from fedlatest.data import Federation, Samples, dirichlet
from fedlatest.data.partition import Partition
from fedlatest.errors import ConfigError
from fedlatest.ledger.job_config import Layout
from fedlatest.models import Model, cnn, logistic, mlp
from fedlatest.models.shapes import parameter_shapes

Sizes = npt.NDArray[np.int64]
FACTORIES: Mapping[str, Callable[..., Model]] = {"logistic": logistic, "mlp": mlp, "cnn": cnn}


class FleetFederation(NamedTuple):
    """A federation in place of the fleet's own data, and how it was made."""

    federation: Federation
    note: str


def federation_like(
    samples: Samples, weights: npt.NDArray[np.float64], names: list[str], *, alpha: float, seed: int
) -> FleetFederation:
    """Divide samples among the clients of a fleet.

    The samples are divided as in the app of `fedlatest deploy init`: each label in shares drawn from Dirichlet(alpha).
    If the parts have the sizes that the clients have reported, each client gets the part of its size: if the fleet ran
    that app, this is its own data. Otherwise each client gets as many samples as it has reported, fewer in proportion
    if there are not enough.

    Args:
        samples: The data set.
        weights: [N] numbers of samples that the clients have reported; 0 for one that has reported none.
        names: [N] names of the clients.
        alpha: Concentration; the smaller it is, the fewer labels dominate each client.
        seed: Seed of the random assignment.
    """
    partition = dirichlet(samples.labels, num_clients=len(weights), alpha=alpha, seed=seed)
    is_known = weights > 0
    sizes = np.diff(partition.offsets)
    if is_known.all() and np.array_equal(np.sort(sizes), np.sort(weights)):
        note = "each client has the part of the data whose size it has reported, as in the app of `deploy init`"
        chosen = _with_sizes(partition, weights)
    elif not is_known.any():
        note = "the clients' numbers of samples are not recorded; the parts are those of the app of `deploy init`"
        chosen = partition
    else:
        filled = np.where(is_known, weights, weights[is_known].mean())
        share = min(1.0, len(samples.labels) / filled.sum())
        wanted = np.maximum(1, np.floor(filled * share)).astype(np.int64)
        chosen = divide_by_size(samples.labels, wanted, alpha=alpha, seed=seed)
        scaled = "as reported" if share == 1 else f"{share:.3g} of the reported ones"
        note = f"numbers of samples {scaled}, labels in shares drawn from Dirichlet({alpha:g})"
    distinct = len(set(names)) == len(names)
    named = chosen._replace(names=np.array(names, np.str_) if distinct else None)
    return FleetFederation(samples.to_federation(named), note)


def divide_by_size(labels: npt.ArrayLike, sizes: Sizes, *, alpha: float, seed: int) -> Partition:
    """Return a partition with given sizes; each client's labels are drawn from a mixture of its own.

    Args:
        labels: [samples] labels of the training samples.
        sizes: [N] number of samples of each client, together at most as many as there are.
        alpha: Concentration of the Dirichlet distribution of the mixtures.
        seed: Seed of the random assignment.

    >>> np.diff(divide_by_size(np.arange(20) % 2, np.array([3, 9]), alpha=0.5, seed=0).offsets).tolist()
    [3, 9]
    """
    labels = np.asarray(labels)
    if sizes.sum() > labels.size:
        raise ConfigError(f"{len(sizes)} clients need {sizes.sum()} samples; there are {labels.size}")
    rng = np.random.default_rng(seed)
    pools = [rng.permutation(np.flatnonzero(labels == label)).tolist() for label in np.unique(labels)]
    order: list[int] = []
    for size in sizes:
        mixture = rng.dirichlet(np.full(len(pools), alpha))
        wanted = rng.multinomial(size, mixture)
        own = [pool.pop() for pool, number in zip(pools, wanted, strict=True) for _ in range(min(number, len(pool)))]
        while len(own) < size:  # the labels that it prefers are used up
            largest = max(pools, key=len)
            own.append(largest.pop())
        order += own
    return Partition(np.array(order, np.int32), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))


def model_like(layout: Layout, *, num_features: int, num_classes: int) -> Model:
    """Return the model of ours whose arrays have the shapes of a job's model; a matrix may be transposed.

    Args:
        layout: The layout of the job's model.
        num_features: Number of values of a sample of the data set.
        num_classes: Number of classes of the data set.

    Raises:
        ConfigError: None of them has; the message says what to do.
    """
    wanted = Counter(tuple(sorted(spec.shape)) for spec in layout.specs)
    for name, settings in _candidates(layout):
        try:
            model = FACTORIES[name](num_features=num_features, num_classes=num_classes, **settings)
        except ConfigError:  # such as a convolution over samples that are not images
            continue
        shapes = jax.tree.leaves(parameter_shapes(model.init))
        if Counter(tuple(sorted(leaf.shape)) for leaf in shapes) == wanted:
            return model
    arrays = ", ".join(f"{spec.name} {list(spec.shape)}" for spec in layout.specs)
    raise ConfigError(
        f"the job's model ({arrays}) is none of logistic, mlp and cnn for samples of {num_features} values and "
        f"{num_classes} classes; choose another --dataset, or a model to replay with instead, such as --set "
        "model=logistic"
    )


def _candidates(layout: Layout) -> Iterator[tuple[str, Mapping[str, Any]]]:
    lengths = sorted({length for spec in layout.specs for length in spec.shape})
    yield "logistic", {}
    for hidden in lengths:
        yield "mlp", {"hidden": hidden}
    for channels in lengths:
        for hidden in lengths:
            yield "cnn", {"channels": channels, "hidden": hidden}


def _with_sizes(partition: Partition, weights: npt.NDArray[np.float64]) -> Partition:
    """Return the partition with its parts in the order of the clients' sizes."""
    sizes = np.diff(partition.offsets)
    part_of = np.empty(len(sizes), np.int64)
    part_of[np.argsort(weights, kind="stable")] = np.argsort(sizes, kind="stable")
    rows = [partition.order[partition.offsets[part] : partition.offsets[part + 1]] for part in part_of]
    return Partition(np.concatenate(rows), np.concatenate([[0], np.cumsum(sizes[part_of])]).astype(np.int64))
