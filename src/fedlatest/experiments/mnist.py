"""Recipe for the paper's convex task: one algorithm in one setting on MNIST."""

from pathlib import Path
from typing import Any

from fedlatest.data import Samples, load_mnist
from fedlatest.data.progress import ProgressCallback
from fedlatest.experiments.experiment import Experiment, Recipe, resolve_always_available

DEFAULTS: dict[str, Any] = {
    "algorithm": "fedlaavg",
    "model": "logistic",
    "partition": "label",
    "availability": "diurnal",
    "num_clients": 1000,
    "participation": 0.1,
    "local_steps": 10,
    "batch_size": 5,
    "learning_rate": 0.01,
    "period": 100,
    "digits": 1,
    "rounds": 4000,
    "evaluate_every": 20,
    "partition_seed": 0,
}


def _experiments(overrides: list[str]) -> list[Experiment]:
    values = resolve_always_available(DEFAULTS, overrides, availability_keys={"period", "digits"})
    return [Experiment(values["algorithm"], values)]


def _load(folder: Path | None, *, on_progress: ProgressCallback | None = None) -> Samples:
    del on_progress  # load_mnist reports no progress
    return load_mnist(folder)


mnist = Recipe(
    name="mnist",
    summary="one algorithm in one setting of the paper's MNIST task (defaults: the paper's)",
    load=_load,
    experiments=_experiments,
    defaults=DEFAULTS,
)
