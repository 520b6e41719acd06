"""Digests of arrays and strings, with which manifests identify the data of a run."""

import hashlib
from typing import Any

import numpy as np


def digest(*trees: Any) -> str:
    """Return a BLAKE2b digest of all arrays, numbers and strings in the trees."""
    import jax  # not at the top: clients of a deployment import this module and start without JAX

    content = hashlib.blake2b(digest_size=16)
    for leaf in jax.tree.leaves(trees):
        array = np.ascontiguousarray(leaf)
        content.update(f"{array.dtype.str}{array.shape}".encode())
        content.update(array.reshape(-1).view(np.uint8).data)
    return f"blake2b:{content.hexdigest()}"
