"""Delay models: pure functions of (seed, client, event) that return seconds of download, training and upload.

Models are frozen dataclasses and JAX pytrees: their arrays are arguments of a compiled program, so two models of the
same kind and shapes share one program. Virtual time is counted in whole milliseconds. Sums of delays are therefore
exact, and clients with equal delays finish at the same time.
"""

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jax.tree_util import register_dataclass
from jax.typing import ArrayLike
from numpy.typing import ArrayLike as Values

from fedlatest.digest import digest
from fedlatest.errors import ConfigError
from fedlatest.streams import Purpose, uniform

Unit = Literal["task", "sample", "megabyte"]
Kind = Literal["constant", "lognormal", "exponential", "empirical", "recorded"]
MAX_MILLISECONDS = 2**30  # twelve days; a longer delay counts as this one
MAX_SECONDS = MAX_MILLISECONDS / 1000


class Work(NamedTuple):
    """What a client does in one task: durations per sample or per megabyte are multiplied by it."""

    samples: Any = 0.0
    """Samples in all local batches, C times the batch size."""
    megabytes: Any = 0.0
    """Size of the model."""


NO_WORK = Work()


class Stages(NamedTuple):
    """Seconds that a client needs to receive the model, to train, and to send its update."""

    download: jax.Array
    training: jax.Array
    upload: jax.Array


@register_dataclass
@dataclass(frozen=True)
class Duration:
    """How long one stage takes; made by `constant`, `lognormal`, `exponential`, `empirical` or `recorded`."""

    seconds: jax.Array  # [] or [N] the constant, the median or the mean; [N, values]; [tasks, N]
    spread: jax.Array
    """[] or [N] sigma of the logarithm; [N, 2] number of values, and of those that do not fail, which come first;
    [tasks, N] 1 where the client fails."""
    kind: Kind = field(metadata={"static": True})
    per: Unit = field(default="task", metadata={"static": True})

    @property
    def num_clients(self) -> int | None:
        """The number of clients; None if all have the same duration."""
        if self.kind in ("empirical", "recorded"):
            return int(self.seconds.shape[0 if self.kind == "empirical" else 1])
        return next((len(values) for values in (self.seconds, self.spread) if jnp.ndim(values)), None)

    def draw(self, chance: jax.Array, clients: ArrayLike, work: Work, event: ArrayLike = 0) -> jax.Array:
        """Return seconds for some clients, given a uniform number in (0, 1) for each and the number of the task."""
        if self.kind == "recorded":
            return self.seconds[_row(self.seconds, event), clients]
        if self.kind == "empirical":
            return self.seconds[clients, self._position(chance, clients)]
        typical, spread = (values[clients] if jnp.ndim(values) else values for values in (self.seconds, self.spread))
        factor = {"task": 1.0, "sample": work.samples, "megabyte": work.megabytes}[self.per]
        if self.kind == "lognormal":
            typical = typical * jnp.exp(spread * ndtri(chance))
        elif self.kind == "exponential":
            typical = -typical * jnp.log(chance)
        return jnp.broadcast_to(typical * factor, jnp.shape(chance)).astype(jnp.float32)

    def fails(self, chance: jax.Array, clients: ArrayLike, event: ArrayLike = 0) -> jax.Array:
        """Return which clients stop at the end of the duration that `draw` returns for the same arguments."""
        if self.kind == "recorded":
            return self.spread[_row(self.spread, event), clients] > 0
        if self.kind == "empirical":
            return self._position(chance, clients) >= self.spread[clients, 1]
        return jnp.zeros(jnp.shape(clients), bool)

    def _position(self, chance: jax.Array, clients: ArrayLike) -> jax.Array:
        """Return which of the client's values is drawn."""
        count = self.spread[clients, 0]
        return jnp.minimum(chance * count, count - 1).astype(jnp.int32)


Seconds = Duration | float


