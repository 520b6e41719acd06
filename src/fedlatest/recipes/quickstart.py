"""The quickstart: four algorithms on the bundled digits, under day and night."""

from pathlib import Path
from typing import Any

from fedlatest.data import Samples, load_digits
from fedlatest.recipes.experiment import Experiment, Recipe, forbid
from fedlatest.recipes.settings import resolve

ALGORITHMS = ("fedlaavg", "fedavg", "fedprox", "sequential")
DEFAULTS: dict[str, Any] = {
    "algorithm": ALGORITHMS[0],
    "model": "logistic",
    "partition": "label",
    "availability": "diurnal",
    "num_clients": 100,
    "participation": 0.1,
    "local_steps": 10,
    "batch_size": 5,
    "learning_rate": 0.05,
    "period": 30,
    "digits": 3,
    "rounds": 600,
    "evaluate_every": 5,
    "partition_seed": 0,
}


def _experiments(overrides: list[str]) -> list[Experiment]:
    forbid(overrides, "algorithm", f"quickstart runs {', '.join(ALGORITHMS)}; use `fedlatest run mnist` for one")
    prox_keys = [override for override in overrides if override.partition("=")[0].strip() == "mu"]
    others = [override for override in overrides if override not in prox_keys]
    return [
        Experiment(name, resolve({**DEFAULTS, "algorithm": name}, others + (prox_keys if name == "fedprox" else [])))
        for name in ALGORITHMS
    ]


def _load(folder: Path | None) -> Samples:
    del folder
    return load_digits()


quickstart = Recipe(
    name="quickstart",
    summary="FedLaAvg, FedAvg, FedProx and sequential SGD on bundled digits under diurnal availability",
    load=_load,
    experiments=_experiments,
    defaults=DEFAULTS,
)
