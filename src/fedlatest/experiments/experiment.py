"""A complete experiment: its resolved values, and how they become a simulation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from fedlatest.data.progress import ProgressCallback
from fedlatest.errors import ConfigError
from fedlatest.experiments.build_federation import Data, FederationBuilder
from fedlatest.experiments.settings import make, resolve
from fedlatest.simulation import ExperimentSpec, Result, simulate_spec
from fedlatest.simulation.experiment_spec import cohort_size


@dataclass(frozen=True)
class Experiment:
    """One algorithm in one setting. `name` is the run's folder within a recipe of several."""

    name: str
    values: Mapping[str, Any]

    def spec(self, builder: FederationBuilder, seeds: Sequence[int] = (0,)) -> ExperimentSpec:
        """The spec to simulate; nonsense among the values is complained about here."""
        values = self.values
        if values["local_steps"] < 1:
            raise ConfigError(f"local_steps={values['local_steps']}: must be at least 1")
        built = builder.build(values)
        return ExperimentSpec(
            federation=built.federation,
            model=make("model", values, **built.sizes),
            algorithm=make("algorithm", values),
            availability=make("availability", values, clients=built.clients),
            cohort_size=cohort_size(built.federation.num_clients, None, values["participation"]),
            num_local_steps=values["local_steps"],
            batch_size=values["batch_size"],
            learning_rate=values["learning_rate"],
            loss=built.loss,
            rounds=values["rounds"],
            evaluate_every=values["evaluate_every"],
            seeds=tuple(seeds),
            config=dict(values),
            notes=built.notes,
        )

    def run(self, data: Data, *, seeds: Sequence[int] = (0,), out: Path | None = None, **options: Any) -> Result:
        """Simulate; the options are those of `simulate` (resume, force, on_progress, ...)."""
        return simulate_spec(self.spec(FederationBuilder(data), seeds), out, **options)

    def with_values(self, **changes: Any) -> "Experiment":
        """The same experiment with some values changed."""
        return replace(self, values={**self.values, **changes})


class Load(Protocol):
    """Loads a data set from a folder that may have been named; a on_progress hears how far that is."""

    def __call__(self, folder: Path | None, *, on_progress: ProgressCallback | None = None) -> Data:
        """The data."""


@dataclass(frozen=True)
class Recipe:
    """A named set of experiments on one data set."""

    name: str
    summary: str
    load: Load
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


def resolve_with_everyone(
    defaults: Mapping[str, Any], overrides: list[str], *, about_availability: set[str]
) -> dict[str, Any]:
    """The values of an experiment; participation of 1 means, as in the paper, that everyone is there in every round.

    Unless something was said about availability.
    """
    values = resolve(defaults, overrides)
    told = {key_of(override) for override in overrides}
    if values["participation"] == 1 and not told & {"availability", *about_availability}:
        return resolve(defaults, [*overrides, "availability=always"])
    return values


def key_of(override: str) -> str:
    """The key of a KEY=VALUE."""
    return override.partition("=")[0].strip()
