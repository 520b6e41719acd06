"""The three backends of the recurrence agree: padding, batches of models, invalid lengths, NaN."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from jax import lax

from fedlatest.data.features import Sentences
from fedlatest.kernels import lstm_native
from fedlatest.models.lstm import Layer, last_hidden
from tests.kernels.recurrence_backends import BACKENDS, every_backend, needs_compiler, some_weights, using_backend

INPUTS, HIDDEN, TEXTS, WORDS = 3, 8, 2, 4
WEIGHTS = some_weights(INPUTS, HIDDEN)


def some_texts(*shape: int) -> tuple[Any, Any]:
    """Vectors [..., words, inputs], and lengths from 0 to all words."""
    rng = np.random.default_rng(5)
    lengths = rng.integers(0, WORDS + 1, shape).astype(np.int32)
    lengths.flat[:2] = WORDS, 0
    return rng.normal(size=(*shape, WORDS, INPUTS)).astype(np.float32), lengths


def states_and_gradient(backend: str, weights: Any, vectors: Any, lengths: Any) -> tuple[Any, Any]:
    """The states, and the gradient of a function that depends on each of them."""

    def total(weights: Any) -> tuple[jax.Array, jax.Array]:
        states = BACKENDS[backend](weights, vectors, lengths)
        return jnp.sum(jnp.sin(states + jnp.arange(HIDDEN))), states

    gradient, states = jax.grad(total, has_aux=True)(weights)
    return states, gradient


@cache
def compiled(backend: str) -> Any:
    if backend == "native":
        assert lstm_native.is_usable(INPUTS, HIDDEN)
    return jax.jit(lambda *arguments: states_and_gradient(backend, *arguments))


def assert_same(one: Any, other: Any) -> None:
    """Equal up to rounding, because the order of additions differs."""
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(left, right, rtol=2e-5, atol=2e-6)


ANYTHING = st.floats(width=32, allow_nan=True, allow_infinity=True)


@every_backend
@settings(max_examples=25)
@given(
    lengths=st_numpy.arrays(np.int32, TEXTS, elements=st.integers(0, WORDS)),
    padding=st_numpy.arrays(np.float32, (TEXTS, WORDS, INPUTS), elements=ANYTHING),
)
def test_padding_does_not_affect_the_result(
    backend: str, lengths: npt.NDArray[np.int32], padding: npt.NDArray[np.float32]
) -> None:
    """States and gradients are bit-identical for any padding, including NaN, infinity and very large numbers."""
    vectors, _ = some_texts(TEXTS)
    is_word = (np.arange(WORDS) < lengths[:, None])[..., None]
    expected = compiled(backend)(WEIGHTS, np.where(is_word, vectors, 0), lengths)
    found = compiled(backend)(WEIGHTS, np.where(is_word, vectors, padding), lengths)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.isfinite(one).all()
        np.testing.assert_array_equal(one, other)


@every_backend
def test_batched_models_equal_separate_models(backend: str) -> None:
    """Two SGD steps for three clients of two seeds, each with its own weights and texts: vmap of vmap of scan."""
    separate = compiled(backend)
    weights, (vectors, lengths) = some_weights(INPUTS, HIDDEN, models=(2, 3)), some_texts(2, 3, 2, TEXTS)

    def descend(weights: Any, gradient: Any) -> Any:
        return jax.tree.map(lambda leaf, slope: leaf - np.float32(0.1) * slope, weights, gradient)

    def train(weights: Any, vectors: Any, lengths: Any) -> Any:
        def step(weights: Any, batch: Any) -> tuple[Any, None]:
            return descend(weights, states_and_gradient(backend, weights, *batch)[1]), None

        return lax.scan(step, weights, (vectors, lengths))[0]

    found = jax.jit(jax.vmap(jax.vmap(train)))(weights, vectors, lengths)
    for model in np.ndindex(2, 3):
        expected = tuple(leaf[model] for leaf in weights)
        for batch in zip(vectors[model], lengths[model], strict=True):
            expected = descend(expected, separate(expected, *batch)[1])
        assert_same([leaf[model] for leaf in found], expected)


@every_backend
def test_batched_models_may_share_texts_and_batched_texts_a_model(backend: str) -> None:
    separate = compiled(backend)
    many, (vectors, lengths) = some_weights(INPUTS, HIDDEN, models=(3,)), some_texts(3, TEXTS)
    by_model = jax.jit(jax.vmap(BACKENDS[backend], in_axes=(0, None, None)))(many, vectors[0], lengths[0])
    by_texts = jax.jit(jax.vmap(BACKENDS[backend], in_axes=(None, 0, 0)))(WEIGHTS, vectors, lengths)
    for i in range(3):
        assert_same(by_model[i], separate(tuple(leaf[i] for leaf in many), vectors[0], lengths[0])[0])
        assert_same(by_texts[i], separate(WEIGHTS, vectors[i], lengths[i])[0])


@every_backend
@pytest.mark.parametrize("part", range(6))
def test_nan_in_a_weight_reaches_states_and_gradient(backend: str, part: int) -> None:
    """Divergence must be detectable: one NaN in any of the six arrays reaches the state and the gradient of a text."""
    broken = [np.array(leaf) for leaf in WEIGHTS]
    broken[part].flat[-1] = np.nan
    states, gradient = compiled(backend)(tuple(broken), some_texts(TEXTS)[0], np.full(TEXTS, WORDS, np.int32))
    assert np.isnan(states).any(axis=1).all()
    assert all(np.isnan(leaf).any() for leaf in gradient)


@every_backend
def test_very_large_weights_saturate_the_gates(backend: str) -> None:
    """With a bias of 10^30 all gates are 1, so each word adds 1 to the cell: the last state is tanh(words)."""
    weights = [np.zeros_like(leaf) for leaf in WEIGHTS]
    weights[5][:] = 1e30
    states, gradient = compiled(backend)(tuple(weights), *some_texts(TEXTS))
    np.testing.assert_allclose(states[0], np.tanh(WORDS), rtol=1e-6)
    assert all(np.isfinite(leaf).all() for leaf in gradient)


@every_backend
def test_the_gradient_of_the_word_vectors_is_zero(backend: str) -> None:
    compiled(backend)
    vectors, lengths = some_texts(TEXTS)
    with using_backend(backend):
        found = jax.jit(jax.grad(lambda vectors: jnp.sum(_last_hidden(WEIGHTS, vectors, lengths))))(vectors)
    assert not found.any()


def _last_hidden(weights: Any, vectors: Any, lengths: Any) -> jax.Array:
    return last_hidden(Layer(*weights[:3]), Layer(*weights[3:]), Sentences(vectors, lengths))


@needs_compiler
def test_lengths_are_clipped_to_the_number_of_words() -> None:
    """Kernels do not check lengths, so they are clipped to 0 .. longest before."""
    vectors, _ = some_texts(TEXTS)
    found = _last_hidden(WEIGHTS, vectors, np.array([WORDS + 1000, -7]))
    assert_same(found, _last_hidden(WEIGHTS, vectors, np.array([WORDS, 0])))


@needs_compiler
@pytest.mark.parametrize("shape", [(0, WORDS), (TEXTS, 0), (0, 0)])
def test_no_texts_or_no_words(shape: tuple[int, int]) -> None:
    """The states and the gradient are zero."""
    compiled("native")
    states, gradient = states_and_gradient(
        "native", WEIGHTS, np.zeros((*shape, INPUTS), np.float32), np.zeros(shape[0], np.int32)
    )
    assert states.shape == (shape[0], HIDDEN)
    assert not states.any()
    assert not any(leaf.any() for leaf in gradient)


@needs_compiler
def test_arrays_that_are_not_float32_use_plain_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel would misinterpret their bytes."""
    monkeypatch.setattr(lstm_native, "last_hidden", lambda *_: pytest.fail("the kernel was used"))
    weights = [jnp.asarray(leaf, jnp.bfloat16) for leaf in WEIGHTS]
    vectors, lengths = some_texts(TEXTS)
    found = jax.jit(_last_hidden)(weights, vectors, lengths)
    np.testing.assert_allclose(found, BACKENDS["plain"](WEIGHTS, vectors, lengths), atol=0.1)
