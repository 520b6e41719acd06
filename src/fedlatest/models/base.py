"""What a model is: an (init, apply) pair of pure functions."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

Params = Any


class Model(NamedTuple):
    """`init(key) -> params` and `apply(params, features) -> outputs`, one row per sample.

    `settings` lets a saved model be rebuilt by name; a model of your own leaves it empty.
    """

    init: Callable[[jax.Array], Params]
    apply: Callable[[Params, Any], jax.Array]
    settings: Mapping[str, Any] = {}
