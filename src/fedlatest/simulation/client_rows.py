"""The states of the clients, one row per client, and how a round reads and replaces the rows of its cohort.

`rounds.py` accesses the rows only through these functions. A client's row is found by its number, which is the
client's position where every client has a row [N, ...], see `row_storage.py`. Slots that are not real are masked;
numbers beyond the last row are read as the last row, and writes to them are dropped.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fedlatest.algorithms.base import ClientState, Cohort, Parts
from fedlatest.kernels import rows_native
from fedlatest.simulation.row_storage import total_type


def make_rows(one: ClientState, num_rows: int) -> ClientState:
    """Return the rows of clients that all have the same state."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_rows, *jnp.shape(leaf))), one)


def read_rows(rows: ClientState, numbers: jax.Array, like: ClientState) -> ClientState:
    """Return some clients' states [K, ...], in the types of `like`, the state of one client."""
    return jax.tree.map(lambda leaf, one: leaf[numbers].astype(one.dtype), rows, like)


def replace_rows(
    rows: ClientState, slots: Cohort, old: ClientState, new: ClientState, delta: Parts
) -> tuple[ClientState, Parts]:
    """Replace the rows of the real slots.

    Args:
        rows: The states of the clients, as they are stored.
        slots: The numbers of the clients' rows, and which slots are real.
        old: Their states, as `read_rows` returned them.
        new: Their new states; without private parts these stay unchanged.
        delta: The sum of differences so far.

    Returns:
        The rows, and `delta` plus the differences of the slots' remembered parts. These are the differences of what is
        stored, after rounding to its type: a sum of them stays the sum of all rows.
    """
    after = replace_private(rows, slots, old, new.private)
    if rows_native.is_usable((rows.remembered, new.remembered)):
        leaves, structure = jax.tree.flatten(rows.remembered)
        parts = zip(leaves, jax.tree.leaves(delta), jax.tree.leaves(new.remembered), strict=True)
        replaced = [rows_native.replace_rows(*part, slots.clients, slots.mask) for part in parts]
        remembered, delta = (jax.tree.unflatten(structure, column) for column in zip(*replaced, strict=True))
        return after._replace(remembered=remembered), delta
    changes = jax.tree.map(_stored_change, rows.remembered, old.remembered, new.remembered)
    change = _masked(slots.mask, changes)
    remembered = jax.tree.map(
        lambda leaf, before, after, delta: _replace_leaf(leaf, slots, before, after, delta),
        rows.remembered, old.remembered, new.remembered, change,
    )  # fmt: skip
    return after._replace(remembered=remembered), accumulate(delta, sum_rows(change))


def as_stored(rows: ClientState, remembered: Parts) -> Parts:
    """Return remembered parts in the types of the rows."""
    return jax.tree.map(lambda leaf, part: part.astype(leaf.dtype), rows.remembered, remembered)


def _stored_change(leaf: jax.Array, old: jax.Array, new: jax.Array) -> jax.Array:
    if not _is_rounded(leaf, old):
        return (new - old).astype(old.dtype)
    dtype = total_type(old.dtype)
    return new.astype(leaf.dtype).astype(dtype) - old.astype(dtype)


def _replace_leaf(leaf: jax.Array, slots: Cohort, old: jax.Array, new: jax.Array, change: jax.Array) -> jax.Array:
    if not _is_rounded(leaf, old):
        return leaf.at[slots.clients].add(change, unique_indices=True)
    kept = jnp.where(_column(slots.mask, new), new.astype(leaf.dtype), old.astype(leaf.dtype))
    return leaf.at[slots.clients].set(kept, unique_indices=True)


def _is_rounded(leaf: jax.Array, old: jax.Array) -> bool:
    """Return whether a row is narrower than the type that its sum is kept in."""
    return bool(leaf.dtype != total_type(old.dtype))


def replace_private(rows: ClientState, slots: Cohort, old: ClientState, new: Parts) -> ClientState:
    """Replace the private parts of the real slots; without new parts nothing changes."""
    if not new:
        return rows
    kept = jax.tree.map(lambda x, y: jnp.where(_column(slots.mask, x), x, y).astype(y.dtype), new, old.private)
    private = jax.tree.map(lambda leaf, row: leaf.at[slots.clients].set(row, unique_indices=True), rows.private, kept)
    return rows._replace(private=private)


def mean_of_remembered(rows: ClientState, like: Parts, num_clients: int) -> Parts:
    """Return the mean over all clients of their remembered parts, in the types of `like`.

    Where there are fewer rows than clients, the others have the state of the last row (see `row_storage.find_rows`).
    """

    def mean(leaf: jax.Array, total: jax.Array) -> jax.Array:
        if leaf.shape[0] == num_clients:
            return jnp.mean(leaf, axis=0, dtype=total.dtype)
        others = (num_clients - leaf.shape[0]) * leaf[-1].astype(total.dtype)
        return (jnp.sum(leaf, axis=0, dtype=total.dtype) + others) / num_clients

    return jax.tree.map(mean, rows.remembered, like)


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
