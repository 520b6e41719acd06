"""The three ways through the recurrence are one: padding, batches of models, odd lengths, NaN."""

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
from fedlatest.models.kernels import native
from fedlatest.models.lstm import Layer, last_hidden
from tests.models.recurrence_backends import BACKENDS, every_backend, needs_compiler, some_weights, using_backend

INPUTS, HIDDEN, TEXTS, WORDS = 3, 8, 2, 4
WEIGHTS = some_weights(INPUTS, HIDDEN)


def some_texts(*shape: int) -> tuple[Any, Any]:
    """Vectors [..., words, inputs], and lengths from 0 to all words."""
    rng = np.random.default_rng(5)
    lengths = rng.integers(0, WORDS + 1, shape).astype(np.int32)
    lengths.flat[:2] = WORDS, 0
    return rng.normal(size=(*shape, WORDS, INPUTS)).astype(np.float32), lengths


def pull(backend: str, weights: Any, vectors: Any, lengths: Any) -> tuple[Any, Any]:
    """The states, and the gradient of a function of them that sees each number."""

    def total(weights: Any) -> tuple[jax.Array, jax.Array]:
        states = BACKENDS[backend](weights, vectors, lengths)
        return jnp.sum(jnp.sin(states + jnp.arange(HIDDEN))), states

    gradient, states = jax.grad(total, has_aux=True)(weights)
    return states, gradient


@cache
def compiled(backend: str) -> Any:
    if backend == "native":
        assert native.is_usable(INPUTS, HIDDEN)
    return jax.jit(lambda *given: pull(backend, *given))


def assert_same(one: Any, other: Any) -> None:
    """Equal but for the order of additions."""
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(left, right, rtol=2e-5, atol=2e-6)


ANYTHING = st.floats(width=32, allow_nan=True, allow_infinity=True)


@every_backend
@settings(max_examples=25)
@given(
    lengths=st_numpy.arrays(np.int32, TEXTS, elements=st.integers(0, WORDS)),
    padding=st_numpy.arrays(np.float32, (TEXTS, WORDS, INPUTS), elements=ANYTHING),
)
def test_what_lies_behind_the_last_word_changes_nothing(
    backend: str, lengths: npt.NDArray[np.int32], padding: npt.NDArray[np.float32]
) -> None:
    """Not a bit of states and gradients, whatever lies there: NaN, infinity, numbers beyond all bounds."""
    vectors, _ = some_texts(TEXTS)
    is_word = (np.arange(WORDS) < lengths[:, None])[..., None]
    expected = compiled(backend)(WEIGHTS, np.where(is_word, vectors, 0), lengths)
    found = compiled(backend)(WEIGHTS, np.where(is_word, vectors, padding), lengths)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.isfinite(one).all()
        np.testing.assert_array_equal(one, other)


@every_backend
def test_models_side_by_side_are_models_one_by_one(backend: str) -> None:
    """Two steps of SGD for three clients of two seeds, each with weights and texts of its own: vmap of vmap of scan."""
    one_by_one = compiled(backend)
    weights, (vectors, lengths) = some_weights(INPUTS, HIDDEN, models=(2, 3)), some_texts(2, 3, 2, TEXTS)

    def descend(weights: Any, gradient: Any) -> Any:
        return jax.tree.map(lambda leaf, change: leaf - np.float32(0.1) * change, weights, gradient)

    def train(weights: Any, vectors: Any, lengths: Any) -> Any:
        def step(weights: Any, batch: Any) -> tuple[Any, None]:
            return descend(weights, pull(backend, weights, *batch)[1]), None

        return lax.scan(step, weights, (vectors, lengths))[0]

    found = jax.jit(jax.vmap(jax.vmap(train)))(weights, vectors, lengths)
    for place in np.ndindex(2, 3):
        expected = tuple(leaf[place] for leaf in weights)
        for batch in zip(vectors[place], lengths[place], strict=True):
            expected = descend(expected, one_by_one(expected, *batch)[1])
        assert_same([leaf[place] for leaf in found], expected)


