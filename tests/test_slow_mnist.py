"""The paper's default MNIST setting: five seeds, 4000 rounds. Takes minutes on 2 cores; run with `make test-slow`."""

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedlatest import Result
from fedlatest.experiments import RECIPES
from fedlatest.reproduction.judging import STATEMENTS


def run_mnist(folder: Path, *overrides: str, num_seeds: int) -> Result:
    """Run the recipe with KEY=VALUE overrides and seeds 0 .. num_seeds - 1."""
    recipe = RECIPES["mnist"]
    return recipe.experiments(list(overrides))[0].run(recipe.load(folder), seeds=list(range(num_seeds)))


def late_accuracy(result: Result) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return the test accuracy in rounds (3000, 4000], [seeds, evaluations]."""
    return result.metrics.column("test_accuracy")[:, result.metrics.rounds > 3000]


@pytest.mark.slow
def test_fedlaavg_reaches_the_published_accuracy_and_is_steady(mnist_folder: Path) -> None:
    """Published: mean 0.9190, max - min 0.0037, at least 0.90 from round 920 (E=100, D=1)."""
    result = run_mnist(mnist_folder, num_seeds=5)
    accuracy = result.metrics.column("test_accuracy")
    assert abs(late_accuracy(result).mean() - 0.918) <= 0.003
    assert np.ptp(late_accuracy(result), axis=1).max() < 0.005
    for curve in accuracy:
        first_round = result.metrics.rounds[np.flatnonzero(curve < 0.9)[-1] + 1]
        assert abs(first_round - 920) <= 0.15 * 920


@pytest.mark.slow
def test_fedavg_oscillates(mnist_folder: Path) -> None:
    """Published: mean 0.8833, max - min 0.1034."""
    result = run_mnist(mnist_folder, "algorithm=fedavg", num_seeds=1)
    assert np.ptp(late_accuracy(result), axis=1).min() > 0.05


@pytest.mark.slow
def test_the_claims_of_a_figure_hold(mnist_folder: Path, tmp_path: Path) -> None:
    """FedLaAvg with 200, 600 and 1000 clients, one seed: the claim about N and the published numbers hold."""
    command = ["reproduce", "mnist", "--figure", "clients", "--data", str(mnist_folder), "--out", str(tmp_path)]
    subprocess.run([sys.executable, "-m", "fedlatest", *command], check=True)
    with (tmp_path / "claims.csv").open() as file:
        rows = list(csv.DictReader(file))
    [about_clients] = [row["verdict"] for row in rows if row["claim"].startswith("The number of clients")]
    assert about_clients == "holds"
    published = [row["verdict"] for row in rows if row["group"] != STATEMENTS]
    assert published == ["holds"] * 3  # mean, swing, first round above 0.90
