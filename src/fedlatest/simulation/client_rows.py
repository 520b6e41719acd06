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
from fedlatest.kernels import rows_native
from fedlatest.simulation.row_storage import RowTypes, decode, encode, round_to, total_type

SUMMED_BYTES = 64 * 2**20  # of rows that are summed at once


def make_rows(one: ClientState, num_rows: int) -> ClientState:
    """Return the rows of clients that all have the same state, given as it is rounded."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(encode(leaf), (num_rows, *leaf.shape)), one)


def read_rows(rows: ClientState, numbers: jax.Array, types: RowTypes) -> ClientState:
    """Return some clients' states [K, ...].

    A single row is read as two equal ones. XLA would otherwise read it as a slice in each operation that uses it, also
    after the row was replaced, and for that copy all rows beforehand.
    """
    size = numbers.shape[0]
    several = jnp.concatenate([numbers, numbers]) if size == 1 else numbers

    def read(leaf: jax.Array, stored: Any, computed: Any) -> jax.Array:
        return decode(leaf[several][:size], stored.dtype).astype(computed.dtype)

    return jax.tree.map(read, rows, types.stored, types.computed)


def replace_rows(
    rows: ClientState,
    slots: Cohort,
    old: ClientState,
    new: ClientState,
    delta: Parts,
    types: RowTypes,
    base: Parts | None = None,
) -> tuple[ClientState, Parts]:
    """Replace the rows of the real slots.

    Args:
        rows: The states of the clients, as they are stored.
        slots: The numbers of the clients' rows, and which slots are real.
        old: Their states, as `read_rows` returned them.
        new: Their new states; without private parts these stay unchanged.
        delta: The sum of differences so far.
        types: The types of the rows.
        base: Is subtracted from every client's new remembered parts.

    Returns:
        The rows, and `delta` plus the differences of the slots' remembered parts. These are the differences of what is
        stored, after rounding to its type: a sum of them stays the sum of all rows.
    """
    after = replace_private(rows, slots, old, new.private)
    if rows_native.is_usable((rows.remembered, new.remembered, base)):
        leaves, structure = jax.tree.flatten(rows.remembered)
        parts = zip(leaves, jax.tree.leaves(delta), jax.tree.leaves(new.remembered), strict=True)
        bases = [None] * len(leaves) if base is None else jax.tree.leaves(base)
        replaced = [
            rows_native.replace_rows(*part, slots.clients, slots.mask, own)
            for part, own in zip(parts, bases, strict=True)
        ]
        remembered, delta = (jax.tree.unflatten(structure, column) for column in zip(*replaced, strict=True))
        return after._replace(remembered=remembered), delta
    new = new._replace(remembered=minus(new.remembered, base))
    stored = types.stored.remembered
    rounded = as_stored(new.remembered, types)

    def differ(stored: Any, old: jax.Array, new: jax.Array, rounded: jax.Array) -> jax.Array:
        return rounded - old.astype(rounded.dtype) if _is_rounded(stored, old) else (new - old).astype(old.dtype)

    change = _masked(slots.mask, jax.tree.map(differ, stored, old.remembered, new.remembered, rounded))

    def replace(leaf: jax.Array, stored: Any, old: jax.Array, rounded: jax.Array, change: jax.Array) -> jax.Array:
        if not _is_rounded(stored, old):
            return leaf.at[slots.clients].add(change, unique_indices=True)
        kept = jnp.where(_column(slots.mask, rounded), rounded, old.astype(rounded.dtype))
        return leaf.at[slots.clients].set(encode(kept.astype(stored.dtype)), unique_indices=True)

    remembered = jax.tree.map(replace, rows.remembered, stored, old.remembered, rounded, change)
    return after._replace(remembered=remembered), accumulate(delta, sum_rows(change))


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
        if leaf.shape[0] == num_clients and leaf.size * leaf.dtype.itemsize <= SUMMED_BYTES:
            return jnp.sum(decode(leaf, stored.dtype), axis=0, dtype=total.dtype) / num_clients
        others = (num_clients - leaf.shape[0]) * decode(leaf[-1], stored.dtype).astype(total.dtype)
        return (_sum_in_blocks(leaf, stored.dtype, total.dtype) + others) / num_clients

    return jax.tree.map(mean, rows.remembered, stored, total)


def _masked(mask: jax.Array, tree: Any) -> Any:
    """Return the tree with zeros in the slots that are not real, whatever they hold."""
    return jax.tree.map(lambda leaf: jnp.where(_column(mask, leaf), leaf, 0), tree)


def add_rows(totals: Parts, rows: Parts, mask: jax.Array, base: Parts | None = None) -> Parts:
    """Return totals [...] plus the rows [K, ...] of the real slots, each minus the base."""
    if rows_native.is_usable((totals, rows, base)):
        trees = (totals, rows) if base is None else (totals, rows, base)
        return jax.tree.map(lambda total, leaf, *own: rows_native.add_rows(total, leaf, mask, *own), *trees)
    return accumulate(totals, sum_rows(_masked(mask, minus(rows, base))))


def minus(rows: Parts, base: Parts | None) -> Parts:
    """Return the rows [K, ...], each minus the base [...] if there is one."""
    return rows if base is None else jax.tree.map(lambda leaf, own: leaf - own, rows, base)


def accumulate(totals: Any, parts: Any) -> Any:
    """Return totals + parts, in the types of the totals."""
    return jax.tree.map(lambda total, part: total + part.astype(total.dtype), totals, parts)


def sum_rows(tree: Any) -> Any:
    """Return the sums over the first axis."""
    return jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), tree)


def strongly_typed(tree: Any) -> Any:
    """Return the leaves as arrays whose types do not depend on what they are combined with."""
    return jax.tree.map(lambda leaf: lax.convert_element_type(leaf, jnp.result_type(leaf)), tree)


def _sum_in_blocks(leaf: jax.Array, stored: Any, dtype: Any) -> jax.Array:
    """Return the sum of many rows in a wide type; XLA would convert or rearrange all of them at once in new memory."""

    def add_block(first: Any, size: int, total: jax.Array) -> jax.Array:
        block = lax.dynamic_slice_in_dim(leaf, first, size)
        return total + jnp.sum(decode(block, stored), axis=0, dtype=dtype)

    num_rows, row_bytes = leaf.shape[0], max(1, leaf.size // leaf.shape[0] * leaf.dtype.itemsize)
    size = min(num_rows, max(1, SUMMED_BYTES // row_bytes))
    whole, rest = divmod(num_rows, size)
    total = jnp.zeros(leaf.shape[1:], dtype)
    total = lax.fori_loop(0, whole, lambda number, total: add_block(number * size, size, total), total)
    return add_block(whole * size, rest, total) if rest else total


def _is_rounded(stored: Any, computed: Any) -> bool:
    """Return whether rows are narrower than the type that their sum is kept in."""
    return bool(stored.dtype != total_type(computed.dtype))


def _column(mask: jax.Array, leaf: jax.Array) -> jax.Array:
    return mask.reshape(-1, *[1] * (leaf.ndim - 1))
