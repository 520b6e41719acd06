"""The rate experiment: FedLaAvg on problems with known constants, compared with the bound of Theorem 3.

Clients form two groups that are available in alternating blocks. The loss of client i is a sum over coordinates of

    log cosh(x_j - c_ij)      gradients tanh(.) are bounded, so L = 1, and G and sigma are known by construction
    (x_j - c_ij)^2 / 2        gradients are not bounded, so G is measured along the trajectory

plus sigma / sqrt(d) times <s, x> for a random vector s of signs, whose mean over a client's samples is exactly 0. The
centres c_ij are +-`heterogeneity` for the two groups, plus evenly spaced offsets of up to a quarter of it per client,
so that the objective depends little on N.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from fedlatest.algorithms import fedlaavg
from fedlatest.availability import diurnal
from fedlatest.errors import ConfigError
from fedlatest.simulation.device_data import DeviceData
from fedlatest.simulation.iterates import equal_clients, observe_rounds
from fedlatest.simulation.program import Program, State, Trial, initial_state
from fedlatest.theory import Bound, Problem, needed_rounds, staleness_bound, step_size, theorem3

Kind = Literal["logcosh", "quadratic"]
DIMENSIONS = 4
SAMPLES = 8  # per client: sign vectors, each with its opposite
SMOOTHNESS = 1.0
START = 3.0  # every coordinate of x^0
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RateSetting:
    """One setting of the experiment, with K = N / 4.

    Attributes:
        num_clients: N, a multiple of 4.
        rounds: T.
        kind: the loss, see the module's docstring.
        period: rounds for which each half of the clients is available in turn.
        heterogeneity: distance of the two groups' centres from 0.
        noise: sigma.
    """

    num_clients: int
    rounds: int
    kind: Kind = "logcosh"
    period: int = 2
    heterogeneity: float = 1.0
    noise: float = 1.0

    def __post_init__(self) -> None:
        if self.num_clients < 4 or self.num_clients % 4:
            raise ConfigError(f"num_clients={self.num_clients}: must be a multiple of 4")
        if self.rounds < 1 or self.period < 1:
            raise ConfigError(f"rounds={self.rounds}, period={self.period}: must be at least 1")
        if not (0 <= self.noise < math.inf and 0 <= self.heterogeneity < math.inf):
            raise ConfigError(f"noise={self.noise}, heterogeneity={self.heterogeneity}: must be 0 or larger")

    @property
    def cohort_size(self) -> int:
        """K: a quarter of all clients, half of the available ones."""
        return self.num_clients // 4

    @property
    def smallest_e(self) -> int:
        """E of Assumption 4: the length of a block plus one."""
        return self.period + 1

    @property
    def staleness(self) -> int:
        """I, the bound on the staleness in Lemma 1."""
        return staleness_bound(num_clients=self.num_clients, cohort_size=self.cohort_size, smallest_e=self.smallest_e)

    @property
    def learning_rate(self) -> float:
        """gamma of Corollary 1."""
        return step_size(
            num_clients=self.num_clients, cohort_size=self.cohort_size, smallest_e=self.smallest_e,
            rounds=self.rounds, smoothness=SMOOTHNESS,
        ).learning_rate  # fmt: skip

    @property
    def enough_rounds(self) -> bool:
        """Whether Corollary 1's condition on T holds."""
        return self.rounds >= needed_rounds(
            num_clients=self.num_clients, cohort_size=self.cohort_size, smallest_e=self.smallest_e
        )


class RatePoint(NamedTuple):
    """The measurements in one setting, and the bound of Theorem 3 for it."""

    setting: RateSetting
    mean_squared: Floats  # [seeds] mean over x^0 .. x^(T-1) of ||grad f||^2
    problem: Problem
    bound: Bound
    largest_staleness: int

    @property
    def holds(self) -> bool:
        """Whether every seed is within the bound."""
        return bool((self.mean_squared <= self.bound.total).all())


class Exponents(NamedTuple):
    """log(mean squared gradient) = a + by_clients log N + by_rounds log T, fitted for each seed."""

    by_clients: Floats  # [seeds]
    by_rounds: Floats  # [seeds]


