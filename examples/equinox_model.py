"""An Equinox model: train its arrays, keep the rest aside; save the run, load the model, predict."""

import tempfile
from typing import Any

import equinox as eqx
import jax

import fedlatest


def build(key: jax.Array) -> tuple[Any, Any]:
    """The arrays of the network, and everything else about it."""
    return eqx.partition(eqx.nn.MLP(64, 10, width_size=32, depth=1, key=key), eqx.is_array)


_, rest = build(jax.random.key(0))
model = fedlatest.Model(
    lambda key: build(key)[0], lambda arrays, features: jax.vmap(eqx.combine(arrays, rest))(features)
)

samples = fedlatest.load_digits()
federation = samples.to_federation(fedlatest.by_label(samples.labels, num_clients=50, seed=0))
awake = fedlatest.windows(federation.client_labels() * 2.0, hours=8, rounds_per_day=24)
with tempfile.TemporaryDirectory() as folder:
    fedlatest.simulate(
        federation, model, fedlatest.fedlaavg(), awake, rounds=200, participation=0.1, learning_rate=0.05, out=folder
    )
    trained = fedlatest.load_model(folder, model=model)
print("predicted", trained.predict(samples.test_features[:10]), "true", samples.test_labels[:10])
