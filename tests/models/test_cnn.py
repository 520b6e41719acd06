"""The convolutional network: its layers against loops in NumPy, its sizes, and training of many clients."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest

from fedlatest import ConfigError, always, cnn, fedavg, iid, load_digits, load_model, simulate
from fedlatest.models.cnn import convolve_and_pool

Array = npt.NDArray[np.float64]


def slow_layer(params: Any, images: Array) -> Array:
    """Convolve with zero padding, add the bias, rectify and take the maximum of 2 x 2 outputs, one value at a time."""
    weight, bias = np.asarray(params["weight"], np.float64), np.asarray(params["bias"], np.float64)
    kernel, outputs, (count, height, width, _) = weight.shape[0], weight.shape[-1], images.shape
    around = kernel // 2
    padded = np.pad(images, ((0, 0), (around, around), (around, around), (0, 0)))
    found = np.zeros((count, height, width, outputs))
    for row in range(height):
        for column in range(width):
            patch = padded[:, row : row + kernel, column : column + kernel]
            found[:, row, column] = np.tensordot(patch, weight, axes=3) + bias
    found = np.maximum(found, 0)
    pooled = np.zeros((count, height // 2, width // 2, outputs))
    for row in range(height // 2):
        for column in range(width // 2):
            pooled[:, row, column] = found[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2].max(axis=(1, 2))
    return pooled


def random_layer(kernel: int, inputs: int, outputs: int) -> dict[str, npt.NDArray[np.float32]]:
    rng = np.random.default_rng(kernel)
    weight = rng.normal(size=(kernel, kernel, inputs, outputs)).astype(np.float32)
    return {"weight": weight, "bias": rng.normal(size=outputs).astype(np.float32)}


@pytest.mark.parametrize(("kernel", "height", "width"), [(1, 2, 2), (3, 4, 6), (5, 6, 4)])
def test_a_layer_against_loops(kernel: int, height: int, width: int) -> None:
    layer = random_layer(kernel, 2, 3)
    images = np.random.default_rng(1).normal(size=(4, height, width, 2)).astype(np.float32)
    found = convolve_and_pool(layer, jnp.asarray(images))
    np.testing.assert_allclose(found, slow_layer(layer, images.astype(np.float64)), rtol=1e-5, atol=1e-5)


def test_the_gradient_of_a_layer_against_a_convolution() -> None:
    """The same layer as `lax.conv_general_dilated` and `lax.reduce_window`, differentiated by JAX."""
    layer = random_layer(3, 2, 3)
    images = jnp.asarray(np.random.default_rng(1).normal(size=(4, 6, 6, 2)).astype(np.float32))

    def convolution(params: Any, images: jax.Array) -> jax.Array:
        axes = ("NHWC", "HWIO", "NHWC")
        found = jax.lax.conv_general_dilated(images, params["weight"], (1, 1), "SAME", dimension_numbers=axes)
        window = (1, 2, 2, 1)
        found = jax.nn.relu(found + params["bias"])
        return jax.lax.reduce_window(found, -jnp.inf, jax.lax.max, window, window, "VALID")

    def gradients(function: Any) -> Any:
        return jax.grad(lambda params, images: jnp.sum(function(params, images) ** 2), argnums=(0, 1))(layer, images)

    for found, expected in zip(
        jax.tree.leaves(gradients(convolve_and_pool)), jax.tree.leaves(gradients(convolution)), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("channels", [1, 3])
def test_the_network_against_loops(channels: int) -> None:
    num_features = 8 * 8 * channels
    model = cnn(num_features=num_features, num_classes=5, channels=2, hidden=8)
    params = jax.tree.map(
        lambda leaf: leaf + 0.1, model.init(jax.random.key(0))
    )  # so that no bias is 0, as it would be at the start
    features = np.random.default_rng(0).uniform(size=(3, num_features)).astype(np.float32)
    mean, deviation = {
        1: ([0.1307], [0.3081]),
        3: ([0.4914, 0.4822, 0.4465], [0.2023, 0.1994, 0.2010]),
    }[channels]
    units = (features.astype(np.float64).reshape(3, 8, 8, channels) - mean) / deviation
    units = slow_layer(params["second"], slow_layer(params["first"], units)).reshape(3, -1)
    for name in ("hidden", "narrow", "output"):
        units = units @ np.asarray(params[name]["weight"], np.float64).T + np.asarray(params[name]["bias"])
        units = units if name == "output" else np.maximum(units, 0)
    np.testing.assert_allclose(model.apply(params, jnp.asarray(features)), units, rtol=1e-4, atol=1e-4)


def test_the_initial_scale() -> None:
    """Weights have variance 2 / inputs: 2 / 27 after 3 x 3 colour pixels, 2 / 288 after 3 x 3 pixels of 32 channels."""
    params = cnn(num_features=3072, num_classes=10).init(jax.random.key(0))
    for name, inputs in (("first", 27), ("second", 288), ("hidden", 8 * 8 * 32), ("narrow", 256)):
        variance = float(jnp.var(params[name]["weight"]))
        assert variance == pytest.approx(2 / inputs, rel=0.2)
        assert not params[name]["bias"].any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_features": 50}, "samples of 50 values"),
        ({"num_features": 36}, "multiple of 4"),
        ({"num_features": 64, "channels": 0}, "channels=0"),
        ({"num_features": 64, "hidden": 3}, "hidden=3"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        cnn(num_classes=3, **arguments)


def test_it_trains_and_is_saved(tmp_path: Any) -> None:
    """Digits of 8 x 8 pixels; the saved model gives the outputs of the trained one."""
    samples = load_digits()
    federation = samples.to_federation(iid(samples.labels, num_clients=4, seed=0))
    model = cnn(num_features=64, num_classes=10, channels=4, hidden=64)
    result = simulate(
        federation,
        model,
        fedavg(),
        always(4),
        rounds=30,
        cohort_size=4,
        batch_size=16,
        num_local_steps=10,
        learning_rate=0.1,
        evaluate_every=30,
        out=tmp_path / "run",
    )
    accuracy = result.metrics.column("test_accuracy")[0]
    assert accuracy[0] < 0.3
    assert accuracy[-1] > 0.7
    loaded = load_model(tmp_path / "run")
    trained = jax.tree.map(lambda leaf: leaf[0], result.params)
    some = samples.test_features[:3]
    np.testing.assert_allclose(loaded.outputs(some), model.apply(trained, some), rtol=1e-5, atol=1e-5)
