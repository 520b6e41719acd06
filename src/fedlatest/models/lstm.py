"""A two-layer LSTM over word vectors, with one logit per text from the state after its last word.

The recurrence runs in a kernel for the CPU or the GPU if one is usable, else in plain JAX.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedlatest.data.features import Sentences, zero_padding
from fedlatest.errors import ConfigError
from fedlatest.kernels import lstm_native, lstm_pallas
from fedlatest.models.base import Model, Params
from fedlatest.models.dense import dense, dense_init
from fedlatest.models.native_training import lstm_training

_States = tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]


def lstm(*, num_features: int, hidden: int = 16) -> Model:
    """Two layers of `hidden` units; maps `Sentences` to one logit per text. The word vectors are not trained.

    The state of a text without words is zero.

    >>> import numpy as np
    >>> model = lstm(num_features=5, hidden=4)
    >>> texts = Sentences(np.ones((2, 3, 5), np.float32), np.array([3, 0], np.int32))
    >>> model.apply(model.init(jax.random.key(0)), texts).shape
    (2,)
    """
    if hidden < 1:
        raise ConfigError(f"hidden={hidden}: must be at least 1 unit")

    def init(key: jax.Array) -> Params:
        lower, upper, output = jax.random.split(key, 3)
        return {
            "lower": _layer_init(lower, num_features, hidden),
            "upper": _layer_init(upper, hidden, hidden),
            "output": dense_init(output, hidden, 1),
        }

    def apply(params: Params, texts: Sentences) -> jax.Array:
        if not isinstance(texts, Sentences):
            raise ConfigError("lstm: the features must be texts; use model=logistic or model=mlp for arrays of numbers")
        state = last_hidden(_layer(params["lower"]), _layer(params["upper"]), texts)
        return dense(params["output"], state)[..., 0]

    settings = {"name": "lstm", "num_features": num_features, "hidden": hidden}
    return Model(init, apply, settings, lstm_training(apply, num_features=num_features, hidden=hidden))


class Layer(NamedTuple):
    """The weights of one layer."""

    input: jax.Array  # [inputs, 4 hidden]
    hidden: jax.Array  # [hidden, 4 hidden]
    bias: jax.Array  # [4 hidden]


def last_hidden(lower: Layer, upper: Layer, texts: Sentences) -> jax.Array:
    """Return [texts, hidden] the state of the upper layer after the last word, computed by the fastest usable backend.

    Args:
        lower: Weights of the lower layer.
        upper: Weights of the upper layer.
        texts: The texts.
    """
    vectors = lax.stop_gradient(jnp.asarray(texts.vectors))
    _check_shapes(lower, vectors, jnp.shape(texts.lengths))
    lengths = jnp.clip(jnp.asarray(texts.lengths, jnp.int32), 0, vectors.shape[1])  # kernels do not check bounds
    num_inputs, hidden = lower.input.shape[-2], lower.hidden.shape[-2]
    is_float32 = {array.dtype for array in (*lower, *upper, vectors)} == {jnp.dtype(jnp.float32)}
    backend = jax.default_backend() if is_float32 else "any"
    if backend == "cpu" and lstm_native.is_usable(num_inputs, hidden):
        return lstm_native.last_hidden((*lower, *upper), vectors, lengths)
    if backend == "gpu" and lstm_pallas.is_usable(hidden):
        return lstm_pallas.last_hidden((*lower, *upper), vectors, lengths)
    return last_hidden_jax(lower, upper, Sentences(vectors, lengths))


def last_hidden_jax(lower: Layer, upper: Layer, texts: Sentences) -> jax.Array:
    """Return the result of `last_hidden`, computed in plain JAX on any device, including the padding.

    Args:
        lower: Weights of the lower layer.
        upper: Weights of the upper layer.
        texts: The texts.
    """
    vectors, lengths = zero_padding(texts)
    zeros = jnp.zeros((vectors.shape[0], lower.hidden.shape[0]), jnp.result_type(vectors, *lower, *upper))

    def step(state: _States, word: tuple[jax.Array, jax.Array]) -> tuple[_States, None]:
        (h1, c1, h2, c2, last), (inputs, number) = state, word
        h1, c1 = _cell(inputs + h1 @ lower.hidden, c1)
        h2, c2 = _cell(h1 @ upper.input + h2 @ upper.hidden + upper.bias, c2)
        return (h1, c1, h2, c2, jnp.where((number == lengths - 1)[:, None], h2, last)), None

    inputs = jnp.moveaxis(vectors @ lower.input + lower.bias, 1, 0)
    states = (zeros, zeros, zeros, zeros, zeros)
    state, _ = lax.scan(step, states, (inputs, jnp.arange(vectors.shape[1])))
    return state[-1]


def _check_shapes(lower: Layer, vectors: jax.Array, lengths: tuple[int, ...]) -> None:
    """Raise ConfigError if the shapes do not match; kernels do not check them."""
    num_inputs = lower.input.shape[-2]
    if vectors.ndim != 3 or vectors.shape[-1] != num_inputs:
        raise ConfigError(f"vectors: shape {vectors.shape} must be [texts, words, {num_inputs}]; see num_features")
    if lengths != vectors.shape[:1]:
        raise ConfigError(f"lengths: shape {lengths} must be one length for each of the {vectors.shape[0]} texts")


def _cell(gates: jax.Array, cell: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return hidden state and cell after a word."""
    i, f, g, o = jnp.split(gates, 4, axis=-1)
    cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(cell), cell


def _layer_init(key: jax.Array, num_inputs: int, hidden: int) -> Params:
    """Return parameters uniform in +- 1 / sqrt(hidden).

    Each layer has two biases, as in the framework that the authors use: a gradient step moves their sum twice as far.
    """
    bound = hidden**-0.5
    shapes = {
        "input": (num_inputs, 4 * hidden),
        "hidden": (hidden, 4 * hidden),
        "input_bias": (4 * hidden,),
        "hidden_bias": (4 * hidden,),
    }
    keys = dict(zip(shapes, jax.random.split(key, len(shapes)), strict=True))
    return {name: jax.random.uniform(keys[name], shape, minval=-bound, maxval=bound) for name, shape in shapes.items()}


def _layer(params: Params) -> Layer:
    return Layer(params["input"], params["hidden"], params["input_bias"] + params["hidden_bias"])
