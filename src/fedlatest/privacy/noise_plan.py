"""`NoisePlan`: how much noise each round gets. Applying a plan needs NumPy only.

Let z_r be independent standard normal vectors, one per round, and s the standard deviation. The noise of the sum of
round r (of fresh updates, or of the differences of remembered ones) is

    w_r = s (a_0 z_r + a_1 z_{r-1} + ... + a_{p-1} z_{r-p+1}),        z_j = 0 for j < 0,

with few coefficients a_j (`coefficients`). A server therefore needs no state for the noise: it generates the z of the
last p rounds anew from a seed per round. For remembered updates a = (1, -1): the noise of their total, which is the sum
of all rounds' noise, is s z_r, that of the current round alone.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedlatest.errors import ConfigError

Normals = Callable[[int], npt.NDArray[Any]]
"""round -> its vector of independent standard normal numbers, the same one at every call."""


@dataclass(frozen=True, kw_only=True)
class NoisePlan:
    """The noise for a guarantee, made by `plan_noise`.

    Attributes:
        mechanism: "independent", "correlated" or "total"; see `Privacy`.
        epsilon: As dp-accounting reports it for this noise; infinite without noise.
        delta: Of the guarantee.
        clip_norm: Largest norm of a client's update.
        rounds: The number of rounds that the plan is for.
        min_separation: Rounds from one participation of a client to its next at the least.
        max_participations: Rounds in which a client may take part at the most.
        sensitivity: Of the whole mechanism for updates of norm 1.
        noise_multiplier: The standard deviation divided by the sensitivity for updates of norm `clip_norm`.
        coefficients: a_0, ..., a_{p-1}.
        spent: Pairs (number of rounds, epsilon spent in them), with increasing numbers; the last is for all rounds.
    """

    mechanism: Literal["independent", "correlated", "total"]
    epsilon: float
    delta: float
    clip_norm: float
    rounds: int
    min_separation: int
    max_participations: int
    sensitivity: float
    noise_multiplier: float
    coefficients: tuple[float, ...]
    spent: tuple[tuple[int, float], ...]

    @property
    def stddev(self) -> float:
        """The standard deviation s."""
        return self.noise_multiplier * self.sensitivity * self.clip_norm

    @property
    def total_coefficients(self) -> tuple[float, ...]:
        """The coefficients of the noise of the total of remembered updates: the partial sums of `coefficients`.

        Raises:
            ConfigError: If the plan is for fresh updates.
        """
        if self.mechanism != "total":
            raise ConfigError(f"mechanism={self.mechanism}: is for fresh updates, which have no total")
        return tuple(np.cumsum(self.coefficients).tolist())

    def round_noise(self, round: int, normals: Normals) -> npt.NDArray[Any]:
        """Return the noise to add to a round's sum of fresh updates, or of differences of remembered updates.

        Args:
            round: The round, from 0.
            normals: Returns the vector z_j of round j <= round; called for the last few rounds only.

        Raises:
            ConfigError: If the plan is not for this round.
        """
        return self._combine(self.coefficients, round, normals)

    def total_noise(self, round: int, normals: Normals) -> npt.NDArray[Any]:
        """Return the noise to add to the exact total of remembered updates after a round; arguments as `round_noise`.

        It is the sum of `round_noise` over all rounds up to this one.
        """
        return self._combine(self.total_coefficients, round, normals)

    def epsilon_after(self, rounds: int) -> float:
        """Return an upper bound on the epsilon spent in the first rounds: that of the next entry of `spent`.

        Raises:
            ConfigError: If the plan is for fewer rounds.
        """
        if rounds < 1:
            return 0.0
        self._check_round(rounds - 1)
        return next(epsilon for number, epsilon in self.spent if number >= rounds)

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as numbers, texts and lists, for JSON; an infinite epsilon is None."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            **values,
            "epsilon": _finite(self.epsilon),
            "coefficients": list(self.coefficients),
            "spent": [[number, _finite(epsilon)] for number, epsilon in self.spent],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "NoisePlan":
        """Return the plan of which `as_dict` returned these values.

        Raises:
            ConfigError: If a value is missing or unknown.
        """
        names = {field.name for field in fields(cls)}
        if set(values) != names:
            raise ConfigError(f"noise plan: expected the keys {sorted(names)}, found {sorted(values)}")
        return cls(**{
            **values,
            "epsilon": _infinite(values["epsilon"]),
            "coefficients": tuple(values["coefficients"]),
            "spent": tuple((number, _infinite(epsilon)) for number, epsilon in values["spent"]),
        })  # fmt: skip

    def _combine(self, coefficients: tuple[float, ...], round: int, normals: Normals) -> npt.NDArray[Any]:
        self._check_round(round)
        noise = (self.stddev * coefficients[0]) * normals(round)
        for age, coefficient in enumerate(coefficients[1 : round + 1], start=1):
            if coefficient:
                noise = noise + (self.stddev * coefficient) * normals(round - age)
        return noise

    def _check_round(self, round: int) -> None:
        if not 0 <= round < self.rounds:
            raise ConfigError(
                f"round={round}: the privacy budget is for rounds 0 .. {self.rounds - 1}; no other may take place"
            )


def _finite(epsilon: float) -> float | None:
    return None if math.isinf(epsilon) else epsilon


def _infinite(epsilon: float | None) -> float:
    return math.inf if epsilon is None else epsilon
