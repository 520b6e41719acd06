"""The kernels for CPUs that train models locally, all steps of a cohort in one call, and evaluate dense models.

Their sources are dense.c and lstm_training.c.
"""

from typing import Any

import jax
import jax.numpy as jnp

from fedlatest.kernels.native_library import Kernel, call


def dense_kernel(*, num_inputs: int, hidden: int, num_outputs: int, batch_size: int, is_bytes: bool) -> Kernel:
    """Return the kernel for these sizes.

    Args:
        num_inputs: Number of features.
        hidden: Number of hidden units; 0 for a model of one layer.
        num_outputs: Number of classes.
        batch_size: Number of samples in a local step.
        is_bytes: Whether features are bytes, which are multiplied by 1/255.
    """
    sizes = {"INPUTS": num_inputs, "HIDDEN": hidden, "OUTPUTS": num_outputs, "BATCH": batch_size}
    return Kernel("dense.c", ("train", "outputs"), (*sizes.items(), ("BYTES", int(is_bytes))))


def lstm_kernel(*, num_inputs: int, hidden: int, batch_size: int, num_words: int, id_bytes: int) -> Kernel:
    """Return the kernel that trains an LSTM of these sizes.

    Args:
        num_inputs: Length of a word vector.
        hidden: Number of hidden units in each layer.
        batch_size: Number of texts in a local step.
        num_words: Number of words of the longest text.
        id_bytes: Size of the number of a word.
    """
    sizes = {"INPUTS": num_inputs, "HIDDEN": hidden, "BATCH": batch_size, "WORDS": num_words}
    return Kernel("lstm_training.c", ("train",), (*sizes.items(), ("ID_BYTES", id_bytes)))


def train(
    kernel: Kernel,
    start: Any,
    offset: Any | None,
    samples: tuple[jax.Array, ...],
    rows: jax.Array,
    rates: jax.Array,
    pulls: jax.Array,
) -> Any:
    """Return the model of one client after its local steps x - rate * gradient - pull * (x - start) - offset.

    Under vmap the kernel trains all clients in one call.

    Args:
        kernel: A usable kernel.
        start: Parameters of the model.
        offset: A tree like the model, or None.
        samples: Features and labels of all clients, as the kernel takes them.
        rows: int32 [steps, batch] the samples of each batch.
        rates: [steps].
        pulls: [steps].
    """
    leaves, structure = jax.tree.flatten(start)
    shapes = tuple(jax.ShapeDtypeStruct(leaf.shape, jnp.float32) for leaf in leaves)
    offsets = [] if offset is None else jax.tree.leaves(offset)
    leaves, offsets, (rates, pulls) = jax.tree.map(jnp.float32, (leaves, offsets, (rates, pulls)))
    rows = rows.astype(jnp.int32)
    # Under vmap, expand_dims gives arrays that all clients share a leading axis of length 1 and copies nothing.
    results = call(kernel, "train", shapes, *leaves, *offsets, *samples, rows, rates, pulls, vmap_method="expand_dims")
    return jax.tree.unflatten(structure, results)


def dense_outputs(kernel: Kernel, params: Any, features: jax.Array, num_outputs: int) -> jax.Array:
    """Return the outputs [samples, num_outputs] of a dense model.

    Args:
        kernel: A usable kernel, made by `dense_kernel`.
        params: Parameters of the model.
        features: [samples, features], numbers or bytes as the kernel takes them.
        num_outputs: Number of classes.
    """
    shape = jax.ShapeDtypeStruct((features.shape[0], num_outputs), jnp.float32)
    parts = jax.tree.leaves(params)
    outputs: jax.Array = call(kernel, "outputs", shape, *parts, features, vmap_method="sequential")
    return outputs
