"""The training kernels take the same local steps as plain JAX, for every declared form of a step."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlatest import always
from fedlatest.algorithms import fedavg
from fedlatest.algorithms.base import ClientFacts, ClientState, Direction, ModelOnly
from fedlatest.data.features import Pixels, Words
from fedlatest.kernels import dense_pallas, lstm_training_pallas, native_library
from fedlatest.models import Model, logistic, lstm, mlp, sigmoid_cross_entropy, softmax_cross_entropy
from fedlatest.models.native_training import LocalSteps, Samples
from fedlatest.simulation import ExperimentSpec
from fedlatest.simulation.device_data import DeviceData, expand
from fedlatest.simulation.evaluation import tally
from fedlatest.simulation.local_training import train_locally
from tests.kernels.recurrence_backends import needs_compiler
from tests.problems import MODEL, small_federation

pytestmark = needs_compiler
NUM_CLIENTS, NUM_SAMPLES, CLASSES = 3, 11, 3
DIRECTIONS: Mapping[str, Direction] = {
    "plain": Direction(),
    "scale": Direction(scale=lambda facts: 0.5 * facts.weight),
    "scale of each step": Direction(scale=lambda facts: 1.0 / (1 + facts.step)),
    "pull": Direction(pull=lambda facts: 0.3),
    "offset": Direction(offset=lambda broadcast, client, facts: client.private["control"]),
    "offset of single numbers": Direction(
        offset=lambda broadcast, client, facts: jax.tree.map(lambda leaf: 0.01, broadcast.params)
    ),
    "all": Direction(
        scale=lambda facts: facts.weight,
        pull=lambda facts: 0.1 * facts.step,
        offset=lambda broadcast, client, facts: client.private["control"],
    ),
}


def some_data(features: Any, table: Any = None, classes: int = CLASSES) -> DeviceData:
    rng = np.random.default_rng(2)
    return DeviceData(
        features=features,
        labels=jnp.asarray(rng.integers(0, classes, NUM_SAMPLES), jnp.int32),
        starts=jnp.zeros(NUM_CLIENTS, jnp.int32),
        sizes=jnp.full(NUM_CLIENTS, NUM_SAMPLES, jnp.int32),
        weights=jnp.asarray([0.5, 1.0, 1.5]),
        ids=jnp.arange(NUM_CLIENTS),
        table=table,
    )


def trained(
    model: Model,
    data: DeviceData,
    direction: Direction,
    *,
    steps: int,
    batch: int,
    native: bool,
    own_start: bool = False,
) -> Any:
    """Return the models of three clients, trained as the round loop does: mapped over the clients."""
    rng = np.random.default_rng(1)
    loss = (sigmoid_cross_entropy if data.table is not None else softmax_cross_entropy).per_sample
    params = model.init(jax.random.key(0))
    noise = jax.tree.map(lambda leaf: rng.normal(0, 0.1, (NUM_CLIENTS, *leaf.shape)).astype(np.float32), params)
    rows = jnp.asarray(rng.integers(0, NUM_SAMPLES, (NUM_CLIENTS, steps, batch)), jnp.int32)
    start = (lambda broadcast, client: client.private["control"]) if own_start else None
    algorithm = replace(fedavg(), direction=direction, start=start)

    def train(own: ClientState, rows: jax.Array, weight: jax.Array) -> Any:
        facts = ClientFacts(
            round=jnp.int32(0), id=jnp.int32(0), weight=weight, num_steps=steps, numbers={}, seed=jnp.uint32(0),
            learning_rate=jnp.float32(0.2), last_round=jnp.int32(-1),
        )  # fmt: skip
        return train_locally(
            algorithm,
            lambda params, features, labels: jnp.mean(loss(model.apply(params, features), labels)),
            data, ModelOnly(params), own, rows, facts, None, model.native_training if native else None,
        )  # fmt: skip

    return jax.jit(jax.vmap(train))(ClientState(private={"control": noise}), rows, data.weights)


def assert_equal_to_plain_jax(model: Model, data: DeviceData, direction: Direction, **options: Any) -> None:
    plain, native = (trained(model, data, direction, native=native, **options) for native in (False, True))
    for left, right in zip(jax.tree.leaves(plain), jax.tree.leaves(native), strict=True):
        np.testing.assert_allclose(right, left, rtol=2e-5, atol=2e-6)


def floats(num_features: int) -> DeviceData:
    return some_data(jnp.asarray(np.random.default_rng(0).normal(size=(NUM_SAMPLES, num_features)), jnp.float32))


def levels(num_features: int) -> DeviceData:
    return some_data(
        Pixels(jnp.asarray(np.random.default_rng(0).integers(0, 256, (NUM_SAMPLES, num_features)), jnp.uint8))
    )


def texts(dtype: Any) -> DeviceData:
    rng = np.random.default_rng(0)
    words = Words(
        jnp.asarray(rng.integers(0, 20, (NUM_SAMPLES, 6)), dtype),
        jnp.asarray([6, 0, 1, 2, 3, 4, 5, 6, 1, 2, 6], jnp.int32),
    )
    return some_data(words, jnp.asarray(rng.normal(size=(20, 5)), jnp.float32), classes=2)


def in_pallas(model: Model) -> Model:
    """Return an LSTM that is trained by the kernel for GPUs; it is interpreted, so that no GPU is needed."""

    def train(samples: Samples, steps: LocalSteps) -> Any:
        texts = samples.features
        assert samples.table is not None
        return lstm_training_pallas.train(
            steps.start, steps.offset, texts.ids, texts.lengths, samples.labels, samples.table,
            steps.rows, steps.rates, steps.pulls, interpret=True,
        )  # fmt: skip

    assert model.native_training is not None
    return model._replace(native_training=model.native_training._replace(choose=lambda *_: train))


MODELS = {
    "logistic": (logistic(num_features=17, num_classes=CLASSES), floats(17)),
    "logistic on bytes": (logistic(num_features=17, num_classes=CLASSES), levels(17)),
    "mlp": (mlp(num_features=17, num_classes=CLASSES, hidden=9), floats(17)),
    "lstm": (lstm(num_features=5, hidden=4), texts(jnp.uint8)),
    "lstm in Pallas": (in_pallas(lstm(num_features=5, hidden=8)), texts(jnp.uint8)),
}


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        # The interpreter is slow; "plain" and "all" have none and all of the terms that the kernel computes.
        pytest.param(name, form, marks=[pytest.mark.slow] if "Pallas" in name and form not in ("plain", "all") else [])
        for name in MODELS
        for form in DIRECTIONS
    ],
)
def test_a_kernel_takes_the_declared_steps(name: str, direction: str) -> None:
    model, data = MODELS[name]
    assert_equal_to_plain_jax(model, data, DIRECTIONS[direction], steps=4, batch=2)


@pytest.mark.parametrize("name", ["logistic", "lstm", "lstm in Pallas"])
def test_every_client_may_have_its_own_start(name: str) -> None:
    model, data = MODELS[name]
    assert_equal_to_plain_jax(model, data, DIRECTIONS["pull"], steps=2, batch=2, own_start=True)


@pytest.mark.parametrize("dtype", [jnp.uint16, jnp.int32])
def test_the_numbers_of_words_may_have_any_size(dtype: Any) -> None:
    assert_equal_to_plain_jax(lstm(num_features=5, hidden=4), texts(dtype), Direction(), steps=2, batch=3)


@pytest.mark.parametrize(("hidden", "batch"), [pytest.param(8, 1, marks=pytest.mark.slow), (16, 3)])
def test_a_batch_in_pallas_may_end_with_an_incomplete_group(hidden: int, batch: int) -> None:
    model = in_pallas(lstm(num_features=5, hidden=hidden))
    assert_equal_to_plain_jax(model, texts(jnp.uint16), Direction(), steps=2, batch=batch)


def test_samples_words_and_lengths_out_of_range_are_clipped_in_pallas() -> None:
    """Numbers that are too large are the last ones, as in the C kernels."""
    start = lstm(num_features=5, hidden=8).init(jax.random.key(0))
    table = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)

    def train(words: list[int], length: int, row: int) -> Any:
        arrays = (np.array([[0, 0], words]), np.array([0, length]), np.array([0, 1]), table, np.array([[row]]))
        ids, lengths, labels, vectors, rows = (jnp.asarray(array) for array in arrays)
        return lstm_training_pallas.train(
            start, None, ids, lengths, labels, vectors, rows, jnp.ones(1), None, interpret=True
        )

    inside, outside = train([2, 0], 2, 1), train([7, -1], 9, 5)
    jax.tree.map(np.testing.assert_array_equal, inside, outside)


@pytest.mark.parametrize(
    ("changes", "usable"),
    [({}, True), ({"hidden": 4}, False), ({"num_inputs": 100}, False), ({"num_words": 5000}, False)],
)
def test_the_kernel_in_pallas_is_used_for_sizes_that_fit(changes: dict[str, int], usable: bool) -> None:
    sizes = {"num_inputs": 25, "hidden": 16, "batch_size": 2, "num_words": 48, **changes}
    assert lstm_training_pallas.is_usable(**sizes) == usable


@settings(max_examples=4, deadline=None)
@given(
    num_features=st.integers(1, 40), num_classes=st.integers(1, 7), hidden=st.integers(0, 20), batch=st.integers(1, 12)
)
def test_dense_kernels_of_all_sizes(num_features: int, num_classes: int, hidden: int, batch: int) -> None:
    """Sizes that are and are not multiples of the SIMD width and of the tiles."""
    sizes = {"num_features": num_features, "num_classes": max(num_classes, CLASSES)}
    model = mlp(**sizes, hidden=hidden) if hidden else logistic(**sizes)
    assert_equal_to_plain_jax(model, floats(num_features), Direction(), steps=2, batch=batch)


@pytest.mark.parametrize("hidden", [0, 9])
@pytest.mark.parametrize("num_samples", [1, 7, 1203])
def test_a_kernel_computes_the_outputs(hidden: int, num_samples: int) -> None:
    """Of fewer samples than are processed at once, and of more; as numbers and as bytes."""
    rng = np.random.default_rng(3)
    sizes: dict[str, int] = {"num_features": 17, "num_classes": CLASSES}
    model = mlp(**sizes, hidden=hidden) if hidden else logistic(**sizes)
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), model.init(jax.random.key(0)))
    levels = rng.integers(0, 256, (num_samples, 17)).astype(np.uint8)
    for features in (Pixels(jnp.asarray(levels)), jnp.asarray(rng.normal(size=levels.shape), jnp.float32)):
        assert model.native_training is not None
        outputs = model.native_training.choose_outputs(features)
        assert outputs is not None
        expected = model.apply(params, expand(features))
        np.testing.assert_allclose(jax.jit(outputs)(params, features), expected, rtol=2e-5, atol=2e-5)
        twice = jax.tree.map(lambda leaf: np.stack([leaf, 2 * leaf]), params)  # as models of two trials
        found = jax.vmap(outputs, in_axes=(0, None))(twice, features)
        np.testing.assert_allclose(found[0], expected, rtol=2e-5, atol=2e-5)


def test_scores_are_those_of_plain_jax() -> None:
    """Over several slices and a rest, with padding that does not count."""
    rng = np.random.default_rng(4)
    features = Pixels(jnp.asarray(rng.integers(0, 256, (4100, 17)), jnp.uint8))
    labels = jnp.asarray(rng.integers(0, CLASSES, 4100), jnp.int32)
    model = logistic(num_features=17, num_classes=CLASSES)
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), model.init(jax.random.key(0)))
    plain, native = (
        tally(
            model.apply, softmax_cross_entropy, params, features, labels, native=kernels, num_labels=CLASSES,
            num_real=jnp.int32(4093),
        )
        for kernels in (None, model.native_training)
    )  # fmt: skip
    assert plain.accuracy == native.accuracy
    np.testing.assert_array_equal(plain.num_correct, native.num_correct)
    np.testing.assert_allclose(native.loss, plain.loss, rtol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_is_not_finite_stays_so(name: str) -> None:
    model, data = MODELS[name]
    broken = model._replace(init=lambda key: jax.tree.map(lambda leaf: leaf.at[0].set(jnp.nan), model.init(key)))
    after = trained(broken, data, Direction(), steps=2, batch=2, native=True)
    assert not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after))


def test_models_of_other_types_are_left_to_xla() -> None:
    """The kernels read float32."""
    federation = small_federation()

    def is_native(dtype: Any) -> bool:
        def init(key: jax.Array) -> Any:
            return jax.tree.map(lambda leaf: leaf.astype(dtype), MODEL.init(key))

        model = MODEL._replace(init=init)
        spec = ExperimentSpec(federation, model, fedavg(), always(federation.num_clients), cohort_size=2)
        return spec.program().native_training is not None

    assert is_native(jnp.float32)
    assert not is_native(jnp.bfloat16)


def test_the_kernel_is_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this test, all others would pass if plain JAX were used on both sides."""
    called = []

    def call(kernel: native_library.Kernel, *arguments: Any, **options: Any) -> Any:
        called.append(kernel.source)
        return native_library.call(kernel, *arguments, **options)

    monkeypatch.setattr("fedlatest.kernels.training_native.call", call)
    model, data = MODELS["logistic"]
    trained(model, data, Direction(), steps=1, batch=1, native=True)
    assert called == ["dense.c"]


