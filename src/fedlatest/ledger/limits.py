"""What the server of a job accepts from clients."""

from dataclasses import dataclass

from fedlatest.errors import ConfigError
from fedlatest.ledger.checks import MAX_WEIGHT, MIN_WEIGHT


@dataclass(frozen=True)
class Limits:
    """What the server accepts from clients. They may change while the job exists.

    Args:
        max_weight: largest weight (number of samples) of a client.
        max_clients: largest number of clients that may ever join the job.
        max_loss_backoff: a client that reports lost data again and again is not selected, and its reports are ignored,
            for 2, 8, 32, ... rounds, at most this number.

    Raises:
        ConfigError: a limit is out of range.
    """

    max_weight: float = MAX_WEIGHT
    max_clients: int = 100_000
    max_loss_backoff: int = 512

    def __post_init__(self) -> None:
        if not MIN_WEIGHT <= self.max_weight <= MAX_WEIGHT:
            raise ConfigError(f"max_weight={self.max_weight}: must be between {MIN_WEIGHT:g} and 2^30")
        if self.max_clients < 1:
            raise ConfigError(f"max_clients={self.max_clients}: must be at least 1")
        if self.max_loss_backoff < 0:
            raise ConfigError(f"max_loss_backoff={self.max_loss_backoff}: must be at least 0")
