"""Local training of the built-in models by native kernels: many local steps of many clients in one call."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedlatest.data.features import Pixels, Words
from fedlatest.kernels.native_library import Kernel
from fedlatest.kernels.training_native import dense_kernel, lstm_kernel, train
from fedlatest.models.base import Loss, Params, sigmoid_cross_entropy, softmax_cross_entropy

Apply = Callable[[Params, Any], jax.Array]


class Samples(NamedTuple):
    """The samples of all clients as they lie on the device."""

    features: Any  # [samples, ...]
    labels: jax.Array  # [samples]
    table: jax.Array | None  # word vectors


class LocalSteps(NamedTuple):
    """The steps x - rate * gradient - pull * (x - start) - offset of one client."""

    start: Params
    offset: Params | None  # a tree like the model
    rows: jax.Array  # [steps, batch] the samples of each batch
    rates: jax.Array  # [steps]
    pulls: jax.Array  # [steps]


class NativeTraining(NamedTuple):
    """How kernels train a model.

    Args:
        apply: The `apply` of the model that the kernel trains; a model with another one is not trained by the kernel.
        loss: The loss whose gradient the kernel computes.
        kernel: (features, batch_size, num_steps) -> the kernel for such samples, or None if there is none.
        train: (kernel, samples, steps) -> the model of one client after its local steps; under vmap, of all clients.
    """

    apply: Apply
    loss: Loss
    kernel: Callable[[Any, int, int], Kernel | None]
    train: Callable[[Kernel, Samples, LocalSteps], Params]


def dense_training(apply: Apply, *, num_features: int, hidden: int, num_classes: int) -> NativeTraining:
    """Return how `logistic` (no hidden units) and `mlp` are trained."""

    def kernel(features: Any, batch_size: int, num_steps: int) -> Kernel | None:
        array = features.levels if isinstance(features, Pixels) else features
        if getattr(array, "shape", ())[1:] != (num_features,):
            return None
        if not isinstance(features, Pixels) and array.dtype != jnp.float32:
            return None
        return dense_kernel(
            num_inputs=num_features,
            hidden=hidden,
            num_outputs=num_classes,
            batch_size=batch_size,
            num_steps=num_steps,
            is_bytes=isinstance(features, Pixels),
        )

    def train(kernel: Kernel, samples: Samples, steps: LocalSteps) -> Params:
        features = samples.features.levels if isinstance(samples.features, Pixels) else samples.features
        return _train(kernel, (features, samples.labels), steps)

    return NativeTraining(apply, softmax_cross_entropy, kernel, train)


def lstm_training(apply: Apply, *, num_features: int, hidden: int) -> NativeTraining:
    """Return how `lstm` is trained on texts that are stored as numbers of words."""

    def kernel(features: Any, batch_size: int, num_steps: int) -> Kernel | None:
        if not isinstance(features, Words):
            return None
        return lstm_kernel(
            num_inputs=num_features,
            hidden=hidden,
            batch_size=batch_size,
            num_steps=num_steps,
            num_words=features.ids.shape[1],
            id_bytes=min(4, features.ids.dtype.itemsize),
        )

    def train(kernel: Kernel, samples: Samples, steps: LocalSteps) -> Params:
        texts = samples.features
        return _train(kernel, (texts.ids, jnp.asarray(texts.lengths, jnp.int32), samples.labels, samples.table), steps)

    return NativeTraining(apply, sigmoid_cross_entropy, kernel, train)


def _train(kernel: Kernel, samples: tuple[Any, ...], steps: LocalSteps) -> Params:
    return train(kernel, steps.start, steps.offset, samples, steps.rows, steps.rates, steps.pulls)
