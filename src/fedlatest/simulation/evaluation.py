"""Loss and accuracy on a whole data set, a slice of rows at a time."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedlatest.data.features import Words
from fedlatest.models import Loss
from fedlatest.models.native_training import NativeTraining
from fedlatest.simulation.device_data import expand

ROWS_AT_ONCE = 2000


class Score(NamedTuple):
    """Loss and accuracy on a data set: means as returned by `evaluate`, sums as returned by `tally`."""

    loss: jax.Array
    accuracy: jax.Array  # the share of correct outputs, or their number
    num_correct: jax.Array  # [labels] correct outputs of each label; empty if labels are not counted separately


def evaluate(
    apply: Callable[[Any, Any], jax.Array],
    loss: Loss,
    params: Any,
    features: Any,
    labels: jax.Array,
    *,
    table: jax.Array | None = None,
    native: NativeTraining | None = None,
    num_labels: int = 0,
) -> Score:
    """Return the mean loss and the accuracy of a model on all samples.

    Args:
        apply: The `apply` of the model.
        loss: The loss function.
        params: The parameters of the model.
        features: [samples, ...] as they are stored on the device.
        labels: [samples].
        table: Word vectors, if the samples are texts.
        native: How kernels compute the outputs of the model, if they can.
        num_labels: Also count correct outputs for each of the labels 0 .. num_labels - 1; 0 for none.
    """
    num_rows = labels.shape[0]
    total = tally(apply, loss, params, features, labels, table=table, native=native, num_labels=num_labels)
    return Score(total.loss / num_rows, total.accuracy / num_rows, total.num_correct)


def tally(
    apply: Callable[[Any, Any], jax.Array],
    loss: Loss,
    params: Any,
    features: Any,
    labels: jax.Array,
    *,
    table: jax.Array | None = None,
    native: NativeTraining | None = None,
    num_labels: int = 0,
    num_real: jax.Array | None = None,
) -> Score:
    """Return the sum of the losses and the number of correct outputs of a model.

    Args:
        apply: The `apply` of the model.
        loss: The loss function.
        params: The parameters of the model.
        features: [samples, ...] as they are stored on the device.
        labels: [samples].
        table: Word vectors, if the samples are texts.
        native: How kernels compute the outputs of the model, if they can.
        num_labels: Also count correct outputs for each of the labels 0 .. num_labels - 1; 0 for none.
        num_real: The number of samples before the padding, which is not counted; by default there is no padding.
    """
    num_rows = labels.shape[0]
    real = None if num_real is None else jnp.arange(num_rows) < num_real
    if isinstance(features, Words):  # a slice takes as long as its longest text: put texts of similar length together
        by_length = jnp.argsort(features.lengths)
        features, labels, real = jax.tree.map(lambda leaf: leaf[by_length], (features, labels, real))

    in_kernel = None if native is None else native.choose_outputs(features)

    def add_up(first: jax.Array | int, rows: int) -> Score:
        part = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, first, rows), (features, labels, real))
        outputs = in_kernel(params, part[0]) if in_kernel else apply(params, expand(part[0], table))
        correct = loss.correct(outputs, part[1]).astype(jnp.float32)
        losses = loss.per_sample(outputs, part[1])
        if real is not None:
            losses, correct = jnp.where(part[2], losses, 0.0), jnp.where(part[2], correct, 0.0)
        by_label = correct @ jax.nn.one_hot(part[1], num_labels) if num_labels else jnp.zeros(0)
        return Score(jnp.sum(losses), jnp.sum(correct), by_label)

    whole, rest = divmod(num_rows, ROWS_AT_ONCE)
    total = Score(jnp.float32(0), jnp.float32(0), jnp.zeros(num_labels))
    if rest:
        total = add_up(whole * ROWS_AT_ONCE, rest)
    if whole:
        parts = lax.map(lambda number: add_up(number * ROWS_AT_ONCE, ROWS_AT_ONCE), jnp.arange(whole))
        total = jax.tree.map(lambda one, many: one + jnp.sum(many, axis=0), total, parts)
    return total
