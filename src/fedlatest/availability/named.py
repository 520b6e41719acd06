"""The registry of named availability models, used by recipes and the command line.

Each builder takes what is known about the clients and returns a model. Its keywords are the keys that `--set` accepts,
and the first line of its docstring is what `fedlatest list` prints.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.availability import composition, patterns, stochastic
from fedlatest.availability import trace as traces
from fedlatest.availability.base import Availability
from fedlatest.data.federation import SECONDS_PER_DAY
from fedlatest.data.sentiment140.accounts import sleep_window
from fedlatest.errors import ConfigError, DataError


class ClientInfo(NamedTuple):
    """What a builder knows about the clients of a federation.

    Args:
        labels: [N] each client's most frequent label.
        num_labels: Number of classes.
        seed: Seed of the partition; builders draw per-client properties from it.
        sample_times: For each client, the times at which its samples were created, in seconds after midnight; None if
            the data set has no times.
    """

    labels: npt.NDArray[np.int64]
    num_labels: int
    seed: int
    sample_times: Sequence[npt.NDArray[np.int32]] | None = None

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
        _check_share(name, middle)
        if spread < 0 or middle - spread < 0 or middle + spread > 1:
            raise ConfigError(f"spread={spread}: rates {middle - spread:g} .. {middle + spread:g} must be in [0, 1]")
        return middle + spread * np.random.default_rng(self.seed).uniform(-1, 1, self.num_clients)


def _always(clients: ClientInfo) -> Availability:
    """Every client in every round."""
    return patterns.always(clients.num_clients)


def _diurnal(clients: ClientInfo, *, period: int = 100, digits: int = 1) -> Availability:
    """Clients of labels 0 .. digits-1 for `period` rounds, the others for the next `period`."""
    return patterns.diurnal(clients.first_labels(digits), period=period)


def _alternating(clients: ClientInfo, *, t1: int = 100, t2: int = 100, digits: int = 1) -> Availability:
    """Clients of labels 0 .. digits-1 for t1 rounds, the others for the next t2."""
    return patterns.alternating(clients.first_labels(digits), t1=t1, t2=t2)


def _windows(clients: ClientInfo, *, window_hours: float = 8.0, rounds_per_day: int = 120) -> Availability:
    """One daily window per client with a uniformly drawn start; rounds_per_day rounds are 24 h."""
    if not 0 < window_hours <= 24:
        raise ConfigError(f"window_hours={window_hours}: must be above 0 and at most 24")
    start = np.random.default_rng(clients.seed).integers(0, SECONDS_PER_DAY, clients.num_clients) / 3600
    return patterns.windows(start, hours=window_hours, rounds_per_day=rounds_per_day)


def _sleep(clients: ClientInfo, *, window_hours: float = 8.0, rounds_per_day: int = 120) -> Availability:
    """The hours of the day in which each client created the fewest samples; rounds_per_day rounds are 24 h."""
    if clients.sample_times is None:
        raise ConfigError("availability=sleep: this data set has no sample times; use availability=windows instead")
    if not 1 <= window_hours * 3600 < SECONDS_PER_DAY:
        raise ConfigError(f"window_hours={window_hours}: must be at least 1 second and less than 24 hours")
    start = [sleep_window(times, hours=window_hours) / 3600 for times in clients.sample_times]
    return patterns.windows(start, hours=window_hours, rounds_per_day=rounds_per_day)


def _bernoulli(clients: ClientInfo, *, rate: float = 0.5, spread: float = 0.0) -> Availability:
    """An independent draw per client and round; rates are uniform in rate +- spread."""
    return stochastic.bernoulli(clients.rates("rate", rate, spread))


def _markov(clients: ClientInfo, *, share: float = 0.5, spread: float = 0.0, correlation: float = 50.0) -> Availability:
    """On/off Markov chains: on for `share` +- spread of the time, correlated over about `correlation` rounds."""
    return stochastic.markov(clients.rates("share", share, spread), correlation=correlation)


def _sine(
    clients: ClientInfo, *, rate: float = 0.5, spread: float = 0.0, amplitude: float = 0.3, period: int = 20
) -> Availability:
    """Independent draws whose probability varies between rate (1 - 2 amplitude) and rate every `period` rounds."""
    return stochastic.sine(clients.rates("rate", rate, spread), amplitude=amplitude, period=period)


def _labels(clients: ClientInfo, *, low: float = 0.1, high: float = 0.9) -> Availability:
    """Independent draws whose probability grows linearly from `low` for label 0 to `high` for the last label."""
    _check_share("low", low)
    _check_share("high", high)
    return stochastic.label_rates(clients.labels, np.linspace(low, high, clients.num_labels))


def _lifetime(
    clients: ClientInfo, *, late: float = 0.2, arrival: int = 100, leaving: float = 0.0, departure: int = 1000
) -> Availability:
    """A share `late` of the clients arrives in round `arrival`; a share `leaving` departs in round `departure`."""
    _check_share("late", late)
    _check_share("leaving", leaving)
    for name, round in (("arrival", arrival), ("departure", departure)):
        if not 0 <= round < composition.FOREVER:
            raise ConfigError(f"{name}={round}: must be in 0 .. {composition.FOREVER - 1}")
    draw = np.random.default_rng(clients.seed).uniform(size=(2, clients.num_clients))
    return composition.lifetime(
        np.where(draw[0] < late, arrival, 0), departure=np.where(draw[1] < leaving, departure, composition.FOREVER)
    )


def _trace(clients: ClientInfo, *, trace: str, wrap: bool = False, round_length: float = 1.0) -> Availability:
    """Recorded intervals of a CSV file (client,start,end); a round lasts `round_length` of its time units."""
    intervals = traces.read_trace(Path(trace))
    if not intervals:
        raise DataError(f"trace={trace}: contains no interval")
    return traces.trace(intervals, num_clients=clients.num_clients, wrap=wrap, round_length=round_length)


def _check_share(name: str, share: float) -> None:
    if not 0 <= share <= 1:
        raise ConfigError(f"{name}={share}: must be in [0, 1]")


AVAILABILITY: dict[str, Callable[..., Availability]] = {
    builder.__name__.removeprefix("_"): builder
    for builder in (
        _always, _diurnal, _alternating, _windows, _sleep, _bernoulli, _markov, _sine, _labels, _lifetime, _trace
    )
}  # fmt: skip
