"""Lemma 1, and the bounds of Theorems 3 and 4 in their named parts."""

import math
from typing import NamedTuple

from fedlatest.errors import ConfigError

PARTS = ("staleness", "variance", "distance")


class Problem(NamedTuple):
    """The constants of Assumptions 1 to 3, and how far the start is from the optimum."""

    smoothness: float
    """L: gradients of the f_i change by at most L per unit of distance."""
    gradient: float
    """G: E ||stochastic gradient||^2 <= G^2."""
    noise: float
    """sigma: E ||stochastic gradient - gradient||^2 <= sigma^2."""
    distance: float
    """B = f(x^0) - f(x*)."""


class Bound(NamedTuple):
    """A bound on the mean of E ||grad f||^2 over the iterates, in the three parts of Theorem 3."""

    staleness: float
    variance: float
    distance: float

    @property
    def total(self) -> float:
        """The bound."""
        return self.staleness + self.variance + self.distance

    @property
    def dominant(self) -> str:
        """The largest part's name."""
        return max(PARTS, key=lambda part: float(getattr(self, part)))


def staleness_bound(*, num_clients: int, cohort_size: int, smallest_e: int) -> int:
    """Lemma 1's I = ceil(N / K) E - 1: with the oldest first, nobody's latest update is older than that.

    After it took part a client is here in at least ceil(N / K) of the next ceil(N / K) E rounds. Each time it is passed
    over, K others go that have waited longer, and each of them only once; there are not that many.

    >>> staleness_bound(num_clients=1000, cohort_size=100, smallest_e=101)
    1009
    """
    check_clients(num_clients, cohort_size)
    check_e(smallest_e)
    return -(-num_clients // cohort_size) * smallest_e - 1


def theorem3(problem: Problem, *, num_clients: int, staleness: int, learning_rate: float, rounds: int) -> Bound:
    r"""Theorem 3: FedLaAvg with one local step; `staleness` is I.

        staleness  2 g I L (G^2 + s^2) / sqrt N  +  2 g^2 I^2 L^2 G^2 / (1 - 2 g L)  +  4 g^2 I^2 L^2 G^2
        variance   4 g s^2 L / N
        distance   4 B / (g T)

    with g = gamma and s = sigma. The text allows gamma <= 1/(2L), where the second term is infinite: it must be below.
    The proof also takes the stored 0 of a client that was never seen for one of its gradients; `cold_start` is what the
    rounds until everybody has been seen can add.

    >>> bound = theorem3(Problem(1, 2, 1, 3), num_clients=4, staleness=2, learning_rate=0.25, rounds=6)
    >>> bound                                     # 2.5 + 4 + 4;  4/16;  12/1.5
    Bound(staleness=10.5, variance=0.25, distance=8.0)
    """
    smoothness, gradient, noise, distance = _checked(problem, learning_rate, num_clients, staleness, rounds)
    drift = learning_rate * staleness * smoothness  # how far, in gradients of size 1, a stored gradient may be off
    return Bound(
        staleness=2 * drift * (gradient**2 + noise**2) / math.sqrt(num_clients)
        + 2 * (drift * gradient) ** 2 / (1 - 2 * learning_rate * smoothness)
        + 4 * (drift * gradient) ** 2,
        variance=4 * learning_rate * noise**2 * smoothness / num_clients,
        distance=4 * distance / (learning_rate * rounds),
    )


def theorem4(
    problem: Problem,
    *,
    num_clients: int,
    staleness: int,
    learning_rate: float,
    rounds: int,
    num_local_steps: int = 1,
) -> Bound:
    r"""What the proof of Theorem 4 shows for C local steps, before it goes over to O(.):

        staleness  2 g I C L (G^2 + s^2) / sqrt N  +  (2 I^2 / (1 - 2 g L) + 2 J^2 + 2 (I + 1)^2) g^2 C^2 L^2 G^2
        variance   4 g s^2 L / N
        distance   4 B / (g R C)

    The text has J = I. It compares a client's gradient at its own local model with the global model of that moment as
    if the two were one; local steps part them, by up to 2 (C - 1) steps. So J = max(I, 2 (C - 1) / C), which makes a
    difference only when I is 0 or 1.

    >>> theorem4(Problem(1, 2, 1, 3), num_clients=4, staleness=2, learning_rate=0.25, rounds=6)
    Bound(staleness=13.0, variance=0.25, distance=8.0)
    """
    smoothness, gradient, noise, distance = _checked(problem, learning_rate, num_clients, staleness, rounds)
    if num_local_steps < 1:
        raise ConfigError(f"num_local_steps={num_local_steps}: must be at least 1")
    step = learning_rate * num_local_steps * smoothness
    apart = max(staleness, 2 * (num_local_steps - 1) / num_local_steps)
    ages = 2 * staleness**2 / (1 - 2 * learning_rate * smoothness) + 2 * apart**2 + 2 * (staleness + 1) ** 2
    return Bound(
        staleness=2 * staleness * step * (gradient**2 + noise**2) / math.sqrt(num_clients)
        + ages * (step * gradient) ** 2,
        variance=4 * learning_rate * noise**2 * smoothness / num_clients,
        distance=4 * distance / (learning_rate * rounds * num_local_steps),
    )


def cold_start(problem: Problem, *, staleness: int, learning_rate: float, rounds: int) -> float:
    """What Theorem 3 leaves out: at most (5 + 2 gamma L) I G^2 / T for the rounds until everybody has been seen.

    In each of those at most I rounds the squared gradient is at most G^2, and f grows by at most
    gamma G^2 + L gamma^2 G^2 / 2, which enters the distance from which the proof's sum begins. It falls as 1 / T,
    faster than the rest.
    """
    per_round = 5 + 2 * learning_rate * problem.smoothness
    return per_round * staleness * problem.gradient**2 / rounds


def check_clients(num_clients: int, cohort_size: int) -> None:
    """Refuse a cohort that is none."""
    if num_clients < 1:
        raise ConfigError(f"num_clients={num_clients}: must be at least 1")
    if not 1 <= cohort_size <= num_clients:
        raise ConfigError(f"cohort_size={cohort_size}: choose 1 .. {num_clients} (the number of clients)")


def check_e(smallest_e: int | None) -> None:
    """Refuse an E with which Assumption 4 cannot hold."""
    if smallest_e is None:
        raise ConfigError(
            "E is unknown: Assumption 4 (everybody is here at least once in any E successive rounds) holds with no E"
        )
    if smallest_e < 1:
        raise ConfigError(f"E={smallest_e}: Assumption 4 is about periods of at least one round")


def check_problem(problem: Problem) -> None:
    """Refuse constants that are none."""
    for name, value in problem._asdict().items():
        if not (math.isfinite(value) and value >= 0) or (name == "smoothness" and value == 0):
            least = "above 0" if name == "smoothness" else "0 or larger"
            raise ConfigError(f"{name}={value}: must be a finite number, {least}")


def _checked(problem: Problem, learning_rate: float, num_clients: int, staleness: int, rounds: int) -> Problem:
    check_problem(problem)
    if num_clients < 1 or rounds < 1 or staleness < 0:
        raise ConfigError(
            f"num_clients={num_clients}, rounds={rounds}, staleness={staleness}: at least 1, at least 1, not negative"
        )
    limit = 1 / (2 * problem.smoothness)
    if not 0 < learning_rate < limit:
        raise ConfigError(
            f"learning_rate={learning_rate:g}: the bound is for steps above 0 and below 1/(2L) = {limit:g} "
            f"(Assumption 1 with L = {problem.smoothness:g}); larger ones may climb"
        )
    return problem
