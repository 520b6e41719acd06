"""Models of dense layers: multinomial logistic regression, and a network with one hidden layer."""

import jax
import jax.numpy as jnp

from fedlatest.errors import ConfigError
from fedlatest.models.base import Model, Params
from fedlatest.models.native_training import dense_training


def logistic(*, num_features: int, num_classes: int) -> Model:
    """Multinomial logistic regression: logits = features W^T + b.

    W is [classes, features], which trains twice as fast on a CPU as its transpose.

    >>> model = logistic(num_features=4, num_classes=3)
    >>> model.apply(model.init(jax.random.key(0)), jnp.ones((2, 4))).shape
    (2, 3)
    """

    def init(key: jax.Array) -> Params:
        return dense_init(key, num_features, num_classes)

    settings = {"name": "logistic", "num_features": num_features, "num_classes": num_classes}
    training = dense_training(dense, num_features=num_features, hidden=0, num_classes=num_classes)
    return Model(init, dense, settings, training)


def mlp(*, num_features: int, num_classes: int, hidden: int = 64) -> Model:
    """A network with one hidden layer of rectified linear units.

    Args:
        num_features: Length of the input.
        num_classes: Number of logits.
        hidden: Number of hidden units.

    >>> model = mlp(num_features=4, num_classes=3, hidden=8)
    >>> sorted(model.init(jax.random.key(0)))
    ['hidden', 'output']
    """
    if hidden < 1:
        raise ConfigError(f"hidden={hidden}: must be at least 1 unit")

    def init(key: jax.Array) -> Params:
        first, second = jax.random.split(key)
        return {"hidden": dense_init(first, num_features, hidden), "output": dense_init(second, hidden, num_classes)}

    def apply(params: Params, features: jax.Array) -> jax.Array:
        return dense(params["output"], jax.nn.relu(dense(params["hidden"], features)))

    settings = {"name": "mlp", "num_features": num_features, "num_classes": num_classes, "hidden": hidden}
    training = dense_training(apply, num_features=num_features, hidden=hidden, num_classes=num_classes)
    return Model(init, apply, settings, training)


def dense_init(key: jax.Array, num_inputs: int, num_outputs: int) -> Params:
    """Return weights and biases uniform in +- 1 / sqrt(inputs), the default of the framework that the authors use."""
    bound = num_inputs**-0.5
    weight_key, bias_key = jax.random.split(key)
    return {
        "weight": jax.random.uniform(weight_key, (num_outputs, num_inputs), minval=-bound, maxval=bound),
        "bias": jax.random.uniform(bias_key, (num_outputs,), minval=-bound, maxval=bound),
    }


def dense(params: Params, features: jax.Array) -> jax.Array:
    """Apply one dense layer."""
    return jnp.matmul(features, params["weight"].T) + params["bias"]
