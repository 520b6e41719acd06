"""Train an Equinox model, save the run, load the model and predict.

The arrays of the network are the parameters; everything else is static and stays outside.
"""

import tempfile
from typing import Any

import equinox as eqx
import jax

import fedlatest


def build(key: jax.Array) -> tuple[Any, Any]:
    """Return the arrays of the network and its static part."""
    return eqx.partition(eqx.nn.MLP(64, 10, width_size=32, depth=1, key=key), eqx.is_array)


_, static = build(jax.random.key(0))
model = fedlatest.Model(
    lambda key: build(key)[0], lambda arrays, features: jax.vmap(eqx.combine(arrays, static))(features)
)

samples = fedlatest.load_digits()
federation = samples.to_federation(fedlatest.by_label(samples.labels, num_clients=50, seed=0))
availability = fedlatest.windows(federation.client_labels() * 2.0, hours=8, rounds_per_day=24)
with tempfile.TemporaryDirectory() as folder:
    fedlatest.simulate(
        federation,
        model,
        fedlatest.fedlaavg(),
        availability,
        rounds=200,
        participation=0.1,
        learning_rate=0.05,
        out=folder,
    )
    trained = fedlatest.load_model(folder, model=model)
print("predicted", trained.predict(samples.test_features[:10]), "true", samples.test_labels[:10])
