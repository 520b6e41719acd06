"""Sentiment140: one algorithm in one setting of the paper's non-convex task."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from fedlatest.data import load_sentiment140
from fedlatest.experiments.experiment import Experiment, Recipe, key_of, resolve_with_everyone

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


def experiments_of(defaults: Mapping[str, Any], overrides: list[str]) -> list[Experiment]:
    """The one experiment that the overrides make of some defaults of this task."""
    values = resolve_with_everyone(defaults, overrides, about_availability={"rounds_per_day", "window_hours"})
    if values["algorithm"] == "fedprox" and "mu" not in map(key_of, overrides):
        values["mu"] = MU
    return [Experiment(values["algorithm"], values)]


sentiment140 = Recipe(
    name="sentiment140",
    summary="one algorithm in one setting of the paper's Sentiment140 task (defaults: the paper's)",
    load=load_sentiment140,
    experiments=partial(experiments_of, DEFAULTS),
    defaults=DEFAULTS,
)
