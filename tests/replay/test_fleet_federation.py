"""A federation like the fleet's, and the model with the shapes of the job's."""

import numpy as np
import pytest

import fedlatest
from fedlatest.data import Samples
from fedlatest.errors import ConfigError
from fedlatest.ledger import Layout
from fedlatest.models import Model
from fedlatest.replay.fleet_federation import divide_by_size, federation_like, model_like
from fedlatest.trees import named_leaves


@pytest.fixture(scope="module")
def digits() -> Samples:
    return fedlatest.load_digits()


def test_clients_of_the_digits_app_get_their_own_data(digits: Samples) -> None:
    """The ledger numbers clients in the order in which they joined: here the last part first."""
    partition = fedlatest.dirichlet(digits.labels, num_clients=5, alpha=0.5, seed=0)
    sizes = np.diff(partition.offsets)
    found, note = federation_like(digits, sizes[::-1].astype(float), list("edcba"), alpha=0.5, seed=0)
    assert "as in the app of `deploy init`" in note
    assert found.names is not None
    assert found.names.tolist() == list("edcba")
    for client in range(5):
        own = found.order[found.offsets[client] : found.offsets[client + 1]]
        part = partition.order[partition.offsets[4 - client] : partition.offsets[5 - client]]
        assert own.tolist() == part.tolist()


def test_other_sizes_are_those_that_the_clients_reported(digits: Samples) -> None:
    weights = np.array([100.0, 0.0, 50.0, 7.0])
    found, note = federation_like(digits, weights, ["a"] * 4, alpha=0.5, seed=0)
    assert found.sizes.tolist() == [100, 52, 50, 7]  # the mean of the known ones is 52.3
    assert found.names is None  # they are not distinct
    assert note.startswith("numbers of samples as reported")


def test_too_many_samples_are_scaled_down(digits: Samples) -> None:
    found, note = federation_like(digits, np.array([3e4, 1e4]), ["a", "b"], alpha=0.5, seed=0)
    assert 2.9 < found.sizes[0] / found.sizes[1] < 3.1
    assert found.sizes.sum() <= len(digits.labels)
    assert "of the reported ones" in note


def test_unknown_sizes_are_those_of_the_partition(digits: Samples) -> None:
    """Clients of a secure job do not report their numbers of samples."""
    found, note = federation_like(digits, np.zeros(5), list("abcde"), alpha=0.5, seed=0)
    expected = fedlatest.dirichlet(digits.labels, num_clients=5, alpha=0.5, seed=0)
    assert found.order.tolist() == expected.order.tolist()
    assert "not recorded" in note


def test_divide_by_size_uses_each_sample_at_most_once() -> None:
    labels = np.arange(60) % 3
    partition = divide_by_size(labels, np.array([1, 20, 39]), alpha=0.1, seed=1)
    assert sorted(partition.order.tolist()) == list(range(60))
    with pytest.raises(ConfigError, match="2 clients need 61 samples; there are 60"):
        divide_by_size(labels, np.array([1, 60]), alpha=0.1, seed=1)


def layout_of(model: Model) -> Layout:
    """Return the layout of a model as a job stores it."""
    import jax

    return Layout.of({name: np.asarray(leaf) for name, leaf in named_leaves(model.init(jax.random.key(0))).items()})


@pytest.mark.parametrize(
    "model",
    [
        fedlatest.logistic(num_features=64, num_classes=10),
        fedlatest.mlp(num_features=64, num_classes=10, hidden=7),
        fedlatest.cnn(num_features=64, num_classes=10, channels=3, hidden=12),
    ],
    ids=["logistic", "mlp", "cnn"],
)
def test_model_of_the_same_shapes_is_found(model: Model) -> None:
    assert model_like(layout_of(model), num_features=64, num_classes=10).settings == model.settings


def test_transposed_matrix_is_found() -> None:
    layout = Layout.of({"weight": np.zeros((64, 10), np.float32), "bias": np.zeros(10, np.float32)})
    assert model_like(layout, num_features=64, num_classes=10).settings["name"] == "logistic"


def test_unknown_model_is_refused_with_what_to_do() -> None:
    layout = Layout.of({"w": np.zeros(3, np.float32)})
    with pytest.raises(ConfigError, match=r"the job's model \(w \[3\]\) is none of .*--set model=logistic"):
        model_like(layout, num_features=64, num_classes=10)
