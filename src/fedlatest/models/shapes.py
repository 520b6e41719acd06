"""The shapes of a model's parameters, found once per model."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax

from fedlatest.models.base import Params


def parameter_shapes(init: Callable[[jax.Array], Params]) -> Any:
    """Return the shapes and types of the parameters that a model's `init` returns.

    >>> from fedlatest import logistic
    >>> parameter_shapes(logistic(num_features=4, num_classes=3).init)["weight"].shape
    (3, 4)
    """
    try:
        return _shapes(init)
    except TypeError:  # an `init` that cannot be hashed
        return jax.eval_shape(init, jax.random.key(0))


@lru_cache(maxsize=256)  # tracing takes milliseconds, and a comparison of methods asks thousands of times
def _shapes(init: Callable[[jax.Array], Params]) -> Any:
    return jax.eval_shape(init, jax.random.key(0))