def simulate_rate(setting: RateSetting, seeds: Sequence[int] = (0,)) -> RatePoint:
    """Simulate a setting for some seeds in float64 and compute the bound of Theorem 3 for it."""
    with jax.enable_x64(True):
        program, observe_gradients = _program(setting.num_clients, setting.kind)
        samples, centres = _clients(setting)
        pattern = diurnal(np.arange(setting.num_clients) % 2 == 0, period=setting.period)
        squared, largest, staleness = [], 0.0, 0
        numbers = {name: jnp.float64(number) for name, number in program.algorithm.numbers.items()}
        for seed in seeds:
            trial = Trial(jnp.uint32(seed), pattern, jnp.float64(setting.learning_rate), numbers)
            state = initial_state(program, jnp.full(DIMENSIONS, START, jnp.float64), setting.num_clients)
            _, observed, record = observe_rounds(program, samples, trial, state, setting.rounds, observe_gradients)
            squared.append(observed["global"][:-1].mean())
            largest = max(largest, float(observed["local"][:-1].max()))
            staleness = max(staleness, int(record.max_staleness.max()))
    bounded = setting.kind == "logcosh"
    gradient = math.sqrt((DIMENSIONS if bounded else largest) + setting.noise**2)
    problem = Problem(SMOOTHNESS, gradient, setting.noise, _distance(setting.kind, centres))
    bound = theorem3(
        problem,
        num_clients=setting.num_clients,
        staleness=setting.staleness,
        learning_rate=setting.learning_rate,
        rounds=setting.rounds,
    )
    return RatePoint(setting, np.array(squared), problem, bound, staleness)


def fit_exponents(points: Sequence[RatePoint]) -> Exponents:
    """Fit how the mean squared gradient depends on N and T: least squares in logarithms, for each seed."""
    design = np.array([[1, math.log(p.setting.num_clients), math.log(p.setting.rounds)] for p in points])
    if len(points) < 3 or np.linalg.matrix_rank(design) < 3:
        raise ConfigError("points: the fit needs several numbers of clients and several numbers of rounds")
    values = np.log([point.mean_squared for point in points])  # [points, seeds]
    _, by_clients, by_rounds = np.linalg.lstsq(design, values)[0]
    return Exponents(by_clients, by_rounds)


def _loss_and_slope(kind: Kind) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    if kind == "quadratic":
        return lambda z: z**2 / 2, lambda z: z
    return lambda z: jnp.logaddexp(z, -z) - math.log(2), jnp.tanh


def _program(num_clients: int, kind: Kind) -> tuple[Program, Callable[[DeviceData, State], Any]]:
    """Return the program of Algorithm 1 (one local step on one sample), and a function that is called every round."""
    per_coordinate, slope = _loss_and_slope(kind)

    def loss(x: jax.Array, features: Any, labels: jax.Array) -> jax.Array:
        del labels
        return jnp.mean(jnp.sum(per_coordinate(x - features["centre"]) + features["sign"] * x, axis=-1))

    def observe_gradients(samples: DeviceData, state: State) -> dict[str, jax.Array]:
        """Return ||grad f||^2 and the largest ||grad f_i||^2; the signs cancel within a client."""
        local = slope(state.server.params - samples.features["centre"][samples.starts])  # [N, d]
        return {"global": jnp.sum(jnp.mean(local, axis=0) ** 2), "local": jnp.max(jnp.sum(local**2, axis=1))}

    cohort_size = num_clients // 4
    program = Program(fedlaavg(), loss, cohort_size, num_steps=1, batch_size=1, clients_at_once=cohort_size)
    return program, observe_gradients


def _clients(setting: RateSetting) -> tuple[DeviceData, Floats]:
    """Return the samples of all clients and their centres [N, d]; they do not depend on the seed."""
    rng = np.random.default_rng(setting.num_clients)
    kinds = np.where(np.arange(setting.num_clients) % 2 == 0, 1.0, -1.0)[:, None]
    steps = np.linspace(-0.25, 0.25, setting.num_clients // 2)[:, None].repeat(DIMENSIONS, axis=1)
    offsets = np.zeros((setting.num_clients, DIMENSIONS))
    offsets[::2], offsets[1::2] = rng.permuted(steps, axis=0), rng.permuted(steps, axis=0)
    centres = setting.heterogeneity * (kinds + offsets)
    signs = rng.choice([-1.0, 1.0], (setting.num_clients, SAMPLES // 2, DIMENSIONS))
    signs = np.concatenate([signs, -signs], axis=1) * setting.noise / math.sqrt(DIMENSIONS)
    features = {"centre": np.repeat(centres, SAMPLES, axis=0), "sign": signs.reshape(-1, DIMENSIONS)}
    return equal_clients(features, setting.num_clients), centres


def _distance(kind: Kind, centres: Floats) -> float:
    """Return B = f(x^0) - f(x*); every coordinate is a separate convex problem, solved by bisection of its slope."""
    slope = np.tanh if kind == "logcosh" else np.positive
    low, high = centres.min(axis=0), centres.max(axis=0)
    for _ in range(100):
        middle = (low + high) / 2
        climbs = slope(middle - centres).mean(axis=0) > 0
        low, high = np.where(climbs, low, middle), np.where(climbs, middle, high)

    def value(x: Floats) -> float:
        z = x - centres
        return float((np.logaddexp(z, -z) if kind == "logcosh" else z**2 / 2).mean(axis=0).sum())

    return value(np.full(DIMENSIONS, START)) - value((low + high) / 2)
