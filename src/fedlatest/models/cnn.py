"""A small convolutional network whose convolutions are matrix products.

Clients have weights of their own. XLA makes one grouped convolution of the convolutions of all clients, which is slow;
matrix products of all clients are one batched product, which is fast on CPUs and GPUs.
"""

import jax
import jax.numpy as jnp

from fedlatest.data.features import CHANNEL_DEVIATIONS, CHANNEL_MEANS, as_images, image_shape
from fedlatest.errors import ConfigError
from fedlatest.models.base import Model, Params
from fedlatest.models.dense import dense, dense_init

KERNEL = 3  # side of a kernel, odd
NUM_POOLINGS = 2


def cnn(*, num_features: int, num_classes: int, channels: int = 32, hidden: int = 256) -> Model:
    """Two convolutional and three dense layers for square grey or colour images.

    Each convolution (3 x 3, `channels` kernels) is followed by rectified linear units and a 2 x 2 maximum; the dense
    layers have `hidden`, `hidden` / 4 and `num_classes` units. With the defaults this is the network of FedAU's
    experiments with CIFAR-10 (Wang and Ji 2024). Pixels in [0, 1] are normalised per channel, with constants for grey
    and for colour images. Weights before rectified linear units are drawn from normal distributions of variance
    2 / inputs, with biases of 0; the last layer is initialised as in `mlp`.

    Args:
        num_features: Number of values of an image, side * side * (1 or 3); see `load_cifar10` for their order.
        num_classes: Number of logits.
        channels: Number of kernels of each convolution.
        hidden: Number of units of the first dense layer.

    >>> model = cnn(num_features=3072, num_classes=10)
    >>> sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(model.init, jax.random.key(0))))
    551786
    """
    shape, multiple = image_shape(num_features), 2**NUM_POOLINGS
    if shape is None or shape.side % multiple:
        raise ConfigError(
            f"model=cnn: takes square images, grey or colour, with a side that is a multiple of {multiple}; samples of "
            f"{num_features} values are none; use model=mlp"
        )
    for name, units, least in (("channels", channels, 1), ("hidden", hidden, 4)):
        if units < least:
            raise ConfigError(f"{name}={units}: must be at least {least}")
    means, deviations = CHANNEL_MEANS[shape.channels], CHANNEL_DEVIATIONS[shape.channels]
    num_pooled = (shape.side // multiple) ** 2 * channels

    def init(key: jax.Array) -> Params:
        first, second, hidden_key, narrow_key, output = jax.random.split(key, 5)
        return {
            "first": _convolution_init(first, shape.channels, channels),
            "second": _convolution_init(second, channels, channels),
            "hidden": _dense_init(hidden_key, num_pooled, hidden),
            "narrow": _dense_init(narrow_key, hidden, hidden // 4),
            "output": dense_init(output, hidden // 4, num_classes),
        }

    def apply(params: Params, features: jax.Array) -> jax.Array:
        images = (as_images(features) - jnp.asarray(means)) / jnp.asarray(deviations)
        found = convolve_and_pool(params["second"], convolve_and_pool(params["first"], images))
        units = jax.nn.relu(dense(params["hidden"], found.reshape(*features.shape[:-1], num_pooled)))
        return dense(params["output"], jax.nn.relu(dense(params["narrow"], units)))

    settings = {
        "name": "cnn", "num_features": num_features, "num_classes": num_classes, "channels": channels, "hidden": hidden,
    }  # fmt: skip
    return Model(init, apply, settings)


def convolve_and_pool(params: Params, images: jax.Array) -> jax.Array:
    """Apply a convolution with zero padding, a 2 x 2 maximum and rectified linear units.

    The four outputs of a 2 x 2 window depend on the same (kernel + 1) x (kernel + 1) inputs, so one matrix product
    computes them as neighbouring columns and the maximum needs no strided access. It multiplies more than a product for
    each output alone, by (kernel + 1)^2 / kernel^2, but copies fewer than half as many inputs.

    Args:
        params: `weight` [kernel, kernel, inputs, outputs] with an odd kernel, and `bias` [outputs].
        images: [..., height, width, inputs], both sides even.

    Returns:
        [..., height / 2, width / 2, outputs]
    """
    weight = params["weight"]
    outputs = weight.shape[-1]
    patches = _patches(images, weight.shape[0])
    # A product of two matrices: with more than two axes XLA takes twice as long on a CPU.
    columns = patches.reshape(-1, patches.shape[-1]) @ _window_matrix(weight)
    columns = columns.reshape(*patches.shape[:-1], 4 * outputs)
    parts = [columns[..., outputs * number : outputs * (number + 1)] for number in range(4)]
    most = jnp.maximum(jnp.maximum(parts[0], parts[1]), jnp.maximum(parts[2], parts[3]))
    return jax.nn.relu(most + params["bias"])


def _patches(images: jax.Array, kernel: int) -> jax.Array:
    """Return the inputs of every 2 x 2 window of outputs, [..., height / 2, width / 2, (kernel + 1)^2 inputs].

    The padded images are divided into blocks of 2 x 2 pixels; a patch is a square of neighbouring blocks.
    """
    *leading, height, width, inputs = images.shape
    padding, blocks = kernel // 2, (kernel + 1) // 2
    padded = jnp.pad(images, [(0, 0)] * len(leading) + [(padding, padding), (padding, padding), (0, 0)])
    down, across = height // 2 + padding, width // 2 + padding
    divided = padded.reshape(*leading, down, 2, across, 2, inputs).swapaxes(-4, -3)
    divided = divided.reshape(*leading, down, across, 4 * inputs)
    neighbours = [
        divided[..., row : row + height // 2, column : column + width // 2, :]
        for row in range(blocks)
        for column in range(blocks)
    ]
    return jnp.concatenate(neighbours, axis=-1)


def _window_matrix(weight: jax.Array) -> jax.Array:
    """Return the matrix [(kernel + 1)^2 inputs, 4 outputs] from a patch to the four outputs of its window."""
    kernel, _, inputs, outputs = weight.shape
    blocks = (kernel + 1) // 2
    shifted = [
        jnp.pad(weight, [(row, 1 - row), (column, 1 - column), (0, 0), (0, 0)]) for row in (0, 1) for column in (0, 1)
    ]
    rows = jnp.stack(shifted, axis=-2).reshape(blocks, 2, blocks, 2, inputs, 4 * outputs)
    return rows.swapaxes(1, 2).reshape(blocks**2 * 4 * inputs, 4 * outputs)


def _convolution_init(key: jax.Array, num_inputs: int, num_outputs: int) -> Params:
    return _rectified_init(key, (KERNEL, KERNEL, num_inputs, num_outputs), KERNEL**2 * num_inputs, num_outputs)


def _dense_init(key: jax.Array, num_inputs: int, num_outputs: int) -> Params:
    return _rectified_init(key, (num_outputs, num_inputs), num_inputs, num_outputs)


def _rectified_init(key: jax.Array, shape: tuple[int, ...], num_inputs: int, num_outputs: int) -> Params:
    """Return normal weights whose variance keeps the scale of rectified linear units, and biases of 0."""
    return {"weight": (2 / num_inputs) ** 0.5 * jax.random.normal(key, shape), "bias": jnp.zeros(num_outputs)}
