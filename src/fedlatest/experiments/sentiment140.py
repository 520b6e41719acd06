"""Recipes for the paper's non-convex task: `sentiment140` on the real tweets, `tweets` on generated ones."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fedlatest.data import TweetSet, generated_tweets, load_sentiment140
from fedlatest.data.progress import ProgressCallback
from fedlatest.errors import ConfigError
from fedlatest.experiments.experiment import Experiment, Recipe, resolve_always_available
from fedlatest.experiments.settings import key_of

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
SMALL_DEFAULTS: dict[str, Any] = {**DEFAULTS, "num_clients": 90, "rounds": 1000, "evaluate_every": 10}
MU = 0.01  # the paper's value for FedProx in this task


def _experiments(defaults: Mapping[str, Any], overrides: list[str]) -> list[Experiment]:
    values = resolve_always_available(defaults, overrides, availability_keys={"rounds_per_day", "window_hours"})
    if values["algorithm"] == "fedprox" and "mu" not in map(key_of, overrides):
        values["mu"] = MU
    return [Experiment(values["algorithm"], values)]


def _generate(folder: Path | None, *, on_progress: ProgressCallback | None = None) -> TweetSet:
    del on_progress  # takes less than a second
    if folder is not None:
        raise ConfigError(f"data={folder}: tweets generates its data; omit --data, or run sentiment140")
    return generated_tweets()


sentiment140 = Recipe(
    name="sentiment140",
    summary="one algorithm in one setting of the paper's Sentiment140 task (defaults: the paper's)",
    load=load_sentiment140,
    experiments=partial(_experiments, DEFAULTS),
    defaults=DEFAULTS,
)
tweets = Recipe(
    name="tweets",
    summary="a small version of the Sentiment140 task on generated tweets; no download",
    load=_generate,
    experiments=partial(_experiments, SMALL_DEFAULTS),
    defaults=SMALL_DEFAULTS,
    reads_files=False,
)
