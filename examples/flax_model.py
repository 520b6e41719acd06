"""Train a Flax model: fedlatest uses its init and apply functions."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

import fedlatest


class Net(nn.Module):
    @nn.compact
    def __call__(self, pixels: jax.Array) -> jax.Array:
        image = pixels.reshape(-1, 8, 8, 1)
        image = nn.relu(nn.Conv(8, (3, 3), strides=2)(image))
        return nn.Dense(10)(image.reshape(len(pixels), -1))


net = Net()


def apply(params: Any, pixels: jax.Array) -> jax.Array:
    return jnp.asarray(net.apply(params, pixels))


model = fedlatest.Model(lambda key: net.init(key, jnp.zeros((1, 64))), apply)

samples = fedlatest.load_digits()
federation = samples.to_federation(fedlatest.dirichlet(samples.labels, num_clients=50, seed=0, alpha=0.3))
result = fedlatest.simulate(
    federation,
    model,
    fedlatest.fedlaavg(),
    fedlatest.markov([0.3] * 50, correlation=20),
    rounds=200,
    participation=0.2,
    learning_rate=0.05,
)
print(f"test accuracy {result.metrics.rows[-1].test_accuracy:.3f}")
