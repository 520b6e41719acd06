"""L, G, sigma and B of a model on data: estimates at the initial model, from a few clients. Bounds they are not."""

from collections.abc import Collection
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedlatest.simulation import ExperimentSpec
from fedlatest.simulation.local_training import batch_rows, put_on_device
from fedlatest.simulation.storage import expand
from fedlatest.streams import Purpose, bits
from fedlatest.theory import Problem

NUM_CLIENTS = 20
NUM_BATCHES = 16
NUM_SAMPLES = 64  # of a client, to stand for all of its own
NUM_TURNS = 12  # of the power iteration
APART = 1e-2  # how far apart the gradients are taken that tell curvature


class Estimates(NamedTuple):
    """What was found, and from what."""

    problem: Problem
    num_clients: int
    num_batches: int

    def words(self, guessed: Collection[str]) -> str:
        """How far to trust those of the constants that are taken from here."""
        how = {
            "smoothness": "L (by power iteration on gradients' differences)",
            "gradient": "G",
            "noise": "sigma",
            "distance": "B (the mean loss, as if f(x*) = 0)",
        }
        named = [words for name, words in how.items() if name in guessed]
        return (
            f"Estimated: {', '.join(named)}, at the initial model, from {self.num_clients} clients with "
            f"{self.num_batches} batches each; of L, G and sigma the largest seen. Elsewhere on the way they may be "
            "larger."
        )


def estimate(spec: ExperimentSpec) -> Estimates:
    """Look at some clients, spread evenly, with the spec's model, loss and batches."""
    samples = put_on_device(spec.federation)
    number = min(NUM_CLIENTS, spec.federation.num_clients)
    chosen = np.unique(np.linspace(0, spec.federation.num_clients - 1, number).round().astype(np.int32))
    params = spec.model.init(jax.random.key(bits(spec.seeds[0], Purpose.INITIAL_MODEL)))
    batch_size, seed = spec.batch_size, jnp.uint32(spec.seeds[0])

    def loss(params: Any, client: jax.Array, rows: jax.Array) -> jax.Array:
        """f_i on some of its samples: w_i N times their mean loss, as the paper scales it."""
        features, labels = jax.tree.map(lambda leaf: leaf[rows], (samples.features, samples.labels))
        outputs = spec.model.apply(params, expand(features, samples.table))
        return samples.weights[client] * jnp.mean(spec.loss.per_sample(outputs, labels))

    def rows_of(client: jax.Array, num_batches: int, size: int) -> jax.Array:
        return batch_rows(samples, client, round=jnp.int32(0), seed=seed, num_steps=num_batches, batch_size=size)

    @jax.jit
    def look(client: jax.Array) -> tuple[jax.Array, ...]:
        rows = rows_of(client, 1, NUM_SAMPLES)[0]
        value, slope = jax.value_and_grad(loss)(params, client, rows)
        batches = rows_of(client, NUM_BATCHES, batch_size)
        gradients = jax.lax.map(lambda batch: jax.grad(loss)(params, client, batch), batches)
        mean = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), gradients)
        spread = jax.tree.map(lambda leaf, middle: leaf - middle, gradients, mean)
        squared, variance = _squared_norm(gradients) / NUM_BATCHES, _squared_norm(spread) / (NUM_BATCHES - 1)

        def change(direction: Any) -> Any:
            """How the gradient changes along a direction: curvature times it."""
            there = jax.grad(loss)(jax.tree.map(lambda x, d: x + APART * d, params, direction), client, rows)
            return jax.tree.map(lambda new, old: (new - old) / APART, there, slope)

        def turn(_: int, direction: Any) -> Any:
            changed = change(direction)
            return _scaled(changed, 1 / jnp.maximum(jnp.sqrt(_squared_norm(changed)), 1e-30))

        first = _scaled(slope, 1 / jnp.maximum(jnp.sqrt(_squared_norm(slope)), 1e-30))
        direction = jax.lax.fori_loop(0, NUM_TURNS, turn, first)
        curvature = jnp.sqrt(_squared_norm(change(direction)))
        return curvature, squared, variance, value

    found = np.array([look(jnp.int32(client)) for client in chosen], float)
    curvature, squared, variance, _ = found.max(axis=0)
    problem = Problem(float(curvature), float(squared**0.5), float(variance**0.5), float(found[:, 3].mean()))
    return Estimates(problem, len(chosen), NUM_BATCHES)


def _squared_norm(tree: Any) -> jax.Array:
    return sum((jnp.sum(leaf.astype(jnp.float32) ** 2) for leaf in jax.tree.leaves(tree)), jnp.float32(0))


def _scaled(tree: Any, factor: jax.Array) -> Any:
    return jax.tree.map(lambda leaf: (factor * leaf).astype(leaf.dtype), tree)
