"""The three backends of the LSTM recurrence, and a context in which a model uses one of them."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
import pytest

from fedlatest.data.features import Sentences
from fedlatest.kernels import lstm_native, lstm_pallas
from fedlatest.kernels.native_library import COMPILERS
from fedlatest.models.lstm import Layer, last_hidden_jax

Backend = Callable[[Any, Any, Any], jax.Array]  # weights, vectors, lengths


def _plain(weights: Any, vectors: Any, lengths: Any) -> jax.Array:
    return last_hidden_jax(Layer(*weights[:3]), Layer(*weights[3:]), Sentences(vectors, lengths))


def _pallas(weights: Any, vectors: Any, lengths: Any) -> jax.Array:
    return lstm_pallas.last_hidden(weights, vectors, lengths, True)  # interpreted, so that no GPU is needed


BACKENDS: dict[str, Backend] = {"plain": _plain, "native": lstm_native.last_hidden, "pallas": _pallas}
has_compiler = any(map(shutil.which, COMPILERS))
needs_compiler = pytest.mark.skipif(not has_compiler, reason="there is no C compiler")
every_backend = pytest.mark.parametrize(
    "backend", ["plain", pytest.param("native", marks=needs_compiler), pytest.param("pallas")]
)


@contextmanager
def using_backend(backend: str) -> Iterator[None]:
    """Models that are traced inside use this backend; programs are not shared with the code outside."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lstm_native, "is_usable", lambda *_: backend != "plain")
        patch.setattr(lstm_native, "last_hidden", BACKENDS[backend])
        jax.clear_caches()
        yield
        jax.clear_caches()


def some_weights(num_inputs: int, hidden: int, *, seed: int = 0, models: tuple[int, ...] = ()) -> tuple[Any, ...]:
    """Input, hidden and bias of the lower layer, then of the upper, large enough for nonlinear gates."""
    rng = np.random.default_rng(seed)
    shapes = [(num_inputs, 4 * hidden), (hidden, 4 * hidden), (4 * hidden,)]
    shapes += [(hidden, 4 * hidden), (hidden, 4 * hidden), (4 * hidden,)]
    return tuple(rng.normal(0, 0.7, (*models, *shape)).astype(np.float32) for shape in shapes)


def some_params(num_inputs: int, hidden: int) -> Any:
    """The parameters of a model with the weights of `some_weights`."""
    weights, rng = some_weights(num_inputs, hidden), np.random.default_rng(3)
    layers = [dict(zip(("input", "hidden", "input_bias"), part, strict=True)) for part in (weights[:3], weights[3:])]
    for layer in layers:
        layer["hidden_bias"] = rng.normal(size=4 * hidden).astype(np.float32)
    output = {"weight": rng.normal(size=(1, hidden)).astype(np.float32), "bias": np.array([0.3], np.float32)}
    return {"lower": layers[0], "upper": layers[1], "output": output}
