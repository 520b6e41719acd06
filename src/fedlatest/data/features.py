"""Feature formats: texts as word numbers or word vectors, and pixels.

Texts are stored, on disk and on the device, as numbers of words; a model receives them as word vectors.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

STEP = np.float32(1) / np.float32(255)  # the pixel value of one byte step


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
    is_word = jnp.arange(texts.vectors.shape[-2]) < texts.lengths[..., None]
    return Sentences(jnp.where(is_word[..., None], texts.vectors, 0), texts.lengths)


def pixels(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Return bytes multiplied by 1/255.

    The simulator stores the bytes and repeats this multiplication on the device, with identical results.

    >>> pixels(np.array([0, 51, 255], np.uint8)).round(6).tolist() == np.float32([0, 0.2, 1]).tolist()
    True
    """
    return images.astype(np.float32) * STEP
