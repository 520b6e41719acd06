"""MNIST: one algorithm in one setting of the paper's convex task."""

from typing import Any

from fedlatest.data import load_mnist
from fedlatest.recipes.experiment import Experiment, Recipe, key_of
from fedlatest.recipes.settings import resolve

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
    values = resolve(DEFAULTS, overrides)
    told = {key_of(override) for override in overrides}
    if values["participation"] == 1 and not told & {"availability", "period", "digits"}:
        values = resolve(DEFAULTS, [*overrides, "availability=always"])  # the paper: beta = 1 is everyone, every round
    return [Experiment(values["algorithm"], values)]


mnist = Recipe(
    name="mnist",
    summary="one algorithm in one setting of the paper's MNIST task (defaults: the paper's)",
    load=load_mnist,
    experiments=_experiments,
    defaults=DEFAULTS,
)
