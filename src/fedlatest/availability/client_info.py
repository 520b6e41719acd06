"""What the builders of named availability models know about the clients of a federation. NumPy only."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.errors import ConfigError

RATES_OF_LABELS, LEAVING = 1, 2  # with the partition's seed, seeds of generators for one purpose each


class ClientInfo(NamedTuple):
    """What a builder knows about the clients of a federation.

    Args:
        labels: [N] each client's most frequent label.
        num_labels: Number of classes.
        seed: Seed of the partition; builders draw per-client properties from it.
        sample_times: For each client, the times at which its samples were created, in seconds after midnight; None if
            the data set has no times.
        label_shares: [N, classes] share of each label among each client's samples; None if every sample of a client has
            its most frequent label.
        names: [N] names of the clients; None if they have none.
    """

    labels: npt.NDArray[np.int64]
    num_labels: int
    seed: int
    sample_times: Sequence[npt.NDArray[np.int32]] | None = None
    label_shares: npt.NDArray[np.float32] | None = None
    names: npt.NDArray[np.str_] | None = None

    @property
    def num_clients(self) -> int:
        """The number of clients, N."""
        return self.labels.size

    def first_labels(self, digits: int) -> npt.NDArray[np.bool_]:
        """Return bool[N]: which clients have one of the labels 0 .. digits - 1."""
        if not 1 <= digits < self.num_labels:
            raise ConfigError(
                f"digits={digits}: must be 1 .. {self.num_labels - 1}, the number of labels in the first group"
            )
        return np.asarray(self.labels < digits)

    def rates(self, name: str, middle: float, spread: float) -> npt.NDArray[np.float64]:
        """Draw [N] rates, uniform in [middle - spread, middle + spread].

        Args:
            name: The key that sets `middle`, for error messages.
            middle: Mean rate.
            spread: Largest deviation from the mean.
        """
        check_share(name, middle)
        if spread < 0 or middle - spread < 0 or middle + spread > 1:
            raise ConfigError(f"spread={spread}: rates {middle - spread:g} .. {middle + spread:g} must be in [0, 1]")
        return middle + spread * np.random.default_rng(self.seed).uniform(-1, 1, self.num_clients)

    def rates_from_labels(self, first_max: float, rest_max: float) -> npt.NDArray[np.float64]:
        """Draw a rate for every label, and return [N] the mean of these rates over each client's samples.

        This is p_i = <nu_i, phi> of Xiang et al. (2024), where nu_i are the client's label shares.

        Args:
            first_max: The rates of the first half of the labels are uniform in [0, first_max].
            rest_max: The rates of the other labels are uniform in [0, rest_max].
        """
        check_share("label_max", first_max)
        check_share("label_max_rest", rest_max)
        in_first_half = np.arange(self.num_labels) < self.num_labels / 2
        generator = np.random.default_rng((self.seed, RATES_OF_LABELS))
        by_label = generator.uniform(0, 1, self.num_labels) * np.where(in_first_half, first_max, rest_max)
        if self.label_shares is None:
            return by_label[self.labels]
        return np.clip(self.label_shares @ by_label, 0, 1)


def check_share(name: str, share: float) -> None:
    """Raise ConfigError if the value of a key is not in [0, 1]."""
    if not 0 <= share <= 1:
        raise ConfigError(f"{name}={share}: must be in [0, 1]")
