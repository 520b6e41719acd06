"""Availability as a table of bits: the result of another model for one seed, computed before a run."""

from dataclasses import dataclass, field, replace
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.tree_util import register_dataclass
from jax.typing import ArrayLike
from numpy.typing import ArrayLike as Values

from fedlatest.availability.base import Availability, FingerprintedModel

MAX_TABLE_BYTES = 2**26  # of one table; a longer run or more clients are evaluated round by round
_KEPT_TABLES = 512


def tabulate(model: Availability, horizon: int, seed: int) -> Availability:
    """Return a model that is available as `model` is with one seed in rounds 0 .. horizon - 1, whatever its own seed.

    Tables of equal size have the same structure, so that runs under different models share one compiled program. A
    model whose table would be larger than MAX_TABLE_BYTES is returned as it is.

    Args:
        model: The model to evaluate.
        horizon: The number of rounds.
        seed: Seed of the model's random draws.

    >>> from fedlatest.availability import diurnal
    >>> tabulate(diurnal([True, False], period=2), 4, seed=0).table(4, seed=5).astype(int).tolist()
    [[1, 0], [1, 0], [0, 1], [0, 1]]
    """
    if horizon * -(-model.num_clients // 8) > MAX_TABLE_BYTES:
        return model
    if model.intervals() is not None:
        seed = 0  # the model does not depend on the seed: trials then share one table
    return _tabulate(FingerprintedModel.of(model), horizon, seed)


def from_table(table: npt.NDArray[np.bool_]) -> Availability:
    """Return the model of a table [rounds, N]; rounds after the last one are as the last one.

    >>> from_table(np.array([[True, False], [False, True]])).table(2).astype(int).tolist()
    [[1, 0], [0, 1]]
    """
    return Tabulated(jnp.asarray(_packed(table)), table.shape[1])


@register_dataclass
@dataclass(frozen=True)
class Tabulated(Availability):
    """A table of bits. Created by `tabulate` or `from_table`."""

    bits: jax.Array  # uint8[horizon, ceil(N / 8)]
    size: int = field(metadata={"static": True})

    @property
    def num_clients(self) -> int:
        """The number of clients, N."""
        return self.size

    def available(self, round: ArrayLike, seed: ArrayLike) -> jax.Array:
        """Return the row of the table."""
        del seed
        row = self.bits[jnp.asarray(round)]
        return ((row[:, None] >> jnp.arange(8, dtype=jnp.uint8)) & 1).astype(bool).reshape(-1)[: self.size]

    def subset(self, clients: Values) -> Availability:
        """Return the model of the clients at some positions."""
        chosen = np.unpackbits(np.asarray(self.bits), axis=1, bitorder="little")[:, np.asarray(clients)]
        return replace(self, bits=jnp.asarray(_packed(chosen.astype(bool))), size=chosen.shape[1])


@lru_cache(maxsize=_KEPT_TABLES)
def _tabulate(named: FingerprintedModel, horizon: int, seed: int) -> Tabulated:
    return Tabulated(jnp.asarray(_packed(named.model.table(horizon, seed))), named.model.num_clients)


def _packed(table: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
    return np.packbits(table, axis=1, bitorder="little")
