"""Estimates of the constants L, G, sigma and B of an experiment, at its initial model and from a few clients.

They are estimates, not bounds: elsewhere on the trajectory the constants may be larger.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedlatest.simulation import ExperimentSpec
from fedlatest.simulation.device_data import expand, put_on_device
from fedlatest.simulation.local_training import batch_rows
from fedlatest.streams import Purpose, bits
from fedlatest.theory import Problem

NUM_CLIENTS = 20
NUM_BATCHES = 16
NUM_SAMPLES = 64  # samples per client on which the loss and its curvature are computed
NUM_ITERATIONS = 12  # of the power iteration
MOST_SAMPLES = 2000  # on which the curvature of the objective is computed
STEP = 1e-2  # length of the finite difference of gradients


class Estimates(NamedTuple):
    """The estimated constants, and the numbers of clients and batches that they are based on."""

    problem: Problem
    num_clients: int
    num_batches: int

    def describe(self, names: Collection[str]) -> str:
        """Return a sentence that says how the named constants were estimated."""
        methods = {
            "smoothness": "L (by power iteration on differences of gradients)",
            "gradient": "G",
            "noise": "sigma",
            "distance": "B (the mean loss, assuming f(x*) = 0)",
        }
        named = [method for name, method in methods.items() if name in names]
        return (
            f"Estimated: {', '.join(named)}, at the initial model, from {self.num_clients} clients with "
            f"{self.num_batches} batches each; L, G and sigma are the largest values seen. They may be larger "
            "elsewhere on the trajectory."
        )


def estimate(spec: ExperimentSpec) -> Estimates:
    """Estimate L, G, sigma and B at the initial model, from at most NUM_CLIENTS evenly spaced clients."""
    samples = put_on_device(spec.federation)
    number = min(NUM_CLIENTS, spec.federation.num_clients)
    chosen = np.unique(np.linspace(0, spec.federation.num_clients - 1, number).round().astype(np.int32))
    params = spec.model.init(jax.random.key(bits(spec.seeds[0], Purpose.INITIAL_MODEL)))
    batch_size, seed = spec.batch_size, jnp.uint32(spec.seeds[0])

    def loss(params: Any, client: jax.Array, rows: jax.Array) -> jax.Array:
        """f_i on some rows of client i: w_i N times their mean loss, scaled as in the paper."""
        features, labels = jax.tree.map(lambda leaf: leaf[rows], (samples.features, samples.labels))
        outputs = spec.model.apply(params, expand(features, samples.table))
        return samples.weights[client] * jnp.mean(spec.loss.per_sample(outputs, labels))

    def rows_of(client: jax.Array, num_batches: int, size: int) -> jax.Array:
        return batch_rows(samples, client, round=jnp.int32(0), seed=seed, num_steps=num_batches, batch_size=size)

    @jax.jit
    def measure(client: jax.Array) -> tuple[jax.Array, ...]:
        rows = rows_of(client, 1, NUM_SAMPLES)[0]
        value, gradient = jax.value_and_grad(loss)(params, client, rows)
        batches = rows_of(client, NUM_BATCHES, batch_size)
        gradients = jax.lax.map(lambda batch: jax.grad(loss)(params, client, batch), batches)
        mean = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), gradients)
        spread = jax.tree.map(lambda leaf, middle: leaf - middle, gradients, mean)
        squared, variance = _squared_norm(gradients) / NUM_BATCHES, _squared_norm(spread) / (NUM_BATCHES - 1)

        def hessian_times(direction: Any) -> Any:
            """Hessian-vector product, by a finite difference of gradients."""
            moved = jax.tree.map(lambda x, d: x + STEP * d, params, direction)
            return jax.tree.map(lambda new, old: (new - old) / STEP, jax.grad(loss)(moved, client, rows), gradient)

        direction = _normalised(gradient)
        direction = jax.lax.fori_loop(0, NUM_ITERATIONS, lambda _, d: _normalised(hessian_times(d)), direction)
        curvature = jnp.sqrt(_squared_norm(hessian_times(direction)))
        return curvature, squared, variance, value

    found = np.array([measure(jnp.int32(client)) for client in chosen], float)
    curvature, squared, variance, _ = found.max(axis=0)
    problem = Problem(float(curvature), float(squared**0.5), float(variance**0.5), float(found[:, 3].mean()))
    return Estimates(problem, len(chosen), NUM_BATCHES)


def curvature(spec: ExperimentSpec, params: Any = None) -> float:
    """Return the largest curvature (eigenvalue of the Hessian) of the objective, the mean loss over all samples.

    Unlike L of `estimate`, it is not that of the client with the largest one.

    Args:
        spec: The experiment; at most MOST_SAMPLES evenly spaced samples are used.
        params: The model at which it is computed; by default the initial one.
    """
    samples = put_on_device(spec.federation)
    total = int(spec.federation.offsets[-1])
    rows = np.unique(np.linspace(0, total - 1, min(MOST_SAMPLES, total)).round().astype(np.int32))
    features, labels = jax.tree.map(lambda leaf: leaf[rows], (samples.features, samples.labels))
    if params is None:
        params = spec.model.init(jax.random.key(bits(spec.seeds[0], Purpose.INITIAL_MODEL)))

    def loss(params: Any) -> jax.Array:
        outputs = spec.model.apply(params, expand(features, samples.table))
        return jnp.mean(spec.loss.per_sample(outputs, labels))

    @jax.jit
    def largest(shift: jax.Array) -> jax.Array:
        """Return the eigenvalue of H + shift that is the largest by magnitude."""

        def times(direction: Any) -> Any:
            ahead, behind = (jax.tree.map(lambda x, d, s=s: x + s * d, params, direction) for s in (STEP, -STEP))
            ahead, behind = jax.grad(loss)(ahead), jax.grad(loss)(behind)
            return jax.tree.map(lambda a, b, d: (a - b) / (2 * STEP) + shift * d, ahead, behind, direction)

        direction = _normalised(jax.grad(loss)(params))
        direction = jax.lax.fori_loop(0, 2 * NUM_ITERATIONS, lambda _, d: _normalised(times(d)), direction)
        pairs = zip(jax.tree.leaves(direction), jax.tree.leaves(times(direction)), strict=True)
        return sum((jnp.vdot(x, y) for x, y in pairs), jnp.float32(0))

    found = float(largest(jnp.float32(0)))
    return found if found > 0 else float(largest(jnp.float32(-found))) + found


def _squared_norm(tree: Any) -> jax.Array:
    return sum((jnp.sum(leaf.astype(jnp.float32) ** 2) for leaf in jax.tree.leaves(tree)), jnp.float32(0))


def _normalised(tree: Any) -> Any:
    factor = 1 / jnp.maximum(jnp.sqrt(_squared_norm(tree)), 1e-30)
    return jax.tree.map(lambda leaf: (factor * leaf).astype(leaf.dtype), tree)