@register_dataclass
@dataclass(frozen=True)
class Delays:
    """The delays of the clients in each task: a number of seconds, or a `Duration`, for each stage.

    >>> delays = Delays(download=0.5, training=lognormal(10, sigma=0.5), upload=constant([1, 2, 3]))
    >>> delays.stages(seed=0, clients=jnp.arange(3), event=7).upload.tolist()
    [1.0, 2.0, 3.0]
    """

    download: Seconds = 0.0
    training: Seconds = 0.0
    upload: Seconds = 0.0

    def __post_init__(self) -> None:
        for name in Stages._fields:
            value = getattr(self, name)
            if isinstance(value, int | float):
                object.__setattr__(self, name, constant(value))

    @property
    def num_clients(self) -> int | None:
        """The number of clients; None if the delays fit any number.

        Raises:
            ConfigError: If the stages are for different numbers of clients.
        """
        numbers = {duration.num_clients for duration in self._durations} - {None}
        if len(numbers) > 1:
            raise ConfigError(f"delays: the stages are for different numbers of clients, {sorted(numbers)}")  # type: ignore[type-var]
        return next(iter(numbers), None)

    def stages(
        self,
        seed: ArrayLike,
        clients: ArrayLike,
        event: ArrayLike,
        *,
        ids: ArrayLike | None = None,
        work: Work = NO_WORK,
    ) -> Stages:
        """Return the seconds of each stage.

        Args:
            seed: Seed of the run.
            clients: Positions of the clients.
            event: The number of the task: the round, or the number of the dispatch.
            ids: Stable ids of these clients, on which the draws depend; by default their positions.
            work: What durations per sample or per megabyte are multiplied by.
        """
        chances = self._chances(seed, clients if ids is None else ids, event)
        drawn = [
            duration.draw(chance, clients, work, event)
            for duration, chance in zip(self._durations, chances, strict=True)
        ]
        return Stages(*drawn)

    def fails(
        self, seed: ArrayLike, clients: ArrayLike, event: ArrayLike, *, ids: ArrayLike | None = None
    ) -> jax.Array:
        """Return which clients do not answer, but stop at the end of their delay; see `stages` for the arguments."""
        found = jnp.zeros(jnp.shape(clients), bool)
        chances = self._chances(seed, clients if ids is None else ids, event)
        for duration, chance in zip(self._durations, chances, strict=True):
            found |= duration.fails(chance, clients, event)
        return found

    def milliseconds(
        self,
        seed: ArrayLike,
        clients: ArrayLike,
        event: ArrayLike,
        *,
        ids: ArrayLike | None = None,
        work: Work = NO_WORK,
    ) -> jax.Array:
        """Return the milliseconds, int32, from the moment a client is asked until its update arrives."""
        stages = self.stages(seed, clients, event, ids=ids, work=work)
        total = jnp.clip(stages.download + stages.training + stages.upload, 0.0, MAX_SECONDS)
        return jnp.minimum(jnp.round(total * 1000).astype(jnp.int32), MAX_MILLISECONDS)

    def fingerprint(self) -> str:
        """Return a digest of the model; equal models have equal fingerprints."""
        kinds = [f"{duration.kind}/{duration.per}" for duration in self._durations]
        return digest(",".join(kinds), [(duration.seconds, duration.spread) for duration in self._durations])

    def _chances(self, seed: ArrayLike, ids: ArrayLike, event: ArrayLike) -> list[jax.Array]:
        """Return for each stage a number for each client, neither 0 nor 1, where draws may be infinite."""
        keys, largest = jnp.asarray(ids), jnp.float32(1 - 2**-24)
        stages = range(len(Stages._fields))
        numbers = [uniform(seed, Purpose.DELAY, keys, event, stage) + jnp.float32(2**-25) for stage in stages]
        return [jnp.minimum(number, largest) for number in numbers]

    @property
    def _durations(self) -> tuple[Duration, Duration, Duration]:
        return self.download, self.training, self.upload  # type: ignore[return-value]


def _row(table: jax.Array, event: ArrayLike) -> jax.Array:
    """Return the row of a task; tasks after the last row have the last one."""
    return jnp.minimum(jnp.asarray(event), table.shape[0] - 1)


def constant(seconds: Values, *, per: Unit = "task") -> Duration:
    """Return a duration that is always the same.

    Args:
        seconds: A number for all clients, or one for each.
        per: "task" counts it once per task, "sample" multiplies it by the number of samples in the local batches,
            "megabyte" by the size of the model.
    """
    return _duration("constant", seconds, 0.0, per)


def lognormal(median: Values, *, sigma: Values, per: Unit = "task") -> Duration:
    """Return a duration whose logarithm is normally distributed: median * exp(sigma * z), drawn for every task.

    Args:
        median: The median in seconds, for all clients or for each.
        sigma: The standard deviation of the logarithm, 0 or larger.
        per: See `constant`.
    """
    return _duration("lognormal", median, sigma, per)


def exponential(mean: Values, *, per: Unit = "task") -> Duration:
    """Return an exponentially distributed duration, drawn for every task.

    Args:
        mean: The mean in seconds, for all clients or for each.
        per: See `constant`.
    """
    return _duration("exponential", mean, 0.0, per)


def _duration(kind: Kind, seconds: Values, spread: Values, per: Unit) -> Duration:
    if per not in get_args(Unit):
        raise ConfigError(f"per={per!r}: choose one of {', '.join(get_args(Unit))}")
    arrays = []
    for name, values in (("seconds", seconds), ("sigma", spread)):
        try:
            array = np.asarray(values, np.float32)
        except (TypeError, ValueError):
            raise ConfigError(f"{name}={values!r}: give a number, or one for each client") from None
        if array.ndim > 1 or not array.size:
            raise ConfigError(f"{name}: give a number, or one for each client, not an array of shape {array.shape}")
        if not (np.isfinite(array) & (array >= 0)).all():
            raise ConfigError(
                f"{name}={array[~(np.isfinite(array) & (array >= 0))].flat[0]}: must be finite, 0 or larger"
            )
        arrays.append(array)
    lengths = {len(array) for array in arrays if array.ndim}
    if len(lengths) > 1:
        raise ConfigError(f"{kind}: seconds and sigma are for different numbers of clients, {sorted(lengths)}")
    return Duration(jnp.asarray(arrays[0]), jnp.asarray(arrays[1]), kind, per)
