"""What a job is: the settings that server and clients must share for as long as it lives."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from fedlatest.errors import ConfigError
from fedlatest.ledger.layout import hash_of

Memory = Literal["client", "server", "none"]


@dataclass(frozen=True)
class JobConfig:
    """The identity of a job beside its model; a server or client with another is refused.

    `memory` says where clients' latest values are kept: on their own disks, at the server as well (a copy a client), or
    nowhere for an algorithm that remembers nothing. `unit` is the grid's step: values are whole multiples of it.
    `weighs` says whether clients send their updates times their samples.
    """

    algorithm: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    memory: Memory = "client"
    unit: float = 2.0**-16
    clip_norm: float | None = None
    seed: int = 0
    weighs: bool = False

    def __post_init__(self) -> None:
        if self.memory not in get_args(Memory):
            raise ConfigError(f"memory={self.memory!r}: choose one of {', '.join(get_args(Memory))}")
        if not 2.0**-40 <= self.unit <= 2.0**10:
            raise ConfigError(f"unit={self.unit}: the grid's step is in 2^-40 .. 2^10")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ConfigError(f"clip_norm={self.clip_norm}: must be above 0, or None for no clipping")
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"seed={self.seed}: a seed is in 0 .. 2^32 - 1")

    def as_dict(self) -> dict[str, Any]:
        """As JSON writes it; 10 and 10.0 are the same limit."""
        clip_norm = None if self.clip_norm is None else float(self.clip_norm)
        return {**asdict(self), "settings": dict(self.settings), "unit": float(self.unit), "clip_norm": clip_norm}

    @property
    def hash(self) -> str:
        """A name for it that is the same on every machine."""
        return hash_of(self.as_dict())
