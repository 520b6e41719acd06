"""Loss and accuracy on a whole data set, a slice of rows at a time."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedlatest.models import Loss
from fedlatest.simulation.storage import expand

ROWS_AT_ONCE = 2000


class Score(NamedTuple):
    """Means over a data set."""

    loss: jax.Array
    accuracy: jax.Array


def evaluate(
    apply: Callable[[Any, Any], jax.Array], loss: Loss, params: Any, features: Any, labels: jax.Array
) -> Score:
    """Mean loss and accuracy of the model on all rows."""
    num_rows = labels.shape[0]

    def tally(first: jax.Array | int, rows: int) -> Score:
        part = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, first, rows), (features, labels))
        outputs = apply(params, expand(part[0]))
        return Score(
            jnp.sum(loss.per_sample(outputs, part[1])),
            jnp.sum(loss.correct(outputs, part[1]).astype(jnp.float32)),
        )

    whole, rest = divmod(num_rows, ROWS_AT_ONCE)
    total = tally(whole * ROWS_AT_ONCE, rest) if rest else Score(jnp.float32(0), jnp.float32(0))
    if whole:
        parts = lax.map(lambda number: tally(number * ROWS_AT_ONCE, ROWS_AT_ONCE), jnp.arange(whole))
        total = jax.tree.map(lambda one, many: one + jnp.sum(many), total, parts)
    return jax.tree.map(lambda amount: amount / num_rows, total)
