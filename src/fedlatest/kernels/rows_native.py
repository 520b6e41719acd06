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


def add_rows(total: jax.Array, rows: jax.Array, mask: jax.Array, base: jax.Array | None = None) -> jax.Array:
    """Return total [...] plus the rows [K, ...] of the real slots, each minus the base, added in the order of slots."""
    _check_shapes(total, rows, base)
    shape = jax.ShapeDtypeStruct(total.shape, jnp.float32)
    arguments = (total, rows, mask, *([] if base is None else [base]))
    return call(KERNEL, "add", shape, *arguments, vmap_method="sequential", input_output_aliases={0: 0})


def replace_rows(
    remembered: jax.Array,
    total: jax.Array,
    new: jax.Array,
    positions: jax.Array,
    mask: jax.Array,
    base: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Replace rows and add their differences to a total, in the order of the slots.

    Args:
        remembered: [N, ...] the rows of all clients.
        total: [...].
        new: [K, ...] the new rows.
        positions: int32 [K] which rows they replace; positions outside 0 .. N - 1 are ignored.
        mask: [K] which slots are real.
        base: [...] is subtracted from every new row.

    Returns:
        All rows, and the total plus the sum of the differences of the replaced rows.
    """
    _check_shapes(total, new, base, remembered)
    shapes = (jax.ShapeDtypeStruct(remembered.shape, jnp.float32), jax.ShapeDtypeStruct(total.shape, jnp.float32))
    arguments = (remembered, total, new, positions.astype(jnp.int32), mask, *([] if base is None else [base]))
    replaced: tuple[jax.Array, jax.Array] = tuple(
        call(KERNEL, "replace", shapes, *arguments, vmap_method="sequential", input_output_aliases={0: 0, 1: 1})
    )
    return replaced


def _check_shapes(total: jax.Array, rows: jax.Array, base: jax.Array | None, *others: jax.Array) -> None:
    """Raise ValueError if rows have different lengths; the kernel relies on it."""
    found = [rows.shape[1:], total.shape, *(other.shape[1:] for other in others)]
    if base is not None:
        found.append(base.shape)
    if len(set(found)) > 1:
        raise ValueError(f"rows and their sums must have the same shape, not {found}")
