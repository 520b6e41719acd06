"""What a model is: an (init, apply) pair of pure functions."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Params = Any


class Model(NamedTuple):
    """`init(key) -> params` and `apply(params, features) -> outputs`, one row per sample.

    `settings` lets a saved model be rebuilt by name; a model of your own leaves it empty.
    """

    init: Callable[[jax.Array], Params]
    apply: Callable[[Params, Any], jax.Array]
    settings: Mapping[str, Any] = {}


class Loss(NamedTuple):
    """`per_sample(outputs, labels)` is what training descends; `correct(outputs, labels)` is what accuracy counts."""

    name: str
    per_sample: Callable[[jax.Array, jax.Array], jax.Array]
    correct: Callable[[jax.Array, jax.Array], jax.Array]


def _cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    # A one-hot product instead of an index: its gradient is a plain subtraction, not a scatter.
    chosen = jnp.sum(logits * jax.nn.one_hot(labels, logits.shape[-1], dtype=logits.dtype), axis=-1)
    return jax.nn.logsumexp(logits, axis=-1) - chosen


softmax_cross_entropy = Loss(
    "softmax_cross_entropy", _cross_entropy, lambda logits, labels: jnp.argmax(logits, axis=-1) == labels
)
"""For logits [..., classes] and integer labels."""

sigmoid_cross_entropy = Loss(
    "sigmoid_cross_entropy",
    lambda logits, labels: jax.nn.softplus(logits) - labels * logits,
    lambda logits, labels: (logits > 0) == (labels > 0),
)
"""For one logit a sample [...] and labels 0 or 1."""
