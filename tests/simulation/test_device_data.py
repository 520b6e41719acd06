"""Compact storage loses nothing: what comes out is what went in, to the bit."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedlatest.data.features import Pixels, pixels
from fedlatest.simulation.device_data import compact, expand


def test_all_levels_survive_to_the_bit() -> None:
    images = pixels(np.arange(256, dtype=np.uint8).reshape(16, 16))
    stored = compact({"image": images, "length": np.arange(16)})
    assert isinstance(stored["image"], Pixels)
    assert stored["image"].levels.dtype == np.uint8
    np.testing.assert_array_equal(jax.jit(expand)(stored)["image"], images)
    np.testing.assert_array_equal(stored["length"], np.arange(16))


@pytest.mark.parametrize("shape", [(300_000,), (3, 100_000), (1000, 20, 10)])
def test_arrays_of_several_parts(shape: tuple[int, ...]) -> None:
    """Larger than what is converted at once; a value that is no pixel in the last part decides."""
    levels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    images = pixels(levels)
    np.testing.assert_array_equal(compact(images).levels, levels)
    images[(-1,) * len(shape)] = 0.3
    assert compact(images) is images


@pytest.mark.parametrize(
    "values",
    [
        np.array([0.1, 0.5], np.float32),
        np.array([0.0, 1.0, -1.0], np.float32),
        np.array([0.0, 256 / 255], np.float32),
        np.nextafter(pixels(np.array([51], np.uint8)), np.float32(1)),
        np.array([0, 1], np.uint8),
        np.array([0.0, 1.0], np.float64),
        np.concatenate([np.zeros(500, np.float32), np.array([0.3], np.float32)]),
        np.zeros((0, 3), np.float32),
    ],
)
def test_anything_else_is_left_alone(values: Any) -> None:
    assert compact(values) is values


def test_expand_leaves_other_trees_alone() -> None:
    tree = {"tokens": jnp.arange(3, dtype=jnp.uint8)}
    assert expand(tree)["tokens"].dtype == jnp.uint8
