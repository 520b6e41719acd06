"""A complete experiment: its resolved values, and how they become a simulation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlatest.algorithms import Algorithm
from fedlatest.availability import Availability, Clients
from fedlatest.data import Federation, Samples
from fedlatest.errors import ConfigError
from fedlatest.models import Model
from fedlatest.recipes.settings import make
from fedlatest.simulation import Result, simulate


@dataclass(frozen=True)
class Experiment:
    """One algorithm in one setting. `name` is the run's folder within a recipe of several."""

    name: str
    values: Mapping[str, Any]

    def build(self, samples: Samples) -> tuple[Federation, Model, Algorithm, Availability]:
        """What `simulate` needs, from the values."""
        values = self.values
        if values["partition_seed"] < 0:
            raise ConfigError(f"partition_seed={values['partition_seed']}: must be 0 or larger")
        if values["local_steps"] < 1:
            raise ConfigError(f"local_steps={values['local_steps']}: must be at least 1")
        partition = make(
            "partition", values, labels=samples.labels, num_clients=values["num_clients"], seed=values["partition_seed"]
        )
        federation = samples.deal(partition)
        clients = Clients(federation.client_labels(), federation.num_labels, values["partition_seed"])
        model = make("model", values, num_features=samples.features.shape[1], num_classes=federation.num_labels)
        return federation, model, make("algorithm", values), make("availability", values, clients=clients)

    def run(self, samples: Samples, **options: Any) -> Result:
        """Simulate; the options are those of `simulate` (seeds, out, resume, force, listener, ...)."""
        values = self.values
        federation, model, algorithm, availability = self.build(samples)
        return simulate(
            federation,
            model,
            algorithm,
            availability,
            rounds=values["rounds"],
            participation=values["participation"],
            num_local_steps=values["local_steps"],
            batch_size=values["batch_size"],
            learning_rate=values["learning_rate"],
            evaluate_every=values["evaluate_every"],
            config=values,
            **options,
        )


@dataclass(frozen=True)
class Recipe:
    """A named set of experiments on one data set."""

    name: str
    summary: str
    load: Callable[[Path | None], Samples]
    experiments: Callable[[list[str]], list[Experiment]]
    """KEY=VALUE overrides -> experiments; the first key that makes no sense raises a ConfigError."""
    defaults: Mapping[str, Any]


def key_of(override: str) -> str:
    """The key of a KEY=VALUE."""
    return override.partition("=")[0].strip()
