"""The quickstart: four algorithms on the bundled digits, under day and night."""

from pathlib import Path
from typing import Any

from fedlatest.algorithms import ALGORITHMS
from fedlatest.data import Samples, load_digits
from fedlatest.data.progress import ProgressCallback
from fedlatest.errors import ConfigError
from fedlatest.experiments.experiment import Experiment, Recipe, key_of
from fedlatest.experiments.settings import keywords, resolve

RUNS = ("fedlaavg", "fedavg", "fedprox", "sequential")
DEFAULTS: dict[str, Any] = {
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
    if any(key_of(override) == "algorithm" for override in overrides):
        raise ConfigError(f"algorithm: quickstart runs {', '.join(RUNS)}; use `fedlatest run mnist` for one")
    return [
        Experiment(name, resolve({**DEFAULTS, "algorithm": name}, [o for o in overrides if _concerns(name, key_of(o))]))
        for name in RUNS
    ]


def _concerns(algorithm: str, key: str) -> bool:
    """Whether an algorithm is told of a key: one that others have and it has not is not for it."""
    owners = {name for name in RUNS if key in keywords(ALGORITHMS[name])}
    return not owners or algorithm in owners


def _load(folder: Path | None, *, on_progress: ProgressCallback | None = None) -> Samples:
    del on_progress  # nothing to wait for
    if folder is not None:
        raise ConfigError(f"data={folder}: quickstart brings its own data; leave --data out")
    return load_digits()


quickstart = Recipe(
    name="quickstart",
    summary="FedLaAvg, FedAvg, FedProx and sequential SGD on bundled digits under diurnal availability",
    load=_load,
    experiments=_experiments,
    defaults=DEFAULTS,
)
