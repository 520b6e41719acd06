"""The states of all clients, one row per client, and how a round reads and replaces the rows of its cohort.

`rounds.py` accesses the rows [N, ...] only through these functions. Slots that are not real are masked; positions
beyond the last row are read as the last row, and writes to them are dropped.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fedlatest.algorithms.base import ClientState, Cohort, Parts


def make_rows(one: ClientState, num_clients: int) -> ClientState:
    """Return the rows of clients that all have the same state."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_clients, *jnp.shape(leaf))), one)


def read_rows(rows: ClientState, positions: jax.Array) -> ClientState:
    """Return the states [K, ...] of the clients at some positions."""
    return jax.tree.map(lambda leaf: leaf[positions], rows)


def replace_rows(rows: ClientState, slots: Cohort, old: ClientState, new: ClientState) -> tuple[ClientState, Parts]:
    """Replace the rows of the real slots.

    Args:
        rows: The states of all clients.
        slots: The positions of the clients, and which slots are real.
        old: Their states, as `read_rows` returned them.
        new: Their new states; without private parts these stay unchanged.

    Returns:
        The states of all clients, and the sum over the slots of the differences of their remembered parts.
    """
    change = jax.tree.map(lambda x, y: (x - y).astype(y.dtype), new.remembered, old.remembered)
    change = masked(slots.mask, change)
    remembered = jax.tree.map(
        lambda leaf, delta: leaf.at[slots.clients].add(delta, unique_indices=True), rows.remembered, change
    )
    return ClientState(remembered, replace_private(rows, slots, old, new.private).private), sum_rows(change)


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


def masked(mask: jax.Array, tree: Any) -> Any:
    """Return the tree with zeros in the slots that are not real, whatever they hold."""
    return jax.tree.map(lambda leaf: jnp.where(_column(mask, leaf), leaf, 0), tree)


def sum_rows(tree: Any) -> Any:
    """Return the sums over the first axis."""
    return jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), tree)


def strongly_typed(tree: Any) -> Any:
    """Return the leaves as arrays whose types do not depend on what they are combined with."""
    return jax.tree.map(lambda leaf: lax.convert_element_type(leaf, jnp.result_type(leaf)), tree)


def _column(mask: jax.Array, leaf: jax.Array) -> jax.Array:
    return mask.reshape(-1, *[1] * (leaf.ndim - 1))
