"""Sums over the rows of a cohort and the replacement of its rows on CPUs, rows.c."""

from typing import Any

import jax
import jax.numpy as jnp

from fedlatest.kernels import native_library
from fedlatest.kernels.native_library import Kernel, call

KERNEL = Kernel("rows.c", ("add", "replace"))


def is_usable(tree: Any) -> bool:
    """Return whether the kernel can be used for the rows in a tree: float32 on a CPU."""
    leaves = jax.tree.leaves(tree)
    supported = bool(leaves) and all(leaf.dtype == jnp.float32 for leaf in leaves)
    return supported and jax.default_backend() == "cpu" and native_library.is_usable(KERNEL)


def add_rows(total: jax.Array, rows: jax.Array, mask: jax.Array) -> jax.Array:
    """Return total [...] plus the sum of the rows [K, ...] of the real slots, added in the order of the slots."""
    if total.shape != rows.shape[1:]:  # the kernel relies on it
        raise ValueError(f"rows of shape {rows.shape[1:]}, their total {total.shape}")
    shape = jax.ShapeDtypeStruct(total.shape, jnp.float32)
    return call(KERNEL, "add", shape, total, rows, mask, vmap_method="sequential", input_output_aliases={0: 0})


def replace_rows(
    remembered: jax.Array, total: jax.Array, new: jax.Array, positions: jax.Array, mask: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Replace rows and add their differences to a total, in the order of the slots.

    Args:
        remembered: [N, ...] the rows of all clients.
        total: [...].
        new: [K, ...] the new rows.
        positions: int32 [K] which rows they replace; positions outside 0 .. N - 1 are ignored.
        mask: [K] which slots are real.

    Returns:
        All rows, and the total plus the sum of the differences of the replaced rows.
    """
    if not remembered.shape[1:] == total.shape == new.shape[1:]:  # the kernel relies on it
        raise ValueError(f"rows of shape {remembered.shape[1:]}, new rows {new.shape[1:]}, their total {total.shape}")
    shapes = (jax.ShapeDtypeStruct(remembered.shape, jnp.float32), jax.ShapeDtypeStruct(total.shape, jnp.float32))
    arguments = (remembered, total, new, positions.astype(jnp.int32), mask)
    replaced: tuple[jax.Array, jax.Array] = tuple(
        call(KERNEL, "replace", shapes, *arguments, vmap_method="sequential", input_output_aliases={0: 0, 1: 1})
    )
    return replaced