@every_backend
def test_models_may_share_texts_and_texts_a_model(backend: str) -> None:
    one_by_one = compiled(backend)
    many, (vectors, lengths) = some_weights(INPUTS, HIDDEN, models=(3,)), some_texts(3, TEXTS)
    of_models = jax.jit(jax.vmap(BACKENDS[backend], in_axes=(0, None, None)))(many, vectors[0], lengths[0])
    of_texts = jax.jit(jax.vmap(BACKENDS[backend], in_axes=(None, 0, 0)))(WEIGHTS, vectors, lengths)
    for i in range(3):
        assert_same(of_models[i], one_by_one(tuple(leaf[i] for leaf in many), vectors[0], lengths[0])[0])
        assert_same(of_texts[i], one_by_one(WEIGHTS, vectors[i], lengths[i])[0])


@every_backend
@pytest.mark.parametrize("part", range(6))
def test_a_weight_that_is_not_a_number_shows(backend: str, part: int) -> None:
    """A run that diverges must be seen: one NaN in any of the six arrays reaches state and gradient of a text."""
    broken = [np.array(leaf) for leaf in WEIGHTS]
    broken[part].flat[-1] = np.nan
    states, gradient = compiled(backend)(tuple(broken), some_texts(TEXTS)[0], np.full(TEXTS, WORDS, np.int32))
    assert np.isnan(states).any(axis=1).all()
    assert all(np.isnan(leaf).any() for leaf in gradient)


@every_backend
def test_weights_beyond_all_bounds_saturate_the_gates(backend: str) -> None:
    """With a bias of 10^30 on all gates each word adds 1 to a cell of 0: the last state is tanh(words) in all units."""
    weights = [np.zeros_like(leaf) for leaf in WEIGHTS]
    weights[5][:] = 1e30
    states, gradient = compiled(backend)(tuple(weights), *some_texts(TEXTS))
    np.testing.assert_allclose(states[0], np.tanh(WORDS), rtol=1e-6)
    assert all(np.isfinite(leaf).all() for leaf in gradient)


@every_backend
def test_no_gradient_flows_into_the_words(backend: str) -> None:
    compiled(backend)
    vectors, lengths = some_texts(TEXTS)
    with using_backend(backend):
        found = jax.jit(jax.grad(lambda vectors: jnp.sum(_chosen(WEIGHTS, vectors, lengths))))(vectors)
    assert not found.any()


def _chosen(weights: Any, vectors: Any, lengths: Any) -> jax.Array:
    return last_hidden(Layer(*weights[:3]), Layer(*weights[3:]), Sentences(vectors, lengths))


@needs_compiler
def test_lengths_are_held_within_the_words_that_are_there() -> None:
    """The kernels take lengths at their word; what comes from outside is held to 0 .. longest before."""
    vectors, _ = some_texts(TEXTS)
    found = _chosen(WEIGHTS, vectors, np.array([WORDS + 1000, -7]))
    assert_same(found, _chosen(WEIGHTS, vectors, np.array([WORDS, 0])))


@needs_compiler
@pytest.mark.parametrize("shape", [(0, WORDS), (TEXTS, 0), (0, 0)])
def test_no_texts_or_no_words(shape: tuple[int, int]) -> None:
    """Nothing to do is done: states of zeros, no gradient."""
    compiled("native")
    states, gradient = pull("native", WEIGHTS, np.zeros((*shape, INPUTS), np.float32), np.zeros(shape[0], np.int32))
    assert states.shape == (shape[0], HIDDEN)
    assert not states.any()
    assert not any(leaf.any() for leaf in gradient)


@needs_compiler
def test_what_is_not_single_precision_takes_the_plain_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel would read halves of numbers."""
    monkeypatch.setattr(native, "last_hidden", lambda *_: pytest.fail("took the kernel"))
    weights = [jnp.asarray(leaf, jnp.bfloat16) for leaf in WEIGHTS]
    vectors, lengths = some_texts(TEXTS)
    found = jax.jit(_chosen)(weights, vectors, lengths)
    np.testing.assert_allclose(found, BACKENDS["plain"](WEIGHTS, vectors, lengths), atol=0.1)
