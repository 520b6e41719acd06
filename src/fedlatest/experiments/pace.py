"""How many server steps fit into a virtual time, estimated from delays and availability without training.

The arena evaluates every method about equally often in the same virtual time. Because `evaluate_every` counts rounds,
or server steps of asynchronous methods, it needs to know about how long one lasts.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

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
    moments = (np.arange(MOMENTS) + 0.5) / MOMENTS * timing.until
    generator = np.random.default_rng(0)
    rates = [_steps_per_second(spec, number, float(moment), generator) for number, moment in enumerate(moments)]
    return timing.until * float(np.mean(rates))


def _steps_per_second(spec: ExperimentSpec, number: int, moment: float, generator: np.random.Generator) -> float:
    timing, num_clients = spec.timing, spec.federation.num_clients
    assert timing is not None
    length = timing.seconds_per_round
    round = number if length is None else int(moment // length)
    available = np.flatnonzero(np.asarray(spec.availability.available(jnp.int32(round), jnp.uint32(spec.seeds[0]))))
    size = min(spec.cohort_size, available.size)
    if size == 0:  # a round without clients lasts until the availability may change
        return 0.0 if length is None or spec.algorithm.buffer is not None else 1 / length
    drawn = timing.delays.milliseconds(0, jnp.arange(num_clients), number, work=spec.work)
    seconds = np.asarray(drawn, np.float64)[available] / 1000
    if not seconds.any():
        raise ConfigError("delays: all clients take no time, so that no virtual time passes; give them delays")
    if spec.algorithm.buffer is not None:
        return size / float(seconds.mean()) / spec.algorithm.buffer
    return 1 / _round_seconds(spec, generator.permutation(seconds)[:size])


def _round_seconds(spec: ExperimentSpec, seconds: npt.NDArray[np.float64]) -> float:
    """Return how long a synchronous round lasts whose clients take so long; at least a millisecond."""
    assert spec.timing is not None
    needed = np.sort(seconds)[: spec.timing.answers]
    return max(min(float(needed[-1]), spec.timing.deadline or math.inf), 1e-3)


def _significant(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
