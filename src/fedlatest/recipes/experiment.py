"""A complete experiment: its resolved values, and how they become a simulation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedlatest.availability import Clients
from fedlatest.data import Federation, Samples
from fedlatest.errors import ConfigError
from fedlatest.models import softmax_cross_entropy
from fedlatest.recipes.settings import keywords_of, make
from fedlatest.simulation import Plan, Result, Training, simulate_plan
from fedlatest.simulation.plan import cohort_size


class Dealer:
    """Deals samples to clients, once for all experiments that deal alike: they then share one Federation."""

    def __init__(self, samples: Samples) -> None:
        self.samples = samples
        self._dealt: dict[tuple[Any, ...], Federation] = {}

    def deal(self, values: Mapping[str, Any]) -> Federation:
        """The federation that the values name."""
        keys = ("partition", "num_clients", "partition_seed", *keywords_of("partition", values))
        how = tuple(values[key] for key in keys)
        if how not in self._dealt:
            labels, seed = self.samples.labels, values["partition_seed"]
            partition = make("partition", values, labels=labels, num_clients=values["num_clients"], seed=seed)
            self._dealt[how] = self.samples.deal(partition)
        return self._dealt[how]


@dataclass(frozen=True)
class Experiment:
    """One algorithm in one setting. `name` is the run's folder within a recipe of several."""

    name: str
    values: Mapping[str, Any]

    def plan(self, dealer: Dealer, seeds: Sequence[int] = (0,)) -> Plan:
        """The plan to simulate; nonsense among the values is complained about here."""
        values = self.values
        if values["partition_seed"] < 0:
            raise ConfigError(f"partition_seed={values['partition_seed']}: must be 0 or larger")
        if values["local_steps"] < 1:
            raise ConfigError(f"local_steps={values['local_steps']}: must be at least 1")
        federation = dealer.deal(values)
        clients = Clients(federation.client_labels(), federation.num_labels, values["partition_seed"])
        num_features = dealer.samples.features.shape[1]
        return Plan(
            federation=federation,
            model=make("model", values, num_features=num_features, num_classes=federation.num_labels),
            algorithm=make("algorithm", values),
            availability=make("availability", values, clients=clients),
            training=Training(
                cohort_size(federation.num_clients, None, values["participation"]),
                values["local_steps"],
                values["batch_size"],
                values["learning_rate"],
            ),
            loss=softmax_cross_entropy,
            rounds=values["rounds"],
            evaluate_every=values["evaluate_every"],
            seeds=tuple(seeds),
            config=dict(values),
        )

    def run(self, samples: Samples, *, seeds: Sequence[int] = (0,), out: Path | None = None, **options: Any) -> Result:
        """Simulate; the options are those of `simulate` (resume, force, listener, ...)."""
        return simulate_plan(self.plan(Dealer(samples), seeds), out, **options)

    def with_values(self, **changes: Any) -> "Experiment":
        """The same experiment with some values changed."""
        return replace(self, values={**self.values, **changes})


@dataclass(frozen=True)
class Recipe:
    """A named set of experiments on one data set."""

    name: str
    summary: str
    load: Callable[[Path | None], Samples]
    experiments: Callable[[list[str]], list[Experiment]]
    """KEY=VALUE overrides -> experiments; the first key that makes no sense raises a ConfigError."""
    defaults: Mapping[str, Any]

    def named(self, changes: str) -> Experiment:
        """The one experiment that some KEY=VALUE, separated by spaces, make of the defaults, named by them."""
        [experiment] = self.experiments(changes.split())
        values = experiment.values
        told = [change for change in changes.split() if values[key_of(change)] != self.defaults.get(key_of(change))]
        named = [change for change in told if key_of(change) != "algorithm"]
        return Experiment("-".join([values["algorithm"], *named]), values)


def key_of(override: str) -> str:
    """The key of a KEY=VALUE."""
    return override.partition("=")[0].strip()
