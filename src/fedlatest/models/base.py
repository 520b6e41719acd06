"""The Model and Loss types, and the loss functions."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Params = Any


class Model(NamedTuple):
    """A pair of pure functions.

    Args:
        init: `init(key)` returns the initial parameters, a pytree of arrays.
        apply: `apply(params, features)` returns the outputs, one row per sample.
        settings: Name and arguments of the factory in `MODELS`, from which a saved model is rebuilt; empty for a custom
            model.
    """

    init: Callable[[jax.Array], Params]
    apply: Callable[[Params, Any], jax.Array]
    settings: Mapping[str, Any] = {}
    native_training: Any = None
    """A `NativeTraining`, if kernels can train a model with this `apply`; otherwise None."""


class Loss(NamedTuple):
    """A loss function and its accuracy.

    Args:
        name: Name, for manifests.
        per_sample: `per_sample(outputs, labels)` returns the loss of each sample; training minimises the mean.
        correct: `correct(outputs, labels)` returns whether each output is correct; accuracy is the mean.
    """

    name: str
    per_sample: Callable[[jax.Array, jax.Array], jax.Array]
    correct: Callable[[jax.Array, jax.Array], jax.Array]


def _cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    # A product with a one-hot vector instead of indexing: its gradient is a subtraction instead of a scatter.
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
"""For one logit per sample [...] and labels 0 or 1."""
