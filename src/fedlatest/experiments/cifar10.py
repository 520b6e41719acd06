"""Recipe `cifar10`: a convolutional network on CIFAR-10 with clients whose availability depends on their labels.

The setting is that of the experiments of FedAWE (Xiang et al. 2024): everyone who is available takes part.
"""

from pathlib import Path
from typing import Any

from fedlatest.data import Samples, load_cifar10
from fedlatest.data.progress import ProgressCallback
from fedlatest.experiments.experiment import Experiment, Recipe
from fedlatest.experiments.settings import COMPONENTS, key_of, keywords, resolve

DEFAULTS: dict[str, Any] = {
    "algorithm": "fedlaavg",
    "model": "cnn",
    "partition": "dirichlet",
    "availability": "labels",
    "num_clients": 100,
    "participation": 1.0,
    "alpha": 0.1,
    "weighting": "none",
    "local_steps": 10,
    "batch_size": 128,
    "learning_rate": 0.05,
    "schedule": "inverse_sqrt",
    "augmentation": "crop_flip",
    "rounds": 2000,
    "evaluate_every": 20,
    "partition_seed": 0,
}


def _experiments(overrides: list[str]) -> list[Experiment]:
    values = resolve(DEFAULTS, overrides)
    overridden = {key_of(override) for override in overrides}
    if "weighting" in keywords(COMPONENTS["algorithm"][values["algorithm"]]) and "weighting" not in overridden:
        values = resolve(DEFAULTS, [*overrides, f"weighting={DEFAULTS['weighting']}"])  # for every algorithm
    return [Experiment(values["algorithm"], values)]


def _load(folder: Path | None, *, on_progress: ProgressCallback | None = None) -> Samples:
    del on_progress  # load_cifar10 reports no progress
    return load_cifar10(folder)


cifar10 = Recipe(
    name="cifar10",
    summary="one algorithm with a convolutional network on CIFAR-10, with availability that depends on labels",
    load=_load,
    experiments=_experiments,
    defaults=DEFAULTS,
)
