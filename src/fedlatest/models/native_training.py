"""Local training of the built-in models by native kernels: many local steps of many clients in one call."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedlatest.data.features import Pixels, Words
from fedlatest.kernels import dense_pallas, lstm_training_pallas
from fedlatest.kernels.native_library import Kernel, is_usable
from fedlatest.kernels.training_native import dense_kernel, dense_outputs, lstm_kernel, train
from fedlatest.models.base import Loss, Params, sigmoid_cross_entropy, softmax_cross_entropy

EVALUATED_AT_ONCE = 5  # samples whose outputs dense.c computes together
MAX_BATCH = 32  # above it, the matrix products of XLA are as fast as dense.c, which is made for small batches
Apply = Callable[[Params, Any], jax.Array]


class Samples(NamedTuple):
    """The samples of all clients as they are stored on the device."""

    features: Any  # [samples, ...]
    labels: jax.Array  # [samples]
    table: jax.Array | None  # word vectors


class LocalSteps(NamedTuple):
    """The steps x - rate * gradient - pull * (x - start) - offset of one client."""

    start: Params
    offset: Params | None  # a tree like the model
    rows: jax.Array  # [steps, batch] the samples of each batch
    rates: jax.Array  # [steps]
    pulls: jax.Array | None  # [steps]; None for zeros


Train = Callable[[Samples, LocalSteps], Params]
"""Returns the model of one client after its local steps; under vmap, of all clients in one call."""


class NativeTraining(NamedTuple):
    """How kernels train a model.

    Args:
        apply: The `apply` of the model that the kernel trains; a model with another one is not trained by the kernel.
        loss: The loss whose gradient the kernel computes.
        choose: (features, batch_size) -> the function that trains on such samples on the device that JAX
            uses, or None if there is no usable kernel.
        choose_outputs: features -> a function (params, features) that returns the outputs of the model on such samples,
            or None if there is no usable kernel.
    """

    apply: Apply
    loss: Loss
    choose: Callable[[Any, int], Train | None]
    choose_outputs: Callable[[Any], Callable[[Params, Any], jax.Array] | None] = lambda features: None


def dense_training(apply: Apply, *, num_features: int, hidden: int, num_classes: int) -> NativeTraining:
    """Return how kernels train `logistic` and `mlp`.

    Args:
        apply: The `apply` of the model.
        num_features: Length of the input.
        hidden: Number of hidden units; 0 for `logistic`.
        num_classes: Number of logits.
    """

    def is_supported(features: Any) -> bool:
        array = _levels(features)
        is_array = getattr(array, "shape", ())[1:] == (num_features,)
        return is_array and (isinstance(features, Pixels) or array.dtype == jnp.float32)

    def kernel_for(features: Any, batch_size: int) -> Kernel:
        sizes = {"num_inputs": num_features, "hidden": hidden, "num_outputs": num_classes, "batch_size": batch_size}
        return dense_kernel(**sizes, is_bytes=isinstance(features, Pixels))

    def choose(features: Any, batch_size: int) -> Train | None:
        if not is_supported(features) or batch_size > MAX_BATCH:
            return None
        if jax.default_backend() == "gpu":
            usable = not hidden and dense_pallas.is_usable(num_features, num_classes)
            usable = usable and has_short_offsets(_levels(features))
            return _train_dense_in_pallas if usable else None
        return _train_in_c(
            kernel_for(features, batch_size), lambda samples: (_levels(samples.features), samples.labels)
        )

    def choose_outputs(features: Any) -> Callable[[Params, Any], jax.Array] | None:
        if jax.default_backend() != "cpu" or not is_supported(features):
            return None
        kernel = kernel_for(features, EVALUATED_AT_ONCE)
        if not is_usable(kernel):
            return None
        return lambda params, features: dense_outputs(kernel, params, _levels(features), num_classes)

    return NativeTraining(apply, softmax_cross_entropy, choose, choose_outputs)


def lstm_training(apply: Apply, *, num_features: int, hidden: int) -> NativeTraining:
    """Return how kernels train `lstm` on texts that are stored as word numbers.

    Args:
        apply: The `apply` of the model.
        num_features: Length of a word vector.
        hidden: Number of hidden units in each layer.
    """

    def choose(features: Any, batch_size: int) -> Train | None:
        if not isinstance(features, Words):
            return None
        sizes = {
            "num_inputs": num_features, "hidden": hidden, "batch_size": batch_size, "num_words": features.ids.shape[1],
        }  # fmt: skip
        if jax.default_backend() == "gpu":
            usable = lstm_training_pallas.is_usable(**sizes) and has_short_offsets(features.ids)
            return _train_lstm_in_pallas if usable else None
        kernel = lstm_kernel(**sizes, id_bytes=min(4, features.ids.dtype.itemsize))
        return _train_in_c(kernel, _texts)

    return NativeTraining(apply, sigmoid_cross_entropy, choose)


def has_short_offsets(array: Any) -> bool:
    """Return whether Pallas addresses an array correctly.

    It uses offsets of 32 bits, with a sign, up to 2^32 bytes; an array of bytes may then have too many elements.

    >>> [has_short_offsets(jax.ShapeDtypeStruct((n, 1024), "uint8")) for n in (2**20, 2**21, 2**22, 2**23)]
    [True, True, False, True]
    """
    return not 2**31 < array.size <= 2**32 // array.dtype.itemsize


def _levels(features: Any) -> Any:
    return features.levels if isinstance(features, Pixels) else features


def _texts(samples: Samples) -> tuple[Any, ...]:
    texts = samples.features
    return texts.ids, jnp.asarray(texts.lengths, jnp.int32), samples.labels, samples.table


def _train_in_c(kernel: Kernel, arrays: Callable[[Samples], tuple[Any, ...]]) -> Train | None:
    if jax.default_backend() != "cpu" or not is_usable(kernel):
        return None

    def run(samples: Samples, steps: LocalSteps) -> Params:
        return train(
            kernel, steps.start, steps.offset, arrays(samples), steps.rows, steps.rates,
            jnp.zeros_like(steps.rates) if steps.pulls is None else steps.pulls,
        )  # fmt: skip

    return run


def _train_dense_in_pallas(samples: Samples, steps: LocalSteps) -> Params:
    return dense_pallas.train(
        steps.start, steps.offset, _levels(samples.features), samples.labels, steps.rows, steps.rates, steps.pulls
    )


def _train_lstm_in_pallas(samples: Samples, steps: LocalSteps) -> Params:
    ids, lengths, labels, table = _texts(samples)
    return lstm_training_pallas.train(
        steps.start, steps.offset, ids, lengths, labels, table, steps.rows, steps.rates, steps.pulls
    )
