"""Lemma 1, and the bounds of Theorems 3 and 4 in their named parts."""

import math
from typing import NamedTuple

from fedlatest.errors import ConfigError

LARGEST = 1e100  # of a constant: its square, times any number of rounds, is still a finite number
PARTS = ("staleness", "variance", "distance")
"""The names of the parts of a `Bound`."""


class Problem(NamedTuple):
    """The constants of Assumptions 1 to 3, and the initial distance to the optimum."""

    smoothness: float
    """L: the gradients of every f_i are L-Lipschitz."""
    gradient: float
    """G: E ||stochastic gradient||^2 <= G^2, so that sigma <= G."""
    noise: float
    """sigma: E ||stochastic gradient - gradient||^2 <= sigma^2."""
    distance: float
    """B = f(x^0) - f(x*)."""


class Bound(NamedTuple):
    """A bound on the mean of E ||grad f||^2 over the iterates, in the three parts of Theorem 3.

    With several local steps the iterates are virtual; see `theorem4`.
    """

    staleness: float
    variance: float
    distance: float

    @property
    def total(self) -> float:
        """The sum of the three parts."""
        return self.staleness + self.variance + self.distance

    @property
    def dominant(self) -> str:
        """The name of the largest part."""
        return max(PARTS, key=lambda part: float(getattr(self, part)))


