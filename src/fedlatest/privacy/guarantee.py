"""`Privacy`: the guarantee that a user asks for."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from fedlatest.errors import ConfigError

Mechanism = Literal["auto", "independent", "correlated", "total"]
"""Which noise is added; see `Privacy`."""
Uploads = Literal["fresh", "remembered"]
"""Whether an update counts in one round only, or stays in the total until the client's next one replaces it."""
MECHANISMS: dict[Uploads, tuple[Mechanism, ...]] = {  # the first one is "auto"
    "fresh": ("independent", "correlated"),
    "remembered": ("total",),
}


@dataclass(frozen=True, kw_only=True)
class Privacy:
    r"""A guarantee of (epsilon, delta)-differential privacy for each client with all its data.

    Two runs are neighbours if they differ in one client, whose uploads are all zero in one of them (the zero-out
    relation). Who takes part in which round, and the number of clients, are public. The guarantee covers everything
    that is computed from the noisy sums: the model of every round together, not only the last one.

    Every client scales its update down to a norm of at most `clip_norm`. The mechanism then adds Gaussian noise:

    - "independent": to each round's sum of fresh updates, independently. A client changes at most k sums, k being its
      number of participations: the sensitivity is clip_norm \sqrt{k}.
    - "correlated": to each round's sum of fresh updates, but the noise of a round takes back a part of the noise of the
      round before, so that less remains in the model, which adds all rounds up. The sensitivity depends on how often
      and how far apart a client takes part.
    - "total": to the sum of all clients' remembered updates, independently in each round. A client is in this sum with
      one update of norm at most `clip_norm`, however often it takes part: the sensitivity is clip_norm \sqrt{rounds}.

    Args:
        epsilon: Target; `math.inf` adds no noise, but clips and limits participation all the same.
        delta: Probability with which the bound by epsilon may fail; below 1 / (number of clients).
        clip_norm: Largest Euclidean norm of a client's update.
        rounds: The number of rounds that the budget is for; no further round may take place.
        min_separation: Rounds from one participation of a client to its next at the least; 1 allows every round.
        max_participations: Rounds in which a client may take part at the most; by default what `min_separation` allows.
        mechanism: Which noise is added; "auto" is "total" where updates are remembered and "independent" otherwise.

    Raises:
        ConfigError: If a value is out of range.

    >>> Privacy(epsilon=8, delta=1e-5, clip_norm=0.5, rounds=400, min_separation=10).participations
    40
    """

    epsilon: float
    delta: float
    clip_norm: float
    rounds: int
    min_separation: int = 1
    max_participations: int | None = None
    mechanism: Mechanism = "auto"

    def __post_init__(self) -> None:
        if not self.epsilon > 0:
            raise ConfigError(f"epsilon={self.epsilon}: must be above 0; inf adds no noise")
        if not 0 < self.delta < 1:
            raise ConfigError(f"delta={self.delta}: must be between 0 and 1, and below 1 / (number of clients)")
        if not (math.isfinite(self.clip_norm) and self.clip_norm > 0):
            raise ConfigError(f"clip_norm={self.clip_norm}: must be a finite number above 0")
        for name in ("rounds", "min_separation", "max_participations"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise ConfigError(f"{name}={value}: must be a whole number, 1 or larger")
        if self.mechanism not in ("auto", "independent", "correlated", "total"):
            raise ConfigError(f"mechanism={self.mechanism!r}: choose 'auto', 'independent', 'correlated' or 'total'")

    @property
    def participations(self) -> int:
        """The number of rounds in which a client can take part at the most."""
        possible = -(-self.rounds // self.min_separation)
        return possible if self.max_participations is None else min(self.max_participations, possible)

    def mechanism_for(self, uploads: Uploads) -> Mechanism:
        """Return the mechanism for an algorithm whose uploads are fresh or remembered.

        Raises:
            ConfigError: If the chosen mechanism does not fit them.
        """
        possible = MECHANISMS[uploads]
        if self.mechanism == "auto":
            return possible[0]
        if self.mechanism not in possible:
            raise ConfigError(
                f"mechanism={self.mechanism}: does not fit an algorithm with {uploads} updates; choose "
                f"{' or '.join(possible)}, or 'auto'"
            )
        return self.mechanism

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, for JSON; an infinite epsilon is None."""
        return {**asdict(self), "epsilon": None if math.isinf(self.epsilon) else self.epsilon}
