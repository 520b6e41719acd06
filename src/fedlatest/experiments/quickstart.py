"""Recipe `quickstart`: four algorithms on the bundled digits under diurnal availability."""

from pathlib import Path
from typing import Any

from fedlatest.algorithms import ALGORITHMS
from fedlatest.data import Samples, load_digits
from fedlatest.data.progress import ProgressCallback
from fedlatest.errors import ConfigError
from fedlatest.experiments.experiment import Experiment, Recipe
from fedlatest.experiments.settings import key_of, keywords, resolve

NAMES = ("fedlaavg", "fedavg", "fedprox", "sequential")
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
        raise ConfigError(
            f"algorithm: quickstart always runs {', '.join(NAMES)}; use `fedlatest run digits` to run a single one"
        )
    return [
        Experiment(name, resolve({**DEFAULTS, "algorithm": name}, [o for o in overrides if _applies(name, key_of(o))]))
        for name in NAMES
    ]


def _applies(algorithm: str, key: str) -> bool:
    """Return whether an override applies to an algorithm: not if the key belongs to other algorithms only."""
    owners = {name for name in NAMES if key in keywords(ALGORITHMS[name])}
    return not owners or algorithm in owners


def _load(folder: Path | None, *, on_progress: ProgressCallback | None = None) -> Samples:
    del on_progress  # the data is bundled
    if folder is not None:
        raise ConfigError(f"data={folder}: this recipe uses bundled data; omit --data")
    return load_digits()


quickstart = Recipe(
    name="quickstart",
    summary="FedLaAvg, FedAvg, FedProx and sequential SGD on bundled digits under diurnal availability",
    load=_load,
    experiments=_experiments,
    defaults=DEFAULTS,
    reads_files=False,
)
