"""Example 1 played: the same algorithms and the same rounds as everywhere, on two clients and one parameter."""

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
from fedlatest.simulation.rounds import Program, Trial, initial_state
from fedlatest.theory import Example1

MOST_ROUNDS = 10**6
WATCHED_PERIODS = 3  # before the seldomer client is kicked out


def play_example1(
    example: Example1, algorithm: str, *, learning_rate: float, rounds: int, x0: float = 0.0, **numbers: float
) -> npt.NDArray[np.float64]:
    """[rounds + 1] the iterates x^0 .. x^T, in float64; gradients are exact, each client holds its mean alone.

    `numbers` are the algorithm's own (`least_presence` and `trial` of flexible participation).

    >>> play_example1(Example1(t1=1, t2=1, e1=0, e2=3), "fedavg", learning_rate=0.25, rounds=3, x0=2).tolist()
    [2.0, 1.0, 2.0, 1.0]
    """
    if not 1 <= rounds <= MOST_ROUNDS:
        raise ConfigError(f"rounds={rounds}: must be in 1 .. {MOST_ROUNDS}")
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
    """Where an algorithm's iterates end up at the end of a period, and where a formula says they do."""

    title: str
    algorithm: str
    iterates: npt.NDArray[np.float64]  # [rounds + 1]
    predicted: float

    @property
    def simulated(self) -> float:
        """The last iterate."""
        return float(self.iterates[-1])


def explain_example1(example: Example1, *, learning_rate: float, periods: int | None = None) -> list[Ending]:
    """FedAvg, flexible participation with and without kicking out, and FedLaAvg from x^0 = 0; and what formulas say.

    Without `periods` there are as many as FedAvg needs to forget its start (to 1e-13) and FedLaAvg to settle.
    """
    limit = example.fedavg_limit(learning_rate)  # complains about a step beyond Theorem 1
    rounds = example.period * (periods or _enough_periods(example, learning_rate))
    play = partial(play_example1, example, learning_rate=learning_rate, rounds=rounds)
    endings = [
        Ending("FedAvg", "fedavg", play("fedavg"), limit),
        Ending("flexible participation", "flexible", play("flexible"), example.flexible_limit(learning_rate)),
    ]
    if example.t1 != example.t2:  # else nobody is seldomer than the other
        kicked = play("flexible", least_presence=1.0, trial=WATCHED_PERIODS * example.period)
        left = example.e1 if example.t1 > example.t2 else example.e2
        endings.append(Ending("... kicking out the seldomer", "flexible", kicked, left))
    return [*endings, Ending("FedLaAvg", "fedlaavg", play("fedlaavg"), example.optimum)]


class Errors(NamedTuple):
    """FedLaAvg's squared errors with gamma = 1 / (2 sqrt T), for several T."""

    rounds: npt.NDArray[np.int64]
    mean: npt.NDArray[np.float64]  # over the iterates x^0 .. x^(T-1), which the proof of Theorem 2 bounds
    best: npt.NDArray[np.float64]  # the smallest, which the theorem speaks of
    bound: npt.NDArray[np.float64]


def theorem2_errors(example: Example1, *, doublings: int = 6) -> Errors:
    """Play T = T_0, 4 T_0, 16 T_0, ... from x^0 = 0; T_0 is the power of 4 that holds two periods."""
    first = 4 ** math.ceil(math.log(2 * example.period, 4))
    rounds = np.array([first * 4**i for i in range(doublings) if first * 4**i <= MOST_ROUNDS])
    errors = []
    for count in rounds.tolist():
        iterates = play_example1(example, "fedlaavg", learning_rate=0.5 / math.sqrt(count), rounds=count)
        errors.append((iterates - example.optimum) ** 2)
    return Errors(
        rounds,
        np.array([error[:-1].mean() for error in errors]),
        np.array([error.min() for error in errors]),
        np.array([example.fedlaavg_bound(count) for count in rounds.tolist()]),
    )


def _enough_periods(example: Example1, learning_rate: float) -> int:
    """(1 - 2 gamma)^T < 1e-13 or, for long blocks, a number that lets FedLaAvg settle; within reason."""
    forgotten = 30 / (2 * learning_rate * example.period)
    return max(2 * WATCHED_PERIODS, min(math.ceil(max(2 * forgotten, 50)), MOST_ROUNDS // (4 * example.period)))


def _program(algorithm: str) -> Program:
    """One local step on one sample, both clients welcome in every round."""
    return Program(
        ALGORITHMS[algorithm](), loss=_squared_distance, cohort_size=2, num_steps=1, batch_size=1, clients_at_once=2
    )


def _squared_distance(x: jax.Array, means: jax.Array, labels: jax.Array) -> jax.Array:
    del labels
    return jnp.mean((x - means) ** 2)
