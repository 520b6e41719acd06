"""The states of all clients, one row per client, and how a round reads and replaces the rows of its cohort.

`rounds.py` accesses the rows [N, ...] only through these functions. Slots that are not real are masked; positions
beyond the last row are read as the last row, and writes to them are dropped.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fedlatest.algorithms.base import ClientState, Cohort, Parts
from fedlatest.kernels import rows_native


def make_rows(one: ClientState, num_clients: int) -> ClientState:
    """Return the rows of clients that all have the same state."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_clients, *jnp.shape(leaf))), one)


def read_rows(rows: ClientState, positions: jax.Array) -> ClientState:
    """Return the states [K, ...] of the clients at some positions."""
    return jax.tree.map(lambda leaf: leaf[positions], rows)


def replace_rows(
    rows: ClientState, slots: Cohort, old: ClientState, new: ClientState, delta: Parts
) -> tuple[ClientState, Parts]:
    """Replace the rows of the real slots.

    Args:
        rows: The states of all clients.
        slots: The positions of the clients, and which slots are real.
        old: Their states, as `read_rows` returned them.
        new: Their new states; without private parts these stay unchanged.
        delta: The sum of differences so far.

    Returns:
        The states of all clients, and `delta` plus the differences of the slots' remembered parts.
    """
    after = replace_private(rows, slots, old, new.private)
    if rows_native.is_usable((rows.remembered, new.remembered)):
        leaves, structure = jax.tree.flatten(rows.remembered)
        parts = zip(leaves, jax.tree.leaves(delta), jax.tree.leaves(new.remembered), strict=True)
        replaced = [rows_native.replace_rows(*part, slots.clients, slots.mask) for part in parts]
        remembered, delta = (jax.tree.unflatten(structure, column) for column in zip(*replaced, strict=True))
        return after._replace(remembered=remembered), delta
    change = jax.tree.map(lambda x, y: (x - y).astype(y.dtype), new.remembered, old.remembered)
    change = _masked(slots.mask, change)
    remembered = jax.tree.map(
        lambda leaf, delta: leaf.at[slots.clients].add(delta, unique_indices=True), rows.remembered, change
    )
    return after._replace(remembered=remembered), accumulate(delta, sum_rows(change))


def replace_private(rows: ClientState, slots: Cohort, old: ClientState, new: Parts) -> ClientState:
    """Replace the private parts of the real slots; without new parts nothing changes."""
    if not new:
        return rows
    kept = jax.tree.map(lambda x, y: jnp.where(_column(slots.mask, x), x, y).astype(y.dtype), new, old.private)
    private = jax.tree.map(lambda leaf, row: leaf.at[slots.clients].set(row, unique_indices=True), rows.private, kept)
    return rows._replace(private=private)


def mean_of_remembered(rows: ClientState) -> Parts:
    """Return the mean over all clients of their remembered parts."""
    return jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), rows.remembered)


def _masked(mask: jax.Array, tree: Any) -> Any:
    """Return the tree with zeros in the slots that are not real, whatever they hold."""
    return jax.tree.map(lambda leaf: jnp.where(_column(mask, leaf), leaf, 0), tree)


def add_rows(totals: Parts, rows: Parts, mask: jax.Array) -> Parts:
    """Return totals [...] plus the rows [K, ...] of the real slots."""
    if rows_native.is_usable((totals, rows)):
        return jax.tree.map(lambda total, leaf: rows_native.add_rows(total, leaf, mask), totals, rows)
    return accumulate(totals, sum_rows(_masked(mask, rows)))


def accumulate(totals: Any, parts: Any) -> Any:
    """Return totals + parts, in the types of the totals."""
    return jax.tree.map(lambda total, part: total + part.astype(total.dtype), totals, parts)


def sum_rows(tree: Any) -> Any:
    """Return the sums over the first axis."""
    return jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), tree)


def strongly_typed(tree: Any) -> Any:
    """Return the leaves as arrays whose types do not depend on what they are combined with."""
    return jax.tree.map(lambda leaf: lax.convert_element_type(leaf, jnp.result_type(leaf)), tree)


def _column(mask: jax.Array, leaf: jax.Array) -> jax.Array:
    return mask.reshape(-1, *[1] * (leaf.ndim - 1))
