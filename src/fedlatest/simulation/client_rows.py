"""The states of the clients, one row per client, and how a round reads and replaces the rows of its cohort.

`rounds.py` accesses the rows only through these functions. A client's row is found by its number, which is the
client's position where every client has a row [N, ...]; see `row_storage.py`. Slots that are not real are masked;
numbers beyond the last row are read as the last row, and writes to them are dropped.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fedlatest.algorithms.base import ClientState, Cohort, Parts
from fedlatest.simulation.row_storage import RowTypes, decode, encode, round_to, total_type


def make_rows(one: ClientState, num_rows: int) -> ClientState:
    """Return the rows of clients that all have the same state, given as it is rounded."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(encode(leaf), (num_rows, *leaf.shape)), one)


def read_rows(rows: ClientState, numbers: jax.Array, types: RowTypes) -> ClientState:
    """Return some clients' states [K, ...]."""

    def read(leaf: jax.Array, stored: Any, computed: Any) -> jax.Array:
        return decode(leaf[numbers], stored.dtype).astype(computed.dtype)

    return jax.tree.map(read, rows, types.stored, types.computed)


def replace_rows(
    rows: ClientState, slots: Cohort, old: ClientState, new: ClientState, types: RowTypes
) -> tuple[ClientState, Parts]:
    """Replace the rows of the real slots.

    Args:
        rows: The states of the clients, as they are stored.
        slots: The numbers of the clients' rows, and which slots are real.
        old: Their states, as `read_rows` returned them.
        new: Their new states; without private parts these stay unchanged.
        types: The types of the rows.

    Returns:
        The rows, and the sum over the slots of the differences of their remembered parts. These are the differences of
        what is stored, after rounding to its type: a sum of them stays the sum of all rows.
    """
    stored = types.stored.remembered
    rounded = as_stored(new.remembered, types)

    def differ(stored: Any, old: jax.Array, new: jax.Array, rounded: jax.Array) -> jax.Array:
        return rounded - old.astype(rounded.dtype) if _is_rounded(stored, old) else (new - old).astype(old.dtype)

    change = masked(slots.mask, jax.tree.map(differ, stored, old.remembered, new.remembered, rounded))

    def replace(leaf: jax.Array, stored: Any, old: jax.Array, rounded: jax.Array, change: jax.Array) -> jax.Array:
        if not _is_rounded(stored, old):
            return leaf.at[slots.clients].add(change, unique_indices=True)
        kept = jnp.where(_column(slots.mask, rounded), rounded, old.astype(rounded.dtype))
        return leaf.at[slots.clients].set(encode(kept.astype(stored.dtype)), unique_indices=True)

    remembered = jax.tree.map(replace, rows.remembered, stored, old.remembered, rounded, change)
    return ClientState(remembered, replace_private(rows, slots, old, new.private).private), sum_rows(change)


def replace_private(rows: ClientState, slots: Cohort, old: ClientState, new: Parts) -> ClientState:
    """Replace the private parts of the real slots; without new parts nothing changes."""
    if not new:
        return rows
    kept = jax.tree.map(lambda x, y: jnp.where(_column(slots.mask, x), x, y).astype(y.dtype), new, old.private)
    private = jax.tree.map(
        lambda leaf, row: leaf.at[slots.clients].set(encode(row), unique_indices=True), rows.private, kept
    )
    return rows._replace(private=private)


def as_stored(remembered: Parts, types: RowTypes) -> Parts:
    """Return remembered parts rounded to the numbers that can be stored, but in the type of their sum."""

    def round_off(part: jax.Array, stored: Any, computed: Any) -> jax.Array:
        wide = part.astype(total_type(computed.dtype))
        return round_to(wide, stored.dtype) if _is_rounded(stored, computed) else part

    return jax.tree.map(round_off, remembered, types.stored.remembered, types.computed.remembered)


def mean_of_remembered(rows: ClientState, stored: Parts, total: Parts, num_clients: int) -> Parts:
    """Return the mean over all clients of their remembered parts.

    Where there are fewer rows than clients, the others have the state of the last row (see `row_storage.find_rows`).

    Args:
        rows: The states of the clients.
        stored: Arrays or shapes of the types to which the remembered parts are rounded.
        total: Likewise, of the types in which their sum is kept, and in which the mean is computed.
        num_clients: The number of clients, N.
    """

    def mean(leaf: jax.Array, stored: Any, total: Any) -> jax.Array:
        values, dtype = decode(leaf, stored.dtype), total.dtype
        if leaf.shape[0] == num_clients:
            return jnp.mean(values, axis=0, dtype=dtype)
        others = (num_clients - leaf.shape[0]) * values[-1].astype(dtype)
        return (jnp.sum(values, axis=0, dtype=dtype) + others) / num_clients

    return jax.tree.map(mean, rows.remembered, stored, total)


def masked(mask: jax.Array, tree: Any) -> Any:
    """Return the tree with zeros in the slots that are not real, whatever they hold."""
    return jax.tree.map(lambda leaf: jnp.where(_column(mask, leaf), leaf, 0), tree)


def sum_rows(tree: Any) -> Any:
    """Return the sums over the first axis."""
    return jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), tree)


def strongly_typed(tree: Any) -> Any:
    """Return the leaves as arrays whose types do not depend on what they are combined with."""
    return jax.tree.map(lambda leaf: lax.convert_element_type(leaf, jnp.result_type(leaf)), tree)


def _is_rounded(stored: Any, computed: Any) -> bool:
    """Return whether rows are narrower than the type that their sum is kept in."""
    return bool(stored.dtype != total_type(computed.dtype))


def _column(mask: jax.Array, leaf: jax.Array) -> jax.Array:
    return mask.reshape(-1, *[1] * (leaf.ndim - 1))
