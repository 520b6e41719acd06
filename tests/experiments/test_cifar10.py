"""The recipe `cifar10`: its defaults, which keep the availability although everyone may take part, and a short run."""

from pathlib import Path

import pytest

from fedlatest import load_cifar10
from fedlatest.availability.stochastic import Independent
from fedlatest.experiments import RECIPES, FederationBuilder
from fedlatest.runs.run_folder import read_manifest
from tests.command_line import fedlatest_here
from tests.data.cifar_files import write_small_cifar10

CIFAR10 = RECIPES["cifar10"]
SMALL = (
    "num_clients=4", "channels=2", "hidden=8", "batch_size=2", "local_steps=2", "rounds=2", "evaluate_every=2",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a few images in the format of CIFAR-10."""
    path = tmp_path_factory.mktemp("cifar10")
    write_small_cifar10(path)
    return path


def test_defaults_are_those_of_fedawe() -> None:
    [experiment] = CIFAR10.experiments([])
    values = experiment.values
    assert {key: values[key] for key in ("num_clients", "alpha", "local_steps", "batch_size", "learning_rate")} == {
        "num_clients": 100, "alpha": 0.1, "local_steps": 10, "batch_size": 128, "learning_rate": 0.05,
    }  # fmt: skip
    assert (values["rounds"], values["participation"], values["availability"]) == (2000, 1.0, "labels")


def test_all_available_clients_take_part_but_not_all_are_available(folder: Path) -> None:
    [experiment] = CIFAR10.experiments(list(SMALL))
    spec = experiment.spec(FederationBuilder(load_cifar10(folder)))
    assert spec.cohort_size == spec.federation.num_clients == 4
    assert isinstance(spec.availability, Independent)


@pytest.mark.parametrize("algorithm", ["fedlaavg", "fedavg", "fedawe", "mifa"])
def test_no_algorithm_weights_clients_by_their_samples(algorithm: str) -> None:
    assert CIFAR10.named(f"algorithm={algorithm}").values["weighting"] == "none"
    assert CIFAR10.named(f"algorithm={algorithm} weighting=loss").values["weighting"] == "loss"


def test_a_short_run(folder: Path, tmp_path: Path) -> None:
    overrides = [part for override in SMALL for part in ("--set", override)]
    done = fedlatest_here("run", "cifar10", "--out", "run", *overrides, cwd=tmp_path, data=folder)
    assert done.returncode == 0, done.stderr
    config = read_manifest(tmp_path / "run")["config"]
    assert config["model"] == {
        "name": "cnn", "num_features": 3072, "num_classes": 10, "channels": 2, "hidden": 8,
    }  # fmt: skip
