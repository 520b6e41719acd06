"""Example 1: two clients that are available in turn, and the limits of FedAvg and FedLaAvg (Theorems 1 and 2)."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedlatest.errors import ConfigError

LARGEST_MEAN = 1e9


@dataclass(frozen=True)
class Example1:
    """Example 1 of the paper: f_i(x) = (x - e_i)^2 with exact gradients.

    Client 1 is available for t1 rounds, then client 2 for t2 rounds, and so on.

    Args:
        t1: Rounds in a block in which client 1 is available.
        t2: Rounds in a block in which client 2 is available.
        e1: Client 1's mean, the minimum of f_1.
        e2: Client 2's mean, the minimum of f_2.

    Raises:
        ConfigError: If a block has no round, or a mean is outside -1e9 .. 1e9.
    """

    t1: int = 30
    t2: int = 10
    e1: float = 0.0
    e2: float = 1.0

    def __post_init__(self) -> None:
        for name in ("t1", "t2"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"{name}={getattr(self, name)}: must be at least 1; otherwise client {name[1]} is never available, "
                    "which violates Assumption 4"
                )
        for name in ("e1", "e2"):
            if not abs(getattr(self, name)) <= LARGEST_MEAN:
                raise ConfigError(
                    f"{name}={getattr(self, name)}: must be a number from {-LARGEST_MEAN:g} to {LARGEST_MEAN:g}"
                )

    @property
    def period(self) -> int:
        """t1 + t2, in rounds."""
        return self.t1 + self.t2

    @property
    def optimum(self) -> float:
        """x* = (e1 + e2) / 2."""
        return (self.e1 + self.e2) / 2

    @property
    def small_step_limit(self) -> float:
        """FedAvg's limit as the step goes to 0: (t1 e1 + t2 e2) / (t1 + t2).

        >>> Example1(t1=3, t2=1, e1=0, e2=4).small_step_limit
        1.0
        """
        return (self.t1 * self.e1 + self.t2 * self.e2) / self.period

    def fedavg_limit(self, learning_rate: float) -> float:
        """Return X of Theorem 1, the limit of FedAvg's iterates at the end of each period.

        With q = 1 - 2 gamma, a round of client i maps x - e_i to q (x - e_i), so a period is

            x -> q^(t1+t2) x + q^t2 (1 - q^t1) e1 + (1 - q^t2) e2

        and X is its fixed point. It is computed as a weighted mean of e1 and e2 with expm1, which is accurate for very
        small steps too. (The paper states that FedAvg converges to the optimum if e1 = e2 or t1 = t2. With t1 = t2 this
        is true only in the limit of small steps, because client 2 is the last one in every period.)

        >>> Example1(t1=1, t2=1, e1=0, e2=3).fedavg_limit(0.25)
        2.0
        """
        decay = _log_decay(learning_rate)
        first = math.exp(self.t2 * decay) * -math.expm1(self.t1 * decay)
        second = -math.expm1(self.t2 * decay)
        return (first * self.e1 + second * self.e2) / -math.expm1(self.period * decay)

    def fedavg_turning_point(self, learning_rate: float) -> float:
        """Return the limit of FedAvg's iterates at the end of client 1's blocks, the other end of the cycle."""
        decay = _log_decay(learning_rate)
        return self.e1 + math.exp(self.t1 * decay) * (self.fedavg_limit(learning_rate) - self.e1)

    def flexible_limit(self, learning_rate: float) -> float:
        """Return the limit of flexible participation (Appendix A) at the end of each period.

        Its unavailable client counts as an update of 0, so a round moves x by half as much as with FedAvg. The limit is
        therefore FedAvg's with half the step.
        """
        return self.fedavg_limit(learning_rate / 2)

    def fedlaavg_bound(self, rounds: int, *, start: float = 0.0) -> float:
        """Return the bound of Theorem 2 on the squared error of FedLaAvg's best iterate with gamma = 1 / (2 sqrt T).

            (f(x^0) - f(x*)) / sqrt T + I^2 G^2 / (4 T)

        with I = max(t1, t2) and G = max(2 |x^0 - x*|, |e1 - e2|); the paper omits the absolute values. The proof treats
        every remembered gradient as one of an earlier iterate, but client 2's is 0 until it has been available. In
        these t1 rounds x only moves towards e1, so it stays within G / 2 of x*. The later iterates therefore start
        from `f(x^t1) - f(x*)` <= G^2 / 4, which replaces `f(x^0) - f(x*)` here. This leaves T - t1 terms to average
        over instead of T. The second term covers the difference: a quarter of it would suffice, since one of the two
        clients is always up to date.

        >>> Example1(t1=2, t2=2, e1=-1, e2=1).fedlaavg_bound(100)
        0.14

        Args:
            rounds: T.
            start: x^0.

        Raises:
            ConfigError: If client 2 is not available within the rounds.
        """
        if rounds <= self.t1:
            raise ConfigError(
                f"rounds={rounds}: Theorem 2 needs client 2, which is first available in round {self.t1 + 1}"
            )
        largest_gradient = max(2 * abs(start - self.optimum), abs(self.e1 - self.e2))
        delay = max(self.t1, self.t2)
        return largest_gradient**2 / 4 / math.sqrt(rounds) + (delay * largest_gradient) ** 2 / (4 * rounds)


def accumulated_bias(available: npt.ArrayLike, *, kept: npt.ArrayLike | None = None) -> int:
    """Return M_R: in how many of R rounds the updates of the clients have unequal weight.

    Flexible participation scales incomplete local work up to complete work. The weights in a round are therefore equal
    unless some clients are available and others are not, since no work cannot be scaled up. Its guarantee needs
    M_R / R to go to 0. (For the unavailable client of Example 1 the paper has s = 1; s = 0 is meant.)

    >>> accumulated_bias([[True, False], [False, True], [True, True]])
    2

    Args:
        available: bool[R, N].
        kept: bool[N]; clients with False were removed and do not count. All clients if None.

    Raises:
        ConfigError: If an array has the wrong type or shape, or no client is kept.
    """
    table = np.asarray(available)
    if table.dtype != np.bool_ or table.ndim != 2 or table.size == 0:
        raise ConfigError(f"available: must be a bool array [rounds, clients], not {table.dtype} {list(table.shape)}")
    if kept is not None:
        keep = np.asarray(kept)
        if keep.dtype != np.bool_ or keep.shape != (table.shape[1],) or not keep.any():
            raise ConfigError(f"kept: must be a bool array [{table.shape[1]}] with at least one client that is kept")
        table = table[:, keep]
    return int((table.any(axis=1) & ~table.all(axis=1)).sum())


def _log_decay(learning_rate: float) -> float:
    """Return log(1 - 2 gamma)."""
    if not 0 < learning_rate < 0.5:
        raise ConfigError(
            f"learning_rate={learning_rate}: Theorem 1 is for steps above 0 and below 1/2; "
            "a step of 1/2 or more reaches or overshoots the client's own optimum"
        )
    return math.log1p(-2 * learning_rate)
