"""The settings of secure aggregation; free of cryptography."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedlatest.errors import ConfigError
from fedlatest.ledger.messages import Epoch

MASKED_DTYPE = np.dtype("<u8")  # of a masked upload
MIN_DECRYPTORS = 3
MAX_UPLOAD = 2**31  # largest magnitude of a number in an upload, which is a difference of two updates


@dataclass(frozen=True)
class SecureAggregation:
    """How uploads are masked, so that the server learns only their sum over a cohort. Part of the job's configuration.

    Args:
        min_cohort: Smallest number of uploads whose sum may be unmasked; no round counts with fewer.
        num_decryptors: Number of available clients that hold shares of the masks in each round. More than two thirds
            of them must answer.
        share_metrics: Whether clients send their training metrics, such as the loss, to the server unmasked.

    Raises:
        ConfigError: a setting is out of range.
    """

    min_cohort: int = 3
    num_decryptors: int = 10
    share_metrics: bool = False

    def __post_init__(self) -> None:
        for name in ("min_cohort", "num_decryptors"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise ConfigError(f"{name}={value!r}: must be an integer")
        if self.min_cohort < 2:
            raise ConfigError(f"min_cohort={self.min_cohort}: must be at least 2: the sum of one upload is the upload")
        if self.num_decryptors < MIN_DECRYPTORS:
            raise ConfigError(f"num_decryptors={self.num_decryptors}: must be at least {MIN_DECRYPTORS}")

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        return asdict(self)


def scope_of(job: str, epoch: Epoch) -> str:
    """Return the text that binds a session to a job and its epoch."""
    return f"{job} {epoch.number} {epoch.token}"


def min_cohort_of(settings: Mapping[str, Any]) -> int:
    """Return the smallest cohort that the settings of a job allow."""
    return int(settings["secure"]["min_cohort"])


def sends_weight(settings: Mapping[str, Any]) -> bool:
    """Return whether clients tell the server their weights: in a secure job, only if the updates are weighted."""
    return settings.get("secure") is None or bool(settings["weighs"])