@pytest.mark.parametrize("direction", ["plain", "all"])
@pytest.mark.parametrize("name", ["logistic", "logistic on bytes"])
def test_the_kernel_for_gpus_takes_the_same_steps(name: str, direction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the Pallas interpreter, which needs no GPU."""
    model, data = MODELS[name]
    plain = trained(model, data, DIRECTIONS[direction], steps=3, batch=2, native=False)
    monkeypatch.setattr("jax.default_backend", lambda: "gpu")
    monkeypatch.setattr(dense_pallas, "train", partial(dense_pallas.train, interpret=True))
    found = trained(model, data, DIRECTIONS[direction], steps=3, batch=2, native=True)
    for left, right in zip(jax.tree.leaves(plain), jax.tree.leaves(found), strict=True):
        np.testing.assert_allclose(right, left, rtol=2e-5, atol=2e-6)


def test_large_models_are_left_to_xla_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jax.default_backend", lambda: "gpu")
    for num_features, usable in ((784, True), (3072, False)):
        model = logistic(num_features=num_features, num_classes=10)
        features = np.zeros((2, num_features), np.float32)
        assert (model.native_training.choose(features, 5) is not None) == usable


@pytest.mark.parametrize("name", ["logistic on bytes", "mlp", "lstm"])
def test_under_nested_maps_samples_may_differ(name: str) -> None:
    """Two trials with samples of their own, as on several devices, each with clients that share its samples."""
    model, data = MODELS[name]
    two = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf[::-1]]), (data.features, data.labels))

    def trial(samples: Any, native: bool) -> Any:
        changed = data._replace(features=samples[0], labels=samples[1])
        return trained(model, changed, Direction(), steps=2, batch=2, native=native)

    plain, found = (jax.vmap(partial(trial, native=native))(two) for native in (False, True))
    for left, right in zip(jax.tree.leaves(plain), jax.tree.leaves(found), strict=True):
        np.testing.assert_allclose(right, left, rtol=2e-5, atol=2e-6)
