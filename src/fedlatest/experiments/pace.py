"""How many server steps fit into a virtual time, estimated from delays and availability without training.

The arena evaluates every method about equally often in the same virtual time. Because `evaluate_every` counts rounds,
or server steps of asynchronous methods, it needs to know about how long one lasts.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from fedlatest.availability import Availability
from fedlatest.delays import Delays, Work
from fedlatest.errors import ConfigError
from fedlatest.simulation import ExperimentSpec

EVALUATIONS = 120  # per run, about
MARGIN = 4  # a run may take this many times the estimated number of steps before its rounds end it
MOMENTS = 96  # at which delays and availability are drawn
ALIKE = 2  # experiments whose numbers of steps differ by less than this factor are evaluated after equally many steps
DIGITS = 2  # significant digits of the interval between evaluations, so that rounding errors do not change it


class Pace(NamedTuple):
    """The rounds of a run that ends at a virtual time."""

    rounds: int  # the largest number
    evaluate_every: int


def choose_paces(specs: Sequence[ExperimentSpec]) -> list[Pace]:
    """Return with which rounds and `evaluate_every` runs are evaluated about EVALUATIONS times in their time.

    Experiments with similar numbers of steps have the same pace, which is one condition for running side by side.

    Args:
        specs: The experiments: one method in several cases.

    Raises:
        ConfigError: If an experiment has no virtual time that ends, or no delays.
    """
    steps = [steps_until_the_end(spec) for spec in specs]
    if max(steps) < ALIKE * min(steps):
        steps = [float(np.mean(steps))] * len(steps)
    intervals = [max(1, round(_significant(number / EVALUATIONS))) for number in steps]
    return [Pace(MARGIN * EVALUATIONS * every, every) for every in intervals]


def steps_until_the_end(spec: ExperimentSpec) -> float:
    """Return about how many rounds, or server steps, a run takes until its virtual time is over.

    At moments that are evenly spaced in the virtual time, clients are drawn from those that are available. A
    synchronous round lasts until they have answered or the round is closed. An asynchronous method has as many arrivals
    per second as clients are at work, divided by the mean of their delays. Interruptions are left out.
    """
    timing = spec.timing
    if timing is None or timing.until is None:
        raise ConfigError("until: the pace of a run depends on when it ends; give its virtual seconds")
    length, moments = timing.seconds_per_round, (np.arange(MOMENTS) + 0.5) / MOMENTS * timing.until
    rounds = np.arange(MOMENTS) if length is None else moments // length
    drawn = _draw(
        spec.availability, timing.delays, spec.work, jnp.asarray(rounds, jnp.int32), jnp.uint32(spec.seeds[0])
    )  # fmt: skip
    available, seconds = np.asarray(drawn[0]), np.asarray(drawn[1], np.float64) / 1000
    if not seconds.any():
        raise ConfigError("delays: all clients take no time, so that no virtual time passes; give them delays")
    generator = np.random.default_rng(0)
    rates = [
        _steps_per_second(spec, generator.permutation(own[who])) for who, own in zip(available, seconds, strict=True)
    ]
    return timing.until * float(np.mean(rates))


@jax.jit
def _draw(
    availability: Availability, delays: Delays, work: Work, rounds: jax.Array, seed: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return who is available in some rounds, and how many milliseconds clients take in them, each [rounds, N]."""
    clients = jnp.arange(availability.num_clients)

    def one(round: jax.Array) -> tuple[jax.Array, jax.Array]:
        return availability.available(round, seed), delays.milliseconds(seed, clients, round, work=work)

    return jax.lax.map(one, rounds)


def _steps_per_second(spec: ExperimentSpec, seconds: npt.NDArray[np.float64]) -> float:
    """Return the pace while these clients are available, which take so long and are drawn in this order."""
    assert spec.timing is not None
    length, size = spec.timing.seconds_per_round, min(spec.cohort_size, seconds.size)
    if size == 0:  # a round without clients lasts until the availability may change
        return 0.0 if length is None or spec.algorithm.buffer is not None else 1 / length
    if spec.algorithm.buffer is not None:
        return size / max(float(seconds.mean()), 1e-3) / spec.algorithm.buffer
    return 1 / _round_seconds(spec, seconds[:size])


def _round_seconds(spec: ExperimentSpec, seconds: npt.NDArray[np.float64]) -> float:
    """Return how long a synchronous round lasts whose clients take so long; at least a millisecond."""
    assert spec.timing is not None
    needed = np.sort(seconds)[: spec.timing.answers]
    return max(min(float(needed[-1]), spec.timing.deadline or math.inf), 1e-3)


def _significant(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
