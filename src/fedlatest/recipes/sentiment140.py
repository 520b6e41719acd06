"""Sentiment140: one algorithm in one setting of the paper's non-convex task."""

from pathlib import Path
from typing import Any

from fedlatest.data import Samples
from fedlatest.errors import ConfigError
from fedlatest.recipes.experiment import Experiment, Recipe, key_of

DEFAULTS: dict[str, Any] = {
    "algorithm": "fedlaavg",
    "model": "lstm",
    "partition": "account",
    "availability": "sleep",
    "num_clients": 1000,
    "participation": 0.1,
    "local_steps": 10,
    "batch_size": 2,
    "learning_rate": 0.01,
    "alpha": 0.0,
    "rounds_per_day": 120,
    "window_hours": 8.0,
    "hidden": 16,
    "rounds": 10000,
    "evaluate_every": 50,
    "partition_seed": 0,
}
MU = 0.01  # the paper's for FedProx in this task
_OF_SLEEP = {"rounds_per_day", "window_hours"}


def _experiments(overrides: list[str]) -> list[Experiment]:
    said = dict(override.split("=", 1) for override in overrides)
    values = {**DEFAULTS, **({"mu": MU} if said.get("algorithm") == "fedprox" else {})}
    for key, text in said.items():
        if key not in values:
            raise ConfigError(f"{key}: unknown key")
        values[key] = type(values[key])(text)
    told = {key_of(override) for override in overrides}
    if values["participation"] == 1 and not told & {"availability", *_OF_SLEEP}:
        values["availability"] = "always"  # the paper: beta = 1 is everyone, every round
    if values["availability"] != "sleep":
        values = {key: value for key, value in values.items() if key not in _OF_SLEEP}
    return [Experiment(values["algorithm"], values)]


def _load(folder: Path | None) -> Samples:
    raise ConfigError(f"data={folder}: Sentiment140 cannot be dealt to clients yet")


sentiment140 = Recipe(
    name="sentiment140",
    summary="one algorithm in one setting of the paper's Sentiment140 task (defaults: the paper's)",
    load=_load,
    experiments=_experiments,
    defaults=DEFAULTS,
)
