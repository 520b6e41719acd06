"""Augmentation: random changes of the samples of a batch, in local training only."""

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp

from fedlatest.data.features import CHANNEL_MEANS, as_images, image_shape
from fedlatest.errors import ConfigError

Augmentation = Callable[[Any, jax.Array], Any]
"""(features of a batch [batch, ...], 32 random bits for each sample [batch]) -> features of the same shape.

A pure function: the bits are hashes of (seed, round, client id, step, position in the batch).
"""
AugmentationName = Literal["none", "crop_flip"]  # values of the key `augmentation`


def crop_flip(*, padding: int = 4) -> Augmentation:
    """Return an augmentation that shifts each image by up to `padding` pixels and mirrors half of the images.

    It is the same as padding an image on all sides, cropping a random part of the original size and flipping it
    horizontally with probability 1/2. Pixels from outside the image have the mean values with which `cnn` normalises.

    Args:
        padding: Largest shift in either direction.

    Returns:
        A function of square grey or colour images, as vectors [batch, side * side * channels] or as [batch, side, side,
        channels]; it raises ConfigError for other features.
    """
    if padding < 0:
        raise ConfigError(f"padding={padding}: must be 0 or larger")

    def augment(features: Any, draws: jax.Array) -> Any:
        images = _images(features)
        side, channels = images.shape[-2:]
        rows, columns, flips = _fields(draws, 2 * padding + 1)
        pixels = jnp.arange(side, dtype=jnp.int32)
        from_row = pixels + rows[:, None] - padding  # [batch, side]
        from_column = jnp.where(flips[:, None], pixels[::-1], pixels) + columns[:, None] - padding
        inside = _is_inside(from_row, side)[:, :, None] & _is_inside(from_column, side)[:, None, :]
        sources = from_row.clip(0, side - 1)[:, :, None] * side + from_column.clip(0, side - 1)[:, None, :]
        moved = jax.vmap(_look_up)(images.reshape(-1, side**2, channels), sources)
        outside = jnp.asarray(CHANNEL_MEANS[channels], images.dtype)
        return jnp.where(inside[..., None], moved, outside).reshape(features.shape)

    return augment


def named_augmentation(name: AugmentationName | None) -> Augmentation | None:
    """Return the augmentation with this name, the value of the key `augmentation`; None if there is none."""
    return None if name in (None, "none") else crop_flip()


def check_augmentation(augmentation: Augmentation, features: Any) -> None:
    """Raise ConfigError if an augmentation does not take these features, or changes their shapes or types.

    Args:
        augmentation: The augmentation.
        features: The shapes of the features of a batch.
    """
    batch = jax.tree.leaves(features)[0].shape[0]
    augmented = jax.eval_shape(augmentation, features, jax.ShapeDtypeStruct((batch,), jnp.uint32))
    before, after = (jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree) for tree in (features, augmented))
    if before != after:
        raise ConfigError(f"augmentation: returns {after} for a batch of {before}; shapes and types must be the same")


def _images(features: Any) -> jax.Array:
    """Return the features as images [batch, side, side, channels]."""
    shape: tuple[int, ...] = getattr(features, "shape", ())
    if len(shape) == 2 and image_shape(shape[1]):
        return as_images(features)
    if len(shape) == 4 and shape[1] == shape[2] and shape[3] in CHANNEL_MEANS:
        return features
    seen = f"shape {shape[1:]}" if shape else f"type {type(features).__name__}"
    raise ConfigError(f"augmentation=crop_flip: needs square grey or colour images; samples have {seen}")


def _fields(draws: jax.Array, num_shifts: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return two numbers in 0 .. num_shifts - 1 and a truth value for each draw, from different bits of it."""
    rows = ((draws & 0xFFFF) * jnp.uint32(num_shifts)) >> 16
    columns = (((draws >> 16) & 0x7FFF) * jnp.uint32(num_shifts)) >> 15
    return rows.astype(jnp.int32), columns.astype(jnp.int32), (draws >> 31) == 1


def _look_up(pixels: jax.Array, sources: jax.Array) -> jax.Array:
    return pixels.at[sources].get(mode="promise_in_bounds")


def _is_inside(positions: jax.Array, side: int) -> jax.Array:
    return (positions >= 0) & (positions < side)
