"""The paper's default MNIST setting in full: five seeds, 4000 rounds. Minutes on 2 cores; `make test-slow`."""

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedlatest import Result
from fedlatest.experiments import RECIPES


def run(folder: Path, *overrides: str, num_seeds: int) -> Result:
    recipe = RECIPES["mnist"]
    return recipe.experiments(list(overrides))[0].run(recipe.load(folder), seeds=list(range(num_seeds)))


def late(result: Result) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Test accuracy in rounds (3000, 4000], [seeds, evaluations]."""
    return result.metrics.column("test_accuracy")[:, result.metrics.rounds > 3000]


@pytest.mark.slow
def test_fedlaavg_reaches_the_published_accuracy_and_stays(mnist_folder: Path) -> None:
    """Published: mean 0.9190, max - min 0.0037, at least 0.90 from round 920 (PAPER: E=100, D=1)."""
    result = run(mnist_folder, num_seeds=5)
    accuracy = result.metrics.column("test_accuracy")
    assert abs(late(result).mean() - 0.918) <= 0.003
    assert np.ptp(late(result), axis=1).max() < 0.005
    for curve in accuracy:
        stays = result.metrics.rounds[np.flatnonzero(curve < 0.9)[-1] + 1]
        assert abs(stays - 920) <= 0.15 * 920


@pytest.mark.slow
def test_fedavg_swings(mnist_folder: Path) -> None:
    """Published: mean 0.8833, max - min 0.1034."""
    result = run(mnist_folder, "algorithm=fedavg", num_seeds=1)
    assert np.ptp(late(result), axis=1).min() > 0.05


@pytest.mark.slow
def test_a_figure_reproduces_with_its_claims(mnist_folder: Path, tmp_path: Path) -> None:
    """FedLaAvg with 200, 600 and 1000 clients, one seed: the claim about N, and the published run, hold."""
    command = ["reproduce", "mnist", "--figure", "clients", "--data", str(mnist_folder), "--out", str(tmp_path)]
    subprocess.run([sys.executable, "-m", "fedlatest", *command], check=True)
    with (tmp_path / "claims.csv").open() as file:
        rows = list(csv.DictReader(file))
    [about_clients] = [row["verdict"] for row in rows if row["claim"].startswith("the number of clients")]
    assert about_clients == "holds"
    published = [row["verdict"] for row in rows if row["group"] != "What the paper says"]
    assert published == ["holds"] * 3  # mean, swing, round of 0.90
