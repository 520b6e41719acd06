"""Federations from partitioners of Flower Datasets: the same samples, client by client."""

from typing import Any

import numpy as np
import pytest

from fedlatest import DataError, always, fedavg, federation_from_partitioner, logistic, simulate

datasets = pytest.importorskip("datasets", reason="needs the extra flwr-datasets")


@pytest.fixture(autouse=True)
def no_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "0")


@pytest.fixture
def partitioners() -> Any:
    """The package with the partitioners, imported after telemetry is disabled."""
    return pytest.importorskip("flwr_datasets.partitioner", reason="needs the extra flwr-datasets")


def numbers(count: int, seed: int = 0) -> Any:
    """A data set of 3 numbers and one of 4 labels per sample; its first number is the row."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(count, 3))
    values[:, 0] = np.arange(count)
    labels = (np.arange(count) % 4).tolist()
    return datasets.Dataset.from_dict({"values": values.tolist(), "label": labels, "other": ["x"] * count})


def images(count: int) -> Any:
    """A data set of colour images of 4 x 4 pixels in the form of Hugging Face's image data sets."""
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (count, 4, 4, 3), dtype=np.uint8)
    schema = datasets.Features({"img": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])})
    columns = {"img": list(pixels), "label": [row % 2 for row in range(count)]}
    return datasets.Dataset.from_dict(columns, features=schema), pixels


def assigned(partitioner: Any, dataset: Any) -> Any:
    partitioner.dataset = dataset
    return partitioner


@pytest.mark.parametrize("kind", ["iid", "dirichlet"])
def test_clients_hold_the_samples_of_the_partitions(partitioners: Any, kind: str) -> None:
    dataset, test = numbers(120), numbers(10, seed=1)
    if kind == "iid":
        partitioner = assigned(partitioners.IidPartitioner(num_partitions=5), dataset)
    else:
        dirichlet = partitioners.DirichletPartitioner(
            num_partitions=5, partition_by="label", alpha=0.5, min_partition_size=2, seed=1
        )
        partitioner = assigned(dirichlet, dataset)
    federation = federation_from_partitioner(partitioner, test, features="values", name="numbers")
    assert (federation.name, federation.num_clients, federation.num_labels) == ("numbers", 5, 4)
    for client in range(5):
        rows = federation.order[federation.offsets[client] : federation.offsets[client + 1]]
        partition = partitioner.load_partition(client)
        np.testing.assert_allclose(federation.features[rows], np.array(partition["values"]), rtol=1e-6)
        assert federation.labels[rows].tolist() == list(partition["label"])
    assert sorted(federation.features[:, 0].tolist()) == list(range(120))
    assert federation.test_features.shape == (10, 3)
    assert federation.features.dtype == np.dtype(np.float32)
    assert federation.labels.dtype == np.dtype(np.int32)


def test_images_become_pixels(partitioners: Any) -> None:
    dataset, pixels = images(20)
    federation = federation_from_partitioner(
        assigned(partitioners.IidPartitioner(num_partitions=2), dataset), dataset.select(range(4)), features="img"
    )
    assert federation.test_features.shape == (4, 48)
    np.testing.assert_allclose(federation.test_features, pixels[:4].reshape(4, 48) / 255, atol=1e-6)
    assert federation.name == "IidPartitioner"


def test_it_can_be_simulated(partitioners: Any) -> None:
    partitioner = assigned(partitioners.IidPartitioner(num_partitions=4), numbers(40))
    federation = federation_from_partitioner(partitioner, numbers(10), features="values")
    model = logistic(num_features=3, num_classes=4)
    result = simulate(federation, model, fedavg(), always(4), rounds=1, cohort_size=2, evaluate_every=1)
    assert np.isfinite(result.metrics.column("test_loss")).all()


def test_errors_name_the_cause(partitioners: Any) -> None:
    dataset = numbers(20)
    with pytest.raises(DataError, match="has no data set"):
        federation_from_partitioner(partitioners.IidPartitioner(num_partitions=2), dataset, features="values")
    partitioner = assigned(partitioners.IidPartitioner(num_partitions=2), dataset)
    with pytest.raises(DataError, match="partition 0: has no column 'img'; its columns are values, label, other"):
        federation_from_partitioner(partitioner, dataset, features="img")
    with pytest.raises(DataError, match="column other: must hold images or numbers"):
        federation_from_partitioner(partitioner, dataset, features="other")
    with pytest.raises(DataError, match="column other: must hold one number per sample"):
        federation_from_partitioner(partitioner, dataset, features="values", labels="other")
    with pytest.raises(DataError, match="test set: has no sample"):
        federation_from_partitioner(partitioner, dataset.select([]), features="values")
    ragged = datasets.Dataset.from_dict({"values": [[1.0], [1.0, 2.0]] * 2, "label": [0, 1] * 2})
    with pytest.raises(DataError, match=r"same shape for all samples|different shapes"):
        federation_from_partitioner(
            assigned(partitioners.IidPartitioner(num_partitions=2), ragged), ragged, features="values"
        )
