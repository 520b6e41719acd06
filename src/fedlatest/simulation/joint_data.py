"""Several federations on the device as one, so that trials with different data share a compiled program.

The samples of the federations stand one after the other. Every field that has one entry per client gets a leading axis
of federations, from which `select` takes the row of a trial. Axes: [F, ...] federations, [N, ...] clients.
"""

from collections.abc import Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedlatest.data import Federation
from fedlatest.data.features import Pixels, Words
from fedlatest.simulation.device_data import DeviceData, expand


def layout(federation: Federation) -> Hashable:
    """Return what must be equal in two federations to join them.

    The number of samples, the length of the longest text and the number of words may differ.
    """

    def shape(leaf: Any) -> Hashable:
        return "words" if isinstance(leaf, Words) else (leaf.shape[1:], leaf.dtype)

    leaves, structure = jax.tree.flatten(federation.features, is_leaf=lambda leaf: isinstance(leaf, Words))
    labels = federation.num_labels if federation.has_classes else None
    table = None if federation.table is None else federation.table.shape[1:]
    return federation.num_clients, structure, tuple(map(shape, leaves)), shape(federation.labels), labels, table


def join(parts: Sequence[DeviceData]) -> DeviceData:
    """Return federations of equal layout as one, with fields [F, N]; a single one is returned as it is."""
    if len(parts) == 1:
        return parts[0]
    first_samples = np.cumsum([0, *(len(part.labels) for part in parts[:-1])], dtype=np.int32)
    starts, sizes, weights, ids = (
        jnp.stack([getattr(part, name) for part in parts]) for name in ("starts", "sizes", "weights", "ids")
    )
    tables = [part.table for part in parts if part.table is not None]  # all have one, or none
    return DeviceData(
        features=_join_features(parts),
        labels=jnp.concatenate([part.labels for part in parts]),
        starts=starts + first_samples[:, None],
        sizes=sizes,
        weights=weights,
        ids=ids,
        table=jnp.concatenate(tables) if tables else None,
    )


def select(data: DeviceData, federation: jax.Array | None) -> DeviceData:
    """Return the clients of one of the joined federations; None if there is only one.

    Args:
        data: What `join` returned.
        federation: The position of the federation in the arguments of `join`.
    """
    if federation is None:
        return data
    return data._replace(
        starts=data.starts[federation],
        sizes=data.sizes[federation],
        weights=data.weights[federation],
        ids=data.ids[federation],
    )


def _join_features(parts: Sequence[DeviceData]) -> Any:
    trees = [part.features for part in parts]
    if len({jax.tree.structure(tree) for tree in trees}) > 1:  # pixels in some federations, other numbers in others
        trees = [jax.tree.map(_expand_pixels, tree, is_leaf=_is_unit) for tree in trees]
    words_before = np.cumsum([0, *(0 if part.table is None else len(part.table) for part in parts)])

    def join_leaves(*leaves: Any) -> Any:
        if isinstance(leaves[0], Words):
            return _join_words(leaves, words_before)
        return jax.tree.map(lambda *arrays: jnp.concatenate(arrays), *leaves)

    return jax.tree.map(join_leaves, *trees, is_leaf=_is_unit)


def _join_words(texts: Sequence[Words], words_before: Any) -> Words:
    """Pad texts to the longest, and number their words by the rows of the joined tables."""
    longest = max(words.ids.shape[1] for words in texts)
    number = np.min_scalar_type(int(words_before[-1]) - 1)
    ids = [
        jnp.pad(words.ids.astype(number), [(0, 0), (0, longest - words.ids.shape[1])]) + number.type(first)
        for words, first in zip(texts, words_before[:-1], strict=True)
    ]
    return Words(jnp.concatenate(ids), jnp.concatenate([words.lengths for words in texts]))


def _is_unit(leaf: Any) -> bool:
    return isinstance(leaf, Pixels | Words)


def _expand_pixels(leaf: Any) -> Any:
    return expand(leaf) if isinstance(leaf, Pixels) else leaf
