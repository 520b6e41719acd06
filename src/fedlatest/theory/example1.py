"""Example 1: two clients that take turns, and where FedAvg and FedLaAvg go (Theorems 1 and 2)."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedlatest.errors import ConfigError


@dataclass(frozen=True)
class Example1:
    """Client 1 is here for t1 rounds, then client 2 for t2, and so on; f_i(x) = (x - e_i)^2, gradients are exact."""

    t1: int = 30
    t2: int = 10
    e1: float = 0.0
    e2: float = 1.0

    def __post_init__(self) -> None:
        for name in ("t1", "t2"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"{name}={getattr(self, name)}: must be at least 1; client {name[1]} would never be here, "
                    "which Assumption 4 rules out"
                )
        for name in ("e1", "e2"):
            if not math.isfinite(getattr(self, name)):
                raise ConfigError(f"{name}={getattr(self, name)}: must be a finite number")

    @property
    def period(self) -> int:
        """t1 + t2."""
        return self.t1 + self.t2

    @property
    def optimum(self) -> float:
        """x* = (e1 + e2) / 2."""
        return (self.e1 + self.e2) / 2

    @property
    def small_step_limit(self) -> float:
        """Where FedAvg's limit goes as the step goes to 0: (t1 e1 + t2 e2) / (t1 + t2).

        >>> Example1(t1=3, t2=1, e1=0, e2=4).small_step_limit
        1.0
        """
        return (self.t1 * self.e1 + self.t2 * self.e2) / self.period

    def fedavg_limit(self, learning_rate: float) -> float:
        """X of Theorem 1: what FedAvg's iterates at the end of a period converge to.

        With q = 1 - 2 gamma, a round of client i is x - e_i -> q (x - e_i), so a period is

            x -> q^(t1+t2) x + q^t2 (1 - q^t1) e1 + (1 - q^t2) e2

        and X is its fixed point. As a weighted mean of e1 and e2, and with expm1, it is exact for tiny steps too. (The
        text takes e1 = e2 or t1 = t2 as the cases in which FedAvg is right; with t1 = t2 it is so only in the limit of
        small steps, for client 2 always has the last word.)

        >>> Example1(t1=1, t2=1, e1=0, e2=3).fedavg_limit(0.25)
        2.0
        """
        decay = _log_decay(learning_rate)
        first = math.exp(self.t2 * decay) * -math.expm1(self.t1 * decay)
        second = -math.expm1(self.t2 * decay)
        return (first * self.e1 + second * self.e2) / -math.expm1(self.period * decay)

    def fedavg_turning_point(self, learning_rate: float) -> float:
        """Where FedAvg's iterates are, in the limit, when client 1 leaves: the other end of their circle."""
        decay = _log_decay(learning_rate)
        return self.e1 + math.exp(self.t1 * decay) * (self.fedavg_limit(learning_rate) - self.e1)

    def flexible_limit(self, learning_rate: float) -> float:
        """The same for flexible participation (Appendix A): its absent clients count as no update.

        So a round moves by half of what FedAvg's does, and the limit is FedAvg's with half the step.
        """
        return self.fedavg_limit(learning_rate / 2)

    def fedlaavg_bound(self, rounds: int, *, start: float = 0.0) -> float:
        """Theorem 2: with gamma = 1 / (2 sqrt T) FedLaAvg's best iterate has at most this squared error.

            (f(x^0) - f(x*)) / sqrt T + I^2 G^2 / (4 T)

        with I = max(t1, t2) and G = max(2 |x^0 - x*|, |e1 - e2|) (the text forgets the bars). The proof takes every
        stored gradient for one of an earlier iterate; until client 2 has been seen, its is 0. In those t1 rounds x only
        moves towards e1, so it stays within G / 2 of x*: the best later iterate starts from f^(x^t1) <= G^2 / 4, which
        stands in for f(x^0) - f(x*) here. That leaves T - t1 terms to average over, not T; what is lost is covered by
        the second part, of which a quarter would do, since one of the two clients is always up to date.

        >>> Example1(t1=2, t2=2, e1=-1, e2=1).fedlaavg_bound(100)
        0.14
        """
        if rounds <= self.t1:
            raise ConfigError(f"rounds={rounds}: Theorem 2 needs client 2, which is first seen in round {self.t1 + 1}")
        largest_gradient = max(2 * abs(start - self.optimum), abs(self.e1 - self.e2))
        delay = max(self.t1, self.t2)
        return largest_gradient**2 / 4 / math.sqrt(rounds) + (delay * largest_gradient) ** 2 / (4 * rounds)


def _log_decay(learning_rate: float) -> float:
    """log(1 - 2 gamma)."""
    if not 0 < learning_rate < 0.5:
        raise ConfigError(
            f"learning_rate={learning_rate}: Theorem 1 is for steps above 0 and below 1/2; "
            "from 1/2 on a single step reaches or overshoots the client's own optimum"
        )
    return math.log1p(-2 * learning_rate)


def accumulated_bias(available: npt.ArrayLike, *, kept: npt.ArrayLike | None = None) -> int:
    """M_R: in how many of R rounds the clients contribute unequally; `available` is bool[R, N].

    Flexible participation scales incomplete work up to complete work, so the contributions of a round are equal unless
    some clients are here and others are not: nothing can be scaled up to something. Its guarantee needs M_R / R to go
    to 0. `kept` (bool[N]) leaves out clients that were kicked out. (For the absent client
    of Example 1 the text has s = 1; it means s = 0.)

    >>> accumulated_bias([[True, False], [False, True], [True, True]])
    2
    """
    table = np.asarray(available)
    if table.dtype != np.bool_ or table.ndim != 2 or table.size == 0:
        raise ConfigError(f"available: give true or false for each round and client, not an array {table.shape}")
    if kept is not None:
        keep = np.asarray(kept)
        if keep.dtype != np.bool_ or keep.shape != (table.shape[1],) or not keep.any():
            raise ConfigError(f"kept: give true or false for each of the {table.shape[1]} clients, and keep somebody")
        table = table[:, keep]
    return int((table.any(axis=1) & ~table.all(axis=1)).sum())
