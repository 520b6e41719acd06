"""Train a custom model on custom data: a model of two functions and a Federation of arrays."""

import jax
import jax.numpy as jnp
import numpy as np

import fedlatest

# Data: 3000 points of two moons, divided among 60 clients that each have mostly one label.
rng = np.random.default_rng(0)
label = rng.integers(0, 2, 3000)
angle = np.pi * (rng.random(3000) + label)
points = np.stack([np.cos(angle) + 0.7 * label, np.sin(angle) + 0.3 * label], axis=1) + rng.normal(0, 0.15, (3000, 2))
client = 30 * np.where(rng.random(3000) < 0.9, label, 1 - label) + rng.integers(0, 30, 3000)

train, test = slice(0, 2400), slice(2400, None)
federation = fedlatest.Federation(
    "moons",
    points[train].astype(np.float32),
    label[train].astype(np.int32),
    points[test].astype(np.float32),
    label[test].astype(np.int32),
    *fedlatest.by_client(client[train]),
)


# Model: two functions.
def init(key: jax.Array) -> dict[str, jax.Array]:
    first, second = jax.random.split(key)
    return {
        "in": jax.random.normal(first, (2, 16)),
        "bias": jnp.zeros(16),
        "out": jax.random.normal(second, (16, 2)) / 4,
    }


def apply(params: dict[str, jax.Array], features: jax.Array) -> jax.Array:
    return jax.nn.tanh(features @ params["in"] + params["bias"]) @ params["out"]


# Clients with label 0 are available by day, the others by night.
by_day = federation.client_labels() == 0
for algorithm in (fedlatest.fedlaavg(), fedlatest.fedavg()):
    result = fedlatest.simulate(
        federation,
        fedlatest.Model(init, apply),
        algorithm,
        fedlatest.diurnal(by_day, period=20),
        rounds=400,
        participation=0.2,
        learning_rate=0.1,
        seeds=(0, 1, 2),
        evaluate_every=10,
    )
    accuracy = result.metrics.column("test_accuracy")[:, -10:]  # [seeds, evaluations] of the last 100 rounds
    print(f"{algorithm.name:>8}: {accuracy.mean():.3f}, from {accuracy.min():.3f} to {accuracy.max():.3f}")
