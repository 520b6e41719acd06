"""Feature formats: texts as word numbers or word vectors, pixels, and images.

Texts are stored, on disk and on the device, as numbers of words; a model receives them as word vectors. Images are
square; the samples of a data set hold them as vectors, row by row, with the channels of a pixel next to each other.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

STEP = np.float32(1) / np.float32(255)  # the pixel value of one byte step
# Mean and standard deviation of the channels: of MNIST for grey images, of CIFAR-10 for colour images.
CHANNEL_MEANS = {1: (0.1307,), 3: (0.4914, 0.4822, 0.4465)}
CHANNEL_DEVIATIONS = {1: (0.3081,), 3: (0.2023, 0.1994, 0.2010)}


class ImageShape(NamedTuple):
    """The shape of a square image."""

    side: int
    channels: int


class Words(NamedTuple):
    """Texts as row numbers in a table of word vectors, which the federation stores once.

    Row 0 of the table is a vector of zeros. It is used for unknown words and for the padding after the last word.
    """

    ids: Any  # integer [texts, longest]
    lengths: Any  # int32 [texts], number of words without padding


class Sentences(NamedTuple):
    """Texts as word vectors: the input of a model."""

    vectors: Any  # float32 [texts, longest, dimensions]
    lengths: Any  # int32 [texts], number of words without padding


class Pixels(NamedTuple):
    """float32 values that `pixels` made of bytes, kept as bytes."""

    levels: Any  # uint8


def look_up(words: Words, table: Any) -> Sentences:
    """Return the texts with each word number replaced by its vector."""
    return Sentences(table[words.ids], words.lengths)


def zero_padding(texts: Sentences) -> Sentences:
    """Return the texts with all vectors after the last word set to zero."""
    import jax.numpy as jnp  # not at the top: clients of a deployment use this package and start without JAX

    is_word = jnp.arange(texts.vectors.shape[-2]) < texts.lengths[..., None]
    return Sentences(jnp.where(is_word[..., None], texts.vectors, 0), texts.lengths)


def pixels(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Return bytes multiplied by 1/255.

    The simulator stores the bytes and repeats this multiplication on the device, with identical results.

    >>> pixels(np.array([0, 51, 255], np.uint8)).round(6).tolist() == np.float32([0, 0.2, 1]).tolist()
    True
    """
    return images.astype(np.float32) * STEP


def image_shape(num_features: int) -> ImageShape | None:
    """Return the shape of a grey or colour image of this many values, or None if no square image has so many.

    >>> image_shape(3 * 32 * 32), image_shape(28 * 28), image_shape(50)
    (ImageShape(side=32, channels=3), ImageShape(side=28, channels=1), None)
    """
    for channels in CHANNEL_MEANS:  # at most one fits: the square root of 3 is irrational
        side = math.isqrt(num_features // channels)
        if side and channels * side**2 == num_features:
            return ImageShape(side, channels)
    return None


def as_images(features: Any) -> Any:
    """Return vectors [..., side * side * channels] as images [..., side, side, channels].

    >>> as_images(np.zeros((5, 3072), np.float32)).shape
    (5, 32, 32, 3)
    """
    shape = image_shape(features.shape[-1])
    assert shape is not None
    return features.reshape(*features.shape[:-1], shape.side, shape.side, shape.channels)
