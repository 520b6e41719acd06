"""Example 1 simulated with the same algorithms and round function as every run: two clients, one parameter."""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from fedlatest.algorithms import ALGORITHMS
from fedlatest.availability import alternating
from fedlatest.errors import ConfigError
from fedlatest.simulation.iterates import equal_clients, observe_params, observe_rounds
from fedlatest.simulation.program import Program, Trial, initial_state
from fedlatest.theory import Example1

MAX_ROUNDS = 10**6
MAX_PERIOD = 4**9 // 2  # two periods within the largest power of 4 below MAX_ROUNDS, and six within MAX_ROUNDS
OBSERVED_PERIODS = 3  # before the client that is available less often is excluded


def simulate_example1(
    example: Example1, algorithm: str, *, learning_rate: float, rounds: int, x0: float = 0.0, **numbers: float
) -> npt.NDArray[np.float64]:
    """Simulate Example 1 in float64 with exact gradients (each client holds one sample, its mean e_i).

    Args:
        example: the two clients.
        algorithm: a name in ALGORITHMS.
        learning_rate: gamma in the paper.
        rounds: T in the paper.
        x0: the initial iterate.
        **numbers: numbers of the algorithm, such as `least_presence` and `trial` of flexible participation.

    Returns:
        [rounds + 1] the iterates x^0 .. x^T.

    >>> simulate_example1(Example1(t1=1, t2=1, e1=0, e2=3), "fedavg", learning_rate=0.25, rounds=3, x0=2).tolist()
    [2.0, 1.0, 2.0, 1.0]
    """
    if not 1 <= rounds <= MAX_ROUNDS:
        raise ConfigError(f"rounds={rounds}: must be in 1 .. {MAX_ROUNDS}")
    with jax.enable_x64(True):
        program = _program(algorithm)
        trial = Trial(
            jnp.uint32(0),
            alternating([True, False], t1=example.t1, t2=example.t2),
            jnp.float64(learning_rate),
            {name: jnp.float64(number) for name, number in {**program.algorithm.numbers, **numbers}.items()},
        )
        state = initial_state(program, jnp.float64(x0), num_clients=2)
        data = equal_clients(np.array([example.e1, example.e2], float), 2)
        _, iterates, _ = observe_rounds(program, data, trial, state, rounds, observe_params)
    return np.asarray(iterates)


class Ending(NamedTuple):
    """The iterates of an algorithm, and the limit of its period-end iterates according to a formula."""

    title: str
    algorithm: str
    iterates: npt.NDArray[np.float64]  # [rounds + 1]
    predicted: float

    @property
    def simulated(self) -> float:
        """The last iterate."""
        return float(self.iterates[-1])


def explain_example1(example: Example1, *, learning_rate: float, periods: int | None = None) -> list[Ending]:
    """Simulate FedAvg, flexible participation (with and without excluding a client) and FedLaAvg from x^0 = 0.

    Args:
        example: the two clients.
        learning_rate: gamma in the paper, below 1/2.
        periods: number of periods of t1 + t2 rounds; by default enough for FedLaAvg to converge, and for the influence
            of x^0 on FedAvg to fall below 1e-13.

    Returns:
        One Ending per algorithm. The variant that excludes a client is left out if t1 = t2.

    Raises:
        ConfigError: if a period or the step is too long.
    """
    if example.period > MAX_PERIOD:
        raise ConfigError(
            f"t1={example.t1}, t2={example.t2}: a period of {example.period:,} rounds takes too long to simulate; "
            f"t1 + t2 may be at most {MAX_PERIOD:,}"
        )
    limit = example.fedavg_limit(learning_rate)  # raises ConfigError for steps that Theorem 1 excludes
    rounds = example.period * (periods or _enough_periods(example, learning_rate))
    simulate = partial(simulate_example1, example, learning_rate=learning_rate, rounds=rounds)
    endings = [
        Ending("FedAvg", "fedavg", simulate("fedavg"), limit),
        Ending("flexible participation", "flexible", simulate("flexible"), example.flexible_limit(learning_rate)),
    ]
    if example.t1 != example.t2:  # otherwise both are available equally often
        excluded = simulate("flexible", least_presence=1.0, trial=OBSERVED_PERIODS * example.period)
        left = example.e1 if example.t1 > example.t2 else example.e2
        endings.append(Ending("... excluding the rarer client", "flexible", excluded, left))
    return [*endings, Ending("FedLaAvg", "fedlaavg", simulate("fedlaavg"), example.optimum)]


class Errors(NamedTuple):
    """Squared errors of FedLaAvg with gamma = 1 / (2 sqrt T), for several T."""

    rounds: npt.NDArray[np.int64]
    mean: npt.NDArray[np.float64]  # over x^0 .. x^(T-1), the quantity that the proof of Theorem 2 bounds
    best: npt.NDArray[np.float64]  # the smallest, the quantity in the theorem
    bound: npt.NDArray[np.float64]


def theorem2_errors(example: Example1, *, num_points: int = 6) -> Errors:
    """Simulate T = T_0, 4 T_0, 16 T_0, ... from x^0 = 0; T_0 is the smallest power of 4 that covers two periods."""
    first = 4 ** math.ceil(math.log(2 * example.period, 4))
    rounds = np.array([first * 4**i for i in range(num_points) if first * 4**i <= MAX_ROUNDS])
    errors = []
    for count in rounds.tolist():
        iterates = simulate_example1(example, "fedlaavg", learning_rate=0.5 / math.sqrt(count), rounds=count)
        errors.append((iterates - example.optimum) ** 2)
    return Errors(
        rounds,
        np.array([error[:-1].mean() for error in errors]),
        np.array([error.min() for error in errors]),
        np.array([example.fedlaavg_bound(count) for count in rounds.tolist()]),
    )


def _enough_periods(example: Example1, learning_rate: float) -> int:
    """Return enough periods for (1 - 2 gamma)^T < 1e-13 and for FedLaAvg to converge, limited by MAX_ROUNDS."""
    forgotten = 30 / (2 * learning_rate * example.period)
    return max(2 * OBSERVED_PERIODS, min(math.ceil(max(2 * forgotten, 50)), MAX_ROUNDS // (4 * example.period)))


def _program(algorithm: str) -> Program:
    """Return the program of one local step on one sample, with every available client in the cohort."""
    return Program(
        ALGORITHMS[algorithm](), loss=_squared_distance, cohort_size=2, num_steps=1, batch_size=1, clients_at_once=2
    )


def _squared_distance(x: jax.Array, means: jax.Array, labels: jax.Array) -> jax.Array:
    del labels
    return jnp.mean((x - means) ** 2)
