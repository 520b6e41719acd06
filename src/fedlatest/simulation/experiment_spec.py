"""A spec: one experiment with everything needed to simulate it, and what identifies it on disk."""

import platform
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import jax

from fedlatest.algorithms import Algorithm
from fedlatest.availability import Availability
from fedlatest.data import Federation
from fedlatest.errors import ConfigError
from fedlatest.models import Loss, Model
from fedlatest.simulation.engine import Engine, Training, Variant
from fedlatest.version import __version__


@dataclass(frozen=True, eq=False)
class ExperimentSpec:
    """One algorithm in one setting, over some seeds."""

    federation: Federation
    model: Model
    algorithm: Algorithm
    availability: Availability
    training: Training
    loss: Loss
    rounds: int
    evaluate_every: int
    seeds: tuple[int, ...]
    config: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    """What should be known of the data."""

    @property
    def variant(self) -> Variant:
        """What this spec may have of its own and still share a program with others."""
        return Variant(self.availability, self.training.learning_rate, self.algorithm.numbers)

    @property
    def program(self) -> Hashable:
        """Plans of equal `program` can run side by side: they differ in numbers, not in shapes or code.

        Two algorithms of one name are told apart by their `settings`, and by the code of their functions.
        """
        algorithm = self.algorithm
        functions = (algorithm.init, algorithm.select, algorithm.direction, algorithm.contribute, algorithm.merge)
        code = tuple(getattr(function, "__code__", function) for function in functions)
        fixed = tuple(item for item in sorted(algorithm.settings.items()) if item[0] not in algorithm.numbers)
        leaves, structure = jax.tree.flatten(self.availability)
        shapes = None if algorithm.pooled else (structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves))
        same = (self.federation, self.loss, self.rounds, self.evaluate_every, self.seeds)
        model = repr(self.model.settings) if self.model.settings else id(self.model)
        training = self.training._replace(learning_rate=0)
        return algorithm.name, fixed, tuple(algorithm.numbers), code, shapes, model, training, same

    def manifest(self, engine: Engine) -> dict[str, Any]:
        """What the run's folder says of it; `config`, `seeds` and `data` identify it."""
        device = jax.devices()[0]
        return {
            "config": {
                "rounds": self.rounds,
                "evaluate_every": self.evaluate_every,
                "algorithm": {"name": self.algorithm.name, **self.algorithm.settings},
                "model": dict(self.model.settings),
                "loss": self.loss.name,
                **engine.training._asdict(),
                "learning_rate": self.training.learning_rate,
                "num_local_steps": engine.rules.num_steps,
                "num_clients": engine.federation.num_clients,
                "recipe": dict(self.config),
            },
            "seeds": list(self.seeds),
            "data": {
                "name": self.federation.name,
                **self.federation.checksums,
                "availability": self.availability.fingerprint(),
                **({"notes": list(self.notes)} if self.notes else {}),
            },
            "device": {"platform": device.platform, "kind": device.device_kind},
            "versions": {
                "python": platform.python_version(),
                "fedlatest": __version__,
                **{name: version(name) for name in ("jax", "jaxlib", "numpy")},
            },
        }


def engine_for(specs: Sequence[ExperimentSpec], *, clients_at_once: int | None = None) -> Engine:
    """One engine for specs that share a program."""
    first = specs[0]
    if any(spec.program != first.program for spec in specs):
        raise ConfigError("these experiments differ in more than numbers: run them one after the other")
    engine = Engine(
        first.federation,
        first.model,
        first.algorithm,
        first.availability,
        first.training,
        loss=first.loss,
        seeds=first.seeds,
        variants=[spec.variant for spec in specs],
        clients_at_once=clients_at_once,
    )
    engine.check_memory()
    return engine


def cohort_size(num_clients: int, size: int | None, participation: float | None) -> int:
    """K, said outright or as a share of the clients."""
    if (size is None) == (participation is None):
        raise ConfigError("give either cohort_size (how many clients a round) or participation (their share)")
    if size is not None:
        return int(size)
    assert participation is not None
    if not 0 < participation <= 1:
        raise ConfigError(f"participation={participation}: a share of the clients is in (0, 1]")
    return max(1, round(participation * num_clients))
