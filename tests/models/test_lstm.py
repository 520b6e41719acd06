"""The LSTM model: outputs and gradients equal a NumPy reference and PyTorch."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedlatest import ConfigError
from fedlatest.data.features import Sentences
from fedlatest.models import MODELS, Model, lstm, sigmoid_cross_entropy
from fedlatest.models.lstm import _layer_init
from tests import lstm_reference
from tests.kernels.recurrence_backends import every_backend, needs_compiler, some_params, using_backend

LENGTHS = np.array([3, 0, 5, 1, 5], np.int32)  # two longest texts, two shorter ones, one without words


def texts(num_features: int = 5, lengths: Any = LENGTHS, *, seed: int = 1) -> Sentences:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(len(lengths), int(max(lengths)), num_features)).astype(np.float32)
    return Sentences(vectors, np.asarray(lengths, np.int32))


def labels(count: int) -> Any:
    return np.arange(count, dtype=np.int32) % 2


def logits_and_gradient(model: Model, params: Any, features: Sentences, labels: Any) -> tuple[Any, Any]:
    def loss(params: Any) -> tuple[jax.Array, jax.Array]:
        logits = model.apply(params, features)
        return jnp.mean(sigmoid_cross_entropy.per_sample(logits, labels)), logits

    gradient, logits = jax.jit(jax.grad(loss, has_aux=True))(params)
    return logits, gradient


def assert_close(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    """Equal within `tolerance` times the largest of all numbers."""
    scale = max(np.abs(leaf).max() for leaf in jax.tree.leaves(expected))
    assert scale > 0
    jax.tree.map(partial(np.testing.assert_allclose, rtol=0, atol=tolerance * scale), found, expected)


def assert_equals_reference(num_features: int, hidden: int, features: Sentences, tolerance: float = 1e-5) -> None:
    model, params = lstm(num_features=num_features, hidden=hidden), some_params(num_features, hidden)
    targets = labels(len(features.lengths))
    logits, gradient = logits_and_gradient(model, params, features, targets)
    assert_close(logits, lstm_reference.logits(params, *features), tolerance)
    assert_close(gradient, lstm_reference.gradient(params, *features, targets), tolerance)


@every_backend
def test_equals_the_reference(backend: str) -> None:
    with using_backend(backend):
        assert_equals_reference(5, 8, texts())


@every_backend
def test_one_text_of_one_word(backend: str) -> None:
    with using_backend(backend):
        assert_equals_reference(5, 8, texts(lengths=[1]))


@needs_compiler
@pytest.mark.parametrize(("num_features", "hidden"), [(1, 1), (3, 5), (25, 16), (6, 24)])
def test_the_c_kernel_supports_any_size(num_features: int, hidden: int) -> None:
    assert_equals_reference(num_features, hidden, texts(num_features))


def test_plain_jax_equals_the_reference_to_12_digits_in_double_precision() -> None:
    """Arrays that are not float32 are not passed to the kernels, which support nothing else."""
    with jax.enable_x64(True):
        model, features = lstm(num_features=5, hidden=3), texts()
        params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), some_params(5, 3))
        logits, gradient = logits_and_gradient(model, params, features, labels(5))
        assert logits.dtype == np.float64
        assert_close(gradient, lstm_reference.gradient(params, *features, labels(5)), 1e-12)


def test_the_gradient_of_the_reference_equals_finite_differences() -> None:
    """Its product with a direction is the derivative of the loss in that direction."""
    params, features = some_params(5, 3), texts()
    rng = np.random.default_rng(0)
    direction = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), params)

    def loss(step: float) -> float:
        moved = jax.tree.map(lambda leaf, along: np.asarray(leaf, np.float64) + step * along, params, direction)
        outputs = lstm_reference.logits(moved, *features)
        return float(np.mean(np.logaddexp(0, outputs) - labels(5) * outputs))

    products = jax.tree.map(np.vdot, lstm_reference.gradient(params, *features, labels(5)), direction)
    assert sum(jax.tree.leaves(products)) == pytest.approx((loss(1e-5) - loss(-1e-5)) / 2e-5, rel=1e-7)


@every_backend
def test_equals_pytorch(backend: str) -> None:
    """Compared with torch.nn.LSTM and a linear layer, one text at a time; PyTorch rejects empty texts."""
    torch = pytest.importorskip("torch")
    model, features = lstm(num_features=5, hidden=8), texts(lengths=[3, 5, 1, 4])
    params = some_params(5, 8)
    layers, output = torch.nn.LSTM(5, 8, num_layers=2, batch_first=True), torch.nn.Linear(8, 1)
    theirs = {**dict(layers.named_parameters()), **dict(output.named_parameters())}
    ours = _as_pytorch(params)
    assert theirs.keys() == ours.keys()
    with torch.no_grad():
        for name, parameter in theirs.items():
            parameter.copy_(torch.tensor(ours[name]))
    states = [
        layers(torch.tensor(words[None, :length]))[0][0, -1]
        for words, length in zip(features.vectors, features.lengths, strict=True)
    ]
    logits = output(torch.stack(states))[:, 0]
    torch.nn.functional.binary_cross_entropy_with_logits(logits, torch.tensor(labels(4)).float()).backward()
    with using_backend(backend):
        found, gradient = logits_and_gradient(model, params, features, labels(4))
    np.testing.assert_allclose(found, logits.detach().numpy(), atol=1e-5)
    assert_close(_as_pytorch(gradient), {name: parameter.grad.numpy() for name, parameter in theirs.items()})


def _as_pytorch(params: Any) -> dict[str, Any]:
    """Our parameters by the names of PyTorch; its matrices are transposed, its gates have the same order."""
    named = {name: np.asarray(leaf) for name, leaf in params["output"].items()}
    for number, layer in enumerate(("lower", "upper")):
        named[f"weight_ih_l{number}"] = np.asarray(params[layer]["input"]).T
        named[f"weight_hh_l{number}"] = np.asarray(params[layer]["hidden"]).T
        named[f"bias_ih_l{number}"] = np.asarray(params[layer]["input_bias"])
        named[f"bias_hh_l{number}"] = np.asarray(params[layer]["hidden_bias"])
    return named


def test_the_logit_of_a_text_without_words_is_the_output_bias() -> None:
    params = some_params(5, 3)
    outputs = jax.jit(lstm(num_features=5, hidden=3).apply)(params, texts())
    assert outputs[1] == params["output"]["bias"][0]
    assert len(set(outputs.tolist())) == 5


def test_texts_do_not_affect_each_other() -> None:
    """Texts get the same logits in another order and in separate batches."""
    apply, params, (vectors, lengths) = jax.jit(lstm(num_features=5, hidden=3).apply), some_params(5, 3), texts()
    together = apply(params, Sentences(vectors, lengths))
    order = np.array([4, 2, 0, 1, 3])
    assert apply(params, Sentences(vectors[order], lengths[order])).tolist() == together[order].tolist()
    alone = [apply(params, Sentences(vectors[i : i + 1], lengths[i : i + 1])) for i in range(5)]
    np.testing.assert_allclose(np.concatenate(alone), together, rtol=1e-6)


def test_initial_weights_are_uniform_within_the_bound() -> None:
    """The bound is 1 / sqrt(16) = 1/4; the mean of n draws is within 4 standard deviations, 1/4 / sqrt(3 n), of 0."""
    shapes = jax.tree.map(jnp.shape, jax.eval_shape(lstm(num_features=25).init, jax.random.key(0)))
    assert shapes == {
        "lower": {"input": (25, 64), "hidden": (16, 64), "input_bias": (64,), "hidden_bias": (64,)},
        "upper": {"input": (16, 64), "hidden": (16, 64), "input_bias": (64,), "hidden_bias": (64,)},
        "output": {"weight": (1, 16), "bias": (1,)},
    }
    for leaf in jax.tree.leaves(jax.device_get(jax.jit(_layer_init, static_argnums=(1, 2))(jax.random.key(0), 25, 16))):
        assert 0.2 < np.abs(leaf).max() <= 0.25
        assert abs(leaf.mean()) < 4 * 0.25 / np.sqrt(3 * leaf.size)


def test_a_model_can_be_rebuilt_from_its_settings() -> None:
    settings = dict(lstm(num_features=7, hidden=3).settings)
    assert MODELS[settings.pop("name")](**settings).settings == {"name": "lstm", "num_features": 7, "hidden": 3}


def test_invalid_arguments() -> None:
    with pytest.raises(ConfigError, match="hidden=0: must be at least 1 unit"):
        lstm(num_features=5, hidden=0)
    model = lstm(num_features=5, hidden=3)
    with pytest.raises(ConfigError, match="the features must be texts; use"):
        model.apply(some_params(5, 3), np.zeros((2, 5), np.float32))


@pytest.mark.parametrize(
    ("vectors", "lengths", "message"),
    [
        ((3, 5, 10), (3,), r"vectors: shape (3, 5, 10) must be [texts, words, 5]"),
        ((5, 5), (), r"vectors: shape (5, 5) must be [texts, words, 5]"),
        ((4, 5, 5), (1,), r"lengths: shape (1,) must be one length for each of the 4 texts"),
    ],
)
def test_invalid_shapes_are_rejected(vectors: tuple[int, ...], lengths: tuple[int, ...], message: str) -> None:
    """A kernel would read beyond the end of its arrays."""
    model = lstm(num_features=5, hidden=8)
    params = model.init(jax.random.key(0))
    with pytest.raises(ConfigError) as error:
        model.apply(params, Sentences(np.ones(vectors, np.float32), np.ones(lengths, np.int32)))
    assert message in str(error.value)
