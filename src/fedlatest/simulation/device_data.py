"""A federation on the device.

8-bit pixels are stored as bytes, from which exactly the same float32 values are computed, and texts as word ids.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from fedlatest.data import Federation
from fedlatest.data.features import STEP, Pixels, Words, look_up, pixels

VALUES_AT_ONCE = 80_000


class DeviceData(NamedTuple):
    """A federation on the device: samples in client order, and where each client's samples begin."""

    features: Any  # [samples, ...], compact
    labels: jax.Array  # [samples, ...]
    starts: jax.Array  # [N]
    sizes: jax.Array  # [N]
    weights: jax.Array  # [N] w_i N
    ids: jax.Array  # [N]
    table: jax.Array | None  # [words, dimensions] where samples are texts


def put_on_device(federation: Federation) -> DeviceData:
    """Copy a federation to the device, each client's samples next to each other."""
    features, labels = jax.tree.map(lambda leaf: jnp.asarray(leaf[federation.order]), training_arrays(federation))
    return DeviceData(
        features,
        labels,
        starts=jnp.asarray(federation.offsets[:-1], jnp.int32),
        sizes=jnp.asarray(federation.sizes, jnp.int32),
        weights=jnp.asarray(federation.weights),
        ids=jnp.asarray(federation.ids),
        table=None if federation.table is None else jnp.asarray(federation.table),
    )


def training_arrays(federation: Federation) -> tuple[Any, npt.NDArray[Any]]:
    """Return the features and labels of all clients as they are stored on a device; whole numbers become int32."""
    labels = federation.labels
    whole = np.issubdtype(labels.dtype, np.integer)
    return compact(federation.features), labels.astype(np.int32, copy=False) if whole else labels


def compact(features: Any) -> Any:
    """Return the features with each float32 array of 8-bit pixels in [0, 1] replaced by `Pixels`.

    >>> compact(pixels(np.array([0, 51, 255], np.uint8)))
    Pixels(levels=array([  0,  51, 255], dtype=uint8))
    """
    return jax.tree.map(lambda leaf: leaf if (levels := _levels(leaf)) is None else Pixels(levels), features)


def expand(features: Any, table: Any = None) -> Any:
    """Return the features as a model takes them: the inverse of `compact`, with word vectors in place of word ids."""

    def values(leaf: Any) -> Any:
        if isinstance(leaf, Words):
            return look_up(leaf, table)
        return leaf.levels.astype(jnp.float32) * STEP if isinstance(leaf, Pixels) else leaf

    return jax.tree.map(values, features, is_leaf=lambda leaf: isinstance(leaf, Pixels | Words))


def _levels(leaf: Any) -> npt.NDArray[np.uint8] | None:
    """Return the bytes from which `data.pixels` makes these values, or None if they are not 8-bit pixels.

    Works on a few rows at a time, so that the temporary copies fit the cache; most other data is rejected at once.
    """
    if leaf.dtype != np.float32 or leaf.size == 0:
        return None
    levels = np.empty(leaf.shape, np.uint8)
    rows = max(1, VALUES_AT_ONCE * len(leaf) // leaf.size)
    for first in range(0, len(leaf), rows):
        part = leaf[first : first + rows]
        if part.min() < 0 or part.max() > 1:
            return None
        found = np.rint(part / STEP).astype(np.uint8)
        if not np.array_equal(pixels(found), part):
            return None
        levels[first : first + rows] = found
    return levels
