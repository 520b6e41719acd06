"""The LSTM kernel for CPUs, lstm.c: the recurrence over the words of a text, and its gradient."""

from typing import Any

import jax
import jax.numpy as jnp

from fedlatest.kernels import native_library
from fedlatest.kernels.native_library import Kernel, call

Weights = tuple[jax.Array, ...]  # input, hidden and bias of the lower layer, then of the upper layer


def kernel(num_inputs: int, hidden: int) -> Kernel:
    """Return the kernel for these sizes."""
    return Kernel("lstm.c", ("forward", "backward"), (("INPUTS", num_inputs), ("HIDDEN", hidden)))


def is_usable(num_inputs: int, hidden: int) -> bool:
    """Return whether the kernel for these sizes can be used."""
    return native_library.is_usable(kernel(num_inputs, hidden))


@jax.custom_vjp
def last_hidden(weights: Weights, vectors: jax.Array, lengths: jax.Array) -> jax.Array:
    """Return [texts, hidden] the state of the upper layer after the last word.

    Args:
        weights: Weights of both layers.
        vectors: float32 [texts, words, inputs] word vectors.
        lengths: int32 [texts] number of words.
    """
    shape = jax.ShapeDtypeStruct((vectors.shape[0], weights[1].shape[0]), jnp.float32)
    return _call("forward", shape, weights, vectors, lengths)


def _forward(weights: Weights, vectors: jax.Array, lengths: jax.Array) -> tuple[jax.Array, Any]:
    hidden = weights[1].shape[0]
    last = jax.ShapeDtypeStruct((vectors.shape[0], hidden), jnp.float32)
    traces = jax.ShapeDtypeStruct((*vectors.shape[:2], 12 * hidden), jnp.float32)
    state, computed_traces = _call("forward", (last, traces), weights, vectors, lengths)
    return state, (weights, vectors, lengths, computed_traces)


def _backward(residuals: Any, gradient: jax.Array) -> tuple[Weights, None, None]:
    weights, vectors, lengths, traces = residuals
    shapes = tuple(jax.ShapeDtypeStruct(weight.shape, jnp.float32) for weight in weights)
    return tuple(_call("backward", shapes, weights, vectors, lengths, traces, gradient)), None, None


last_hidden.defvjp(_forward, _backward)


def _call(handler: str, shapes: Any, weights: Weights, *arrays: jax.Array) -> Any:
    # Under vmap all arguments get a leading axis of models, over which the kernel loops itself.
    sizes = kernel(weights[0].shape[0], weights[1].shape[0])
    return call(sizes, handler, shapes, *weights, *arrays, vmap_method="broadcast_all")