def staleness_bound(*, num_clients: int, cohort_size: int, smallest_e: int) -> int:
    """Return I = ceil(N / K) E - 1 of Lemma 1, the largest staleness if the stalest available clients are selected.

    Proof: after it took part, a client is available in at least ceil(N / K) of the next ceil(N / K) E rounds. Each
    time it is not selected, K clients with a larger staleness are, and each of these only once. There are fewer than
    ceil(N / K) K such clients, so the client is selected at least once.

    >>> staleness_bound(num_clients=1000, cohort_size=100, smallest_e=101)
    1009

    Args:
        num_clients: N.
        cohort_size: K, the number of clients selected per round.
        smallest_e: E of Assumption 4: every client is available at least once in any E successive rounds.

    Raises:
        ConfigError: If a number is out of range.
    """
    check_clients(num_clients, cohort_size)
    check_e(smallest_e)
    return -(-num_clients // cohort_size) * smallest_e - 1


def theorem3(problem: Problem, *, num_clients: int, staleness: int, learning_rate: float, rounds: int) -> Bound:
    r"""Return the bound of Theorem 3, for FedLaAvg with one local step.

        staleness  2 g I L (G^2 + s^2) / sqrt N  +  2 g^2 I^2 L^2 G^2 / (1 - 2 g L)  +  4 g^2 I^2 L^2 G^2
        variance   4 g s^2 L / N
        distance   4 B / (g T)

    with g = gamma and s = sigma. The paper allows gamma <= 1/(2L), but for gamma = 1/(2L) the second term is infinite,
    so gamma must be smaller. The proof treats the remembered 0 of a client that has never been in a cohort as one of
    its gradients; `cold_start` bounds what the rounds before all clients have taken part can add.

    >>> bound = theorem3(Problem(1, 2, 1, 3), num_clients=4, staleness=2, learning_rate=0.25, rounds=6)
    >>> bound                                     # 2.5 + 4 + 4;  4/16;  12/1.5
    Bound(staleness=10.5, variance=0.25, distance=8.0)

    Args:
        problem: L, G, sigma and B.
        num_clients: N.
        staleness: I, the largest staleness.
        learning_rate: gamma, above 0 and below 1/(2L).
        rounds: T.

    Raises:
        ConfigError: If a number is out of range.
    """
    smoothness, gradient, noise, distance = _checked(problem, learning_rate, num_clients, staleness, rounds)
    drift = learning_rate * staleness * smoothness  # error of a remembered gradient, relative to the largest gradient
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
    r"""Return the bound in the proof of Theorem 4, for C local steps, before constants are absorbed in O(.).

        staleness  2 g I C L (G^2 + s^2) / sqrt N  +  (2 I^2 / (1 - 2 g L) + 2 J^2 + 2 (I + 1)^2) g^2 C^2 L^2 G^2
        variance   4 g s^2 L / N
        distance   4 B / (g R C)

    with g = gamma and s = sigma. With C > 1 the theorem bounds the gradient at virtual iterates: the models that the
    server would have if it took every local step of the clients into account at once. The server holds them only at the
    end of a round. With C = 1 the virtual iterates are the models, and `theorem3` has the smaller constants.

    The paper has J = I: it compares a client's gradient at its local model with the
    global model of the same moment as if these were equal. Local steps move them apart by up to 2 (C - 1) steps, so
    J = max(I, 2 (C - 1) / C) here, which differs from I only if I is 0 or 1.

    >>> theorem4(Problem(1, 2, 1, 3), num_clients=4, staleness=2, learning_rate=0.25, rounds=6)
    Bound(staleness=13.0, variance=0.25, distance=8.0)

    Args:
        problem: L, G, sigma and B.
        num_clients: N.
        staleness: I, the largest staleness.
        learning_rate: gamma, above 0 and below 1/(2L).
        rounds: R.
        num_local_steps: C.

    Raises:
        ConfigError: If a number is out of range.
    """
    smoothness, gradient, noise, distance = _checked(problem, learning_rate, num_clients, staleness, rounds)
    if num_local_steps < 1:
        raise ConfigError(f"num_local_steps={num_local_steps}: must be at least 1")
    step = learning_rate * num_local_steps * smoothness
    local_drift = max(staleness, 2 * (num_local_steps - 1) / num_local_steps)  # J
    factor = 2 * staleness**2 / (1 - 2 * learning_rate * smoothness) + 2 * local_drift**2 + 2 * (staleness + 1) ** 2
    return Bound(
        staleness=2 * staleness * step * (gradient**2 + noise**2) / math.sqrt(num_clients)
        + factor * (step * gradient) ** 2,
        variance=4 * learning_rate * noise**2 * smoothness / num_clients,
        distance=4 * distance / (learning_rate * rounds * num_local_steps),
    )


def bound_for(
    problem: Problem, *, num_clients: int, staleness: int, learning_rate: float, rounds: int, num_local_steps: int
) -> Bound:
    """Return the bound of Theorem 3 for one local step, and that of Theorem 4 for several; the arguments are theirs.

    >>> bound_for(Problem(1, 2, 1, 3), num_clients=1, staleness=0, learning_rate=0.25, rounds=6, num_local_steps=1)
    Bound(staleness=0.0, variance=1.0, distance=8.0)
    """
    numbers = {"num_clients": num_clients, "staleness": staleness, "rounds": rounds}
    if num_local_steps == 1:
        return theorem3(problem, learning_rate=learning_rate, **numbers)
    return theorem4(problem, learning_rate=learning_rate, num_local_steps=num_local_steps, **numbers)


def cold_start(
    problem: Problem, *, staleness: int, learning_rate: float, rounds: int, num_local_steps: int = 1
) -> float:
    """Return (5 + 2 gamma C L) I G^2 / R, which bounds what Theorems 3 and 4 leave out: the first at most I rounds.

    These are the rounds before every client has taken part. In each of them the squared gradient is at most G^2, and f
    grows by at most gamma C G^2 + L (gamma C G)^2 / 2, which adds to the distance B. The term falls as 1 / R, faster
    than the rest of the bound.

    Args:
        problem: L, G, sigma and B.
        staleness: I, the largest staleness.
        learning_rate: gamma.
        rounds: R, or T with one local step.
        num_local_steps: C.
    """
    per_round = 5 + 2 * learning_rate * num_local_steps * problem.smoothness
    return per_round * staleness * problem.gradient**2 / rounds


def check_clients(num_clients: int, cohort_size: int) -> None:
    """Raise ConfigError unless 1 <= cohort_size <= num_clients."""
    if num_clients < 1:
        raise ConfigError(f"num_clients={num_clients}: must be at least 1")
    if not 1 <= cohort_size <= num_clients:
        raise ConfigError(f"cohort_size={cohort_size}: choose 1 .. {num_clients} (the number of clients)")


def check_e(smallest_e: int | None) -> None:
    """Raise ConfigError unless E is known and at least 1."""
    if smallest_e is None:
        raise ConfigError(
            "E is unknown: Assumption 4 (every client is available at least once in any E successive rounds) "
            "holds for no E"
        )
    if smallest_e < 1:
        raise ConfigError(f"E={smallest_e}: Assumption 4 needs an E of at least 1")


def check_problem(problem: Problem) -> None:
    """Raise ConfigError unless all constants are in range, the smoothness is above 0, and the noise at most G."""
    for name, value in problem._asdict().items():
        least = 1 / LARGEST if name == "smoothness" else 0.0
        if not least <= value <= LARGEST:
            raise ConfigError(f"{name}={value}: must be a number from {least:g} to {LARGEST:g}")
    if problem.noise > problem.gradient * (1 + 1e-6):  # estimates of equal numbers may differ by rounding
        raise ConfigError(
            f"noise={problem.noise:g}: is above gradient={problem.gradient:g}, but E ||stochastic gradient||^2 <= G^2 "
            "(Assumption 3) implies sigma <= G; give a larger gradient or a smaller noise"
        )


def _checked(problem: Problem, learning_rate: float, num_clients: int, staleness: int, rounds: int) -> Problem:
    """Return the problem; raise ConfigError if one of the numbers is out of range."""
    check_problem(problem)
    if num_clients < 1 or rounds < 1 or staleness < 0:
        raise ConfigError(
            f"num_clients={num_clients}, rounds={rounds}, staleness={staleness}: "
            "must be at least 1, at least 1 and at least 0"
        )
    limit = 1 / (2 * problem.smoothness)
    if not 0 < learning_rate < limit:
        raise ConfigError(
            f"learning_rate={learning_rate:g}: the bound is for steps above 0 and below 1/(2L) = {limit:g} "
            f"(Assumption 1 with L = {problem.smoothness:g}); a larger step may increase the objective"
        )
    return problem
