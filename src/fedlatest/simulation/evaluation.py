"""Loss and accuracy on a whole data set, a slice of rows at a time."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedlatest.data.features import Words
from fedlatest.models import Loss
from fedlatest.simulation.storage import expand

ROWS_AT_ONCE = 2000


class Score(NamedTuple):
    """Means over a data set, and how many rows of each label were answered correctly."""

    loss: jax.Array
    accuracy: jax.Array
    num_correct: jax.Array  # [labels], empty where labels are not counted


def evaluate(
    apply: Callable[[Any, Any], jax.Array],
    loss: Loss,
    params: Any,
    features: Any,
    labels: jax.Array,
    *,
    table: jax.Array | None = None,
    num_labels: int = 0,
) -> Score:
    """Mean loss and accuracy of the model on all rows; labels 0 .. num_labels - 1 are counted apart as well."""
    num_rows = labels.shape[0]
    if isinstance(features, Words):  # texts of a length together: a slice then takes as long as its longest, no more
        by_length = jnp.argsort(features.lengths)
        features, labels = jax.tree.map(lambda leaf: leaf[by_length], (features, labels))

    def tally(first: jax.Array | int, rows: int) -> Score:
        part = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, first, rows), (features, labels))
        outputs = apply(params, expand(part[0], table))
        correct = loss.correct(outputs, part[1]).astype(jnp.float32)
        by_label = correct @ jax.nn.one_hot(part[1], num_labels) if num_labels else jnp.zeros(0)
        return Score(jnp.sum(loss.per_sample(outputs, part[1])), jnp.sum(correct), by_label)

    whole, rest = divmod(num_rows, ROWS_AT_ONCE)
    total = Score(jnp.float32(0), jnp.float32(0), jnp.zeros(num_labels))
    if rest:
        total = tally(whole * ROWS_AT_ONCE, rest)
    if whole:
        parts = lax.map(lambda number: tally(number * ROWS_AT_ONCE, ROWS_AT_ONCE), jnp.arange(whole))
        total = jax.tree.map(lambda one, many: one + jnp.sum(many, axis=0), total, parts)
    return Score(total.loss / num_rows, total.accuracy / num_rows, total.num_correct)
