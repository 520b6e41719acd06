"""How the states of the clients are stored: for which clients there are rows, where, and in which type.

    rows    where                                                     a row exists for
    all     on the device                                             every client, [N, ...]
    seen    on the device                                             clients that have taken part
    host    in host memory; only the cohort's rows on the device      clients that have taken part
    disk    in a file; only the cohort's rows on the device           clients that have taken part

All four give the same models, bit for bit. At most cohort size x rounds clients can take part, so the number of rows
is known before the run. A narrower type rounds the remembered parts and therefore changes results; the sum of what is
stored is kept in float32 at least.

Rows of 16-bit floating-point numbers lie in memory as unsigned integers of the same bits (`encode`): on a CPU, XLA
would otherwise convert all rows to float32 and back in order to replace a few.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jax import lax

from fedlatest.algorithms.base import ClientState, Cohort, Parts
from fedlatest.errors import ConfigError

Rows = Literal["all", "seen", "host", "disk"]
ClientRows = Literal["auto", "all", "seen", "host", "disk"]
RememberedType = Literal["float32", "bfloat16", "float16"]
NO_ROW = -1
_INTEGERS = {1: jnp.uint8, 2: jnp.uint16}  # by size, for the bits of floating-point numbers


@dataclass(frozen=True)
class RowStorage:
    """How the states of the clients are stored; part of a compiled program.

    Args:
        rows: See the table at the top of this module.
        dtype: The type of the remembered parts' floating-point numbers; None keeps the type that the algorithm
            computes in.
        capacity: The number of clients that can take part; unused if there is a row for every client.
    """

    rows: Rows = "all"
    dtype: RememberedType | None = None
    capacity: int = 0

    @property
    def on_device(self) -> bool:
        """Whether all rows are on the device, and not only those of the cohort."""
        return self.rows in ("all", "seen")

    def num_rows(self, num_clients: int) -> int:
        """Return the number of rows of a trial."""
        return {"all": num_clients, "seen": self.capacity + 1}.get(self.rows, self.capacity)

    def stored(self, one: ClientState) -> ClientState:
        """Return the state of one client in the types to which its numbers are rounded."""
        if self.dtype is None:
            return one
        narrow = jnp.dtype(self.dtype)

        def cast(leaf: jax.Array) -> jax.Array:
            is_wide = jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.dtype.itemsize > narrow.itemsize
            return leaf.astype(narrow) if is_wide else leaf

        return one._replace(remembered=jax.tree.map(cast, one.remembered))


class RowTypes(NamedTuple):
    """The shapes and types of one client's state."""

    computed: ClientState  # as the algorithm sees it
    stored: ClientState  # as it is rounded


def row_types(storage: RowStorage, one: ClientState) -> RowTypes:
    """Return the types of the rows of clients, given the shapes or the state of one of them."""
    return RowTypes(*jax.eval_shape(lambda one: (one, storage.stored(one)), one))


def encode(leaf: jax.Array) -> jax.Array:
    """Return 16-bit (or narrower) floating-point numbers as the integers of their bits; other numbers as they are.

    >>> encode(jnp.ones(1, jnp.bfloat16)).tolist(), encode(jnp.ones(1)).tolist()
    ([16256], [1.0])
    """
    if not (jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.dtype.itemsize in _INTEGERS):
        return leaf
    return lax.bitcast_convert_type(leaf, _INTEGERS[leaf.dtype.itemsize])


def decode(leaf: jax.Array, dtype: Any) -> jax.Array:
    """Return the numbers of type `dtype` that `encode` was given."""
    return leaf if leaf.dtype == dtype else lax.bitcast_convert_type(leaf, dtype)


ALL_ROWS = RowStorage()


class RowSlots(NamedTuple):
    """Which row belongs to which client, where only clients that have taken part have one."""

    row_of: jax.Array  # [N], or NO_ROW
    num_used: jax.Array  # rows 0 .. num_used - 1 are in use


def check_storage(client_rows: str, remembered_dtype: str | None) -> None:
    """Raise ConfigError if a name is unknown."""
    if client_rows not in get_args(ClientRows):
        raise ConfigError(f"client_rows={client_rows}: choose one of {', '.join(get_args(ClientRows))}")
    if remembered_dtype is not None and remembered_dtype not in get_args(RememberedType):
        raise ConfigError(f"remembered_dtype={remembered_dtype}: choose one of {', '.join(get_args(RememberedType))}")


def no_slots(storage: RowStorage, num_clients: int) -> RowSlots | None:
    """Return an empty table of rows; None if every client has a row or all rows are off the device."""
    if storage.rows != "seen":
        return None
    return RowSlots(jnp.full(num_clients, NO_ROW, jnp.int32), jnp.int32(0))


def find_rows(storage: RowStorage, slots: RowSlots | None, cohort: Cohort) -> tuple[RowSlots | None, jax.Array]:
    """Return the number of the row [K] of each client of a cohort, after giving rows to those that have none.

    Masked slots without a row get distinct numbers beyond the last row, where reads find the initial state and writes
    are dropped.
    """
    size = cohort.clients.shape[0]
    if storage.rows == "all":
        return None, cohort.clients
    if slots is None:  # the rows of the cohort alone are on the device
        return None, jnp.arange(size, dtype=jnp.int32)
    found = slots.row_of[cohort.clients]
    new = cohort.mask & (found == NO_ROW)
    rows = jnp.where(new, slots.num_used + jnp.cumsum(new, dtype=jnp.int32) - 1, found)
    beyond = storage.capacity + 1 + jnp.arange(size, dtype=jnp.int32)
    row_of = slots.row_of.at[cohort.clients].set(rows, unique_indices=True)
    used = slots.num_used + jnp.sum(new, dtype=jnp.int32)
    return RowSlots(row_of, used), jnp.where(rows == NO_ROW, beyond, rows)


def total_type(dtype: Any) -> Any:
    """Return the type in which the sum over all clients is kept: never narrower than float32 or int32.

    >>> total_type(jnp.bfloat16).name, total_type(jnp.int8).name
    ('float32', 'int32')
    """
    if jnp.issubdtype(dtype, jnp.floating):
        return jnp.promote_types(dtype, jnp.float32)
    return jnp.promote_types(dtype, jnp.int32) if jnp.issubdtype(dtype, jnp.integer) else jnp.dtype(dtype)


def initial_total(one: Parts, stored: Parts, num_clients: int) -> Parts:
    """Return the sum over all clients of the remembered parts as they are stored before round 0."""

    def total(leaf: jax.Array, kept: Any) -> jax.Array:
        dtype = total_type(leaf.dtype)
        wide = leaf.astype(dtype) if kept.dtype == leaf.dtype else round_to(leaf.astype(dtype), kept.dtype)
        return (num_clients * wide).astype(dtype)

    return jax.tree.map(total, one, stored)


def round_to(values: jax.Array, dtype: Any) -> jax.Array:
    """Return floating-point numbers rounded to those of another type, in their own type.

    XLA leaves out a conversion to a narrower type and back, and may compute a value twice, with different rounding, for
    two operations that use it. The barrier prevents both: all that is computed from the result is computed from one
    array of rounded numbers. (`lax.reduce_precision` would turn the subnormal numbers of float16 into zeros.)

    >>> round_to(jnp.float32(1.003), jnp.bfloat16).item()
    1.0
    """
    narrow = lax.optimization_barrier(encode(values.astype(dtype)))
    return decode(narrow, dtype).astype(values.dtype)
