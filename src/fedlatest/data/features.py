"""Texts as a model meets them: numbers of words on disk and device, vectors of words in a model's hands."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt


class Words(NamedTuple):
    """Texts as rows of a table of word vectors, which the federation holds once; row 0 is a vector of zeros.

    Row 0 stands for an unknown word and for the padding behind the last real word.
    """

    ids: Any  # integer [texts, longest]
    lengths: Any  # int32 [texts] real words


class Sentences(NamedTuple):
    """What a model gets: each word's vector in place of its number."""

    vectors: Any  # float32 [texts, longest, dimensions]
    lengths: Any  # int32 [texts]


def look_up(words: Words, table: Any) -> Sentences:
    """The words' vectors."""
    return Sentences(table[words.ids], words.lengths)


def blank_padding(texts: Sentences) -> Sentences:
    """Zeros behind each text's last real word, whatever stood there."""
    is_word = jnp.arange(texts.vectors.shape[-2]) < texts.lengths[..., None]
    return Sentences(jnp.where(is_word[..., None], texts.vectors, 0), texts.lengths)


STEP = np.float32(1) / np.float32(255)


def pixels(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Bytes times 1/255: a product, so that the simulator can keep the bytes and make the same numbers again.

    >>> pixels(np.array([0, 51, 255], np.uint8)).round(6).tolist() == np.float32([0, 0.2, 1]).tolist()
    True
    """
    return images.astype(np.float32) * STEP
