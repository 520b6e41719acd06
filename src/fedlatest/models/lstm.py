"""A two-layer LSTM over word vectors, with one logit from the last real word."""

import jax

from fedlatest.data.words import Sentences
from fedlatest.errors import ConfigError
from fedlatest.models.base import Model, Params
from fedlatest.models.linear import dense, dense_init
from fedlatest.models.recurrence import Layer, last_hidden


def lstm(*, num_features: int, hidden: int = 16) -> Model:
    """Two layers of `hidden` units; takes `Sentences`, whose word vectors stay as they are, and answers a logit a text.

    A text without words gets the logit of a state of zeros.

    >>> import numpy as np
    >>> model = lstm(num_features=5, hidden=4)
    >>> texts = Sentences(np.ones((2, 3, 5), np.float32), np.array([3, 0], np.int32))
    >>> model.apply(model.init(jax.random.key(0)), texts).shape
    (2,)
    """
    if hidden < 1:
        raise ConfigError(f"hidden={hidden}: a layer has at least one unit")

    def init(key: jax.Array) -> Params:
        lower, upper, output = jax.random.split(key, 3)
        return {
            "lower": _layer_init(lower, num_features, hidden),
            "upper": _layer_init(upper, hidden, hidden),
            "output": dense_init(output, hidden, 1),
        }

    def apply(params: Params, texts: Sentences) -> jax.Array:
        if not isinstance(texts, Sentences):
            raise ConfigError("lstm: takes texts; for rows of numbers choose model=logistic or model=mlp")
        state = last_hidden(_layer(params["lower"]), _layer(params["upper"]), texts)
        return dense(params["output"], state)[..., 0]

    return Model(init, apply, {"name": "lstm", "num_features": num_features, "hidden": hidden})


def _layer_init(key: jax.Array, num_inputs: int, hidden: int) -> Params:
    """Uniform within 1 / sqrt(hidden), two biases a layer: as the authors' framework has it, bias steps count twice."""
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
