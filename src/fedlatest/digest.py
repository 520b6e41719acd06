"""Digests of arrays and texts: what a run was made of, in a line."""

import hashlib
from typing import Any

import jax
import numpy as np


def digest(*trees: Any) -> str:
    """A blake2b digest of all arrays, numbers and texts in some trees."""
    content = hashlib.blake2b(digest_size=16)
    for leaf in jax.tree.leaves(trees):
        array = np.ascontiguousarray(leaf)
        content.update(f"{array.dtype.str}{array.shape}".encode())
        content.update(array.reshape(-1).view(np.uint8).data)
    return f"blake2b:{content.hexdigest()}"
