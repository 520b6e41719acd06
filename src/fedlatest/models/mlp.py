"""A small multilayer perceptron."""

import jax

from fedlatest.errors import ConfigError
from fedlatest.models.base import Model, Params
from fedlatest.models.linear import dense, dense_init


def mlp(*, num_features: int, num_classes: int, hidden: int = 64) -> Model:
    """One hidden layer of rectified units.

    >>> model = mlp(num_features=4, num_classes=3, hidden=8)
    >>> sorted(model.init(jax.random.key(0)))
    ['hidden', 'output']
    """
    if hidden < 1:
        raise ConfigError(f"hidden={hidden}: a layer has at least one unit")

    def init(key: jax.Array) -> Params:
        first, second = jax.random.split(key)
        return {"hidden": dense_init(first, num_features, hidden), "output": dense_init(second, hidden, num_classes)}

    def apply(params: Params, features: jax.Array) -> jax.Array:
        return dense(params["output"], jax.nn.relu(dense(params["hidden"], features)))

    settings = {"name": "mlp", "num_features": num_features, "num_classes": num_classes, "hidden": hidden}
    return Model(init, apply, settings)
