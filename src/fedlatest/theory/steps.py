"""The step size of Corollary 1 and Theorem 4, the rounds that it needs, and the step that minimises the bound."""

import math
from typing import NamedTuple

from fedlatest.errors import ConfigError
from fedlatest.theory.bounds import LARGEST, Problem, bound_for, check_clients, check_e

GOLDEN = (math.sqrt(5) - 1) / 2


class StepSize(NamedTuple):
    """The step size of a theorem, and its upper limit."""

    formula: float
    """beta^(1/2) N^(1/4) / (2 L C E^(1/2) R^(1/2))."""
    limit: float
    """1 / (4 L)."""

    @property
    def allowed(self) -> bool:
        """Whether the formula's step is within the limit; if not, there are too few rounds."""
        return self.formula <= self.limit

    @property
    def learning_rate(self) -> float:
        """The smaller of the formula's step and the limit."""
        return min(self.formula, self.limit)


def step_size(
    *,
    num_clients: int,
    cohort_size: int,
    smallest_e: int,
    rounds: int,
    smoothness: float,
    num_local_steps: int = 1,
) -> StepSize:
    """Return the step size of Theorem 4, which with one local step is that of Corollary 1.

        gamma = beta^(1/2) N^(1/4) / (2 L C E^(1/2) R^(1/2))        with beta = K / N

    >>> step = step_size(num_clients=16, cohort_size=4, smallest_e=4, rounds=100, smoothness=1)
    >>> step.formula, step.allowed                # sqrt(1/4) * 2 / (2 * 2 * 10)
    (0.025, True)

    Args:
        num_clients: N.
        cohort_size: K.
        smallest_e: E of Assumption 4.
        rounds: R, or T with one local step.
        smoothness: L.
        num_local_steps: C.

    Raises:
        ConfigError: If a number is out of range.
    """
    check_clients(num_clients, cohort_size)
    check_e(smallest_e)
    if rounds < 1 or num_local_steps < 1:
        raise ConfigError(f"rounds={rounds}, num_local_steps={num_local_steps}: must be at least 1")
    if not 1 / LARGEST <= smoothness <= LARGEST:
        raise ConfigError(f"smoothness={smoothness}: L must be a finite number above 0, at most {LARGEST:g}")
    share = cohort_size / num_clients
    formula = math.sqrt(share * math.sqrt(num_clients) / (smallest_e * rounds)) / (2 * smoothness * num_local_steps)
    return StepSize(formula, 1 / (4 * smoothness))


def needed_rounds(*, num_clients: int, cohort_size: int, smallest_e: int) -> int:
    """Return E N^(3/2) / beta, the rounds from which Corollary 1 and Theorem 4 promise the speed-up N^(1/4).

    With fewer rounds the bound still holds, but its term E G^2 N^(1/2) / (beta T), which grows with N, is not
    negligible.

    >>> needed_rounds(num_clients=16, cohort_size=4, smallest_e=4)
    1024

    Args:
        num_clients: N.
        cohort_size: K; beta = K / N.
        smallest_e: E of Assumption 4.

    Raises:
        ConfigError: If a number is out of range.
    """
    check_clients(num_clients, cohort_size)
    check_e(smallest_e)
    return math.ceil(smallest_e * math.sqrt(num_clients) * num_clients**2 / cohort_size)


def best_step(problem: Problem, *, num_clients: int, staleness: int, rounds: int, num_local_steps: int = 1) -> float:
    """Return the step below 1 / (4 L) that minimises the bound, by golden-section search over its logarithm.

    The bound is Theorem 3's for one local step and Theorem 4's for several. As a function of the step it is the sum of
    increasing terms and one decreasing power, so it has one minimum.

    Args:
        problem: L, G, sigma and B.
        num_clients: N.
        staleness: I.
        rounds: R.
        num_local_steps: C.

    Raises:
        ConfigError: If a number is out of range, or B is 0: the bound then has no minimum at a step above 0.
    """
    if problem.distance == 0:
        raise ConfigError("distance=0: the smaller the step, the smaller the bound; there is no best step")

    def bound(log_step: float) -> float:
        return bound_for(
            problem,
            num_clients=num_clients,
            staleness=staleness,
            learning_rate=math.exp(log_step),
            rounds=rounds,
            num_local_steps=num_local_steps,
        ).total

    high = math.log(1 / (4 * problem.smoothness))
    low = high - 60
    while high - low > 1e-9:
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        if bound(left) <= bound(right):
            high = right
        else:
            low = left
    return math.exp((low + high) / 2)
