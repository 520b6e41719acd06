"""What is known about the clients of a fleet: when they were available and, where known, delays, labels and sizes.

Axes: [R] rounds, [N] clients, [M] spells.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.errors import ConfigError, DataError

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Table = npt.NDArray[np.bool_]  # [R, N]
SECONDS_PER_DAY = 86400.0
ROUND_SECONDS = 300.0  # the default length of a round, as in the arena's case `phones`
MAX_CELLS = 2**27  # rounds times clients of a table


class Spells(NamedTuple):
    """When clients are available: clients[m] from starts[m] to ends[m]; sorted by client and start, disjoint."""

    clients: Integers  # [M]
    starts: Floats  # [M]
    ends: Floats  # [M]


class JobFacts(NamedTuple):
    """What is known about a fleet from the tasks of a job."""

    deadline: float | None  # seconds after which its last round ended at the latest; None if it is not recorded
    num_unanswered: int  # clients that were asked, but have no accepted upload, so that their delays are unknown


@dataclass(frozen=True)
class Fleet:
    """The clients of a trace or of a job. Times are in the unit of the source.

    Args:
        source: Where the numbers come from, for people.
        available: bool[R, N], which clients are available at the start of each round.
        moments: [R + 1] when each round starts, and when the last one ends.
        spells: When the clients are available, not rounded to rounds.
        names: [N] names of the clients.
        unit: Seconds in a unit of time; None if the unit is unknown, as in a trace that counts rounds.
        delays: [N] seconds from the moment a client is asked until its update arrives; NaN for unknown ones.
        labels: [N] the class to which most samples of a client belong, or any other group.
        sizes: [N] number of samples.
        job: The job of which this is the fleet; None for a trace.
        midnight: How long before the first round its day began; 0 if the unit of time is unknown.
    """

    source: str
    available: Table
    moments: Floats
    spells: Spells
    names: list[str]
    unit: float | None = None
    delays: Floats | None = None
    labels: list[str] | None = None
    sizes: Floats | None = None
    job: JobFacts | None = None
    midnight: float = 0.0

    @property
    def num_rounds(self) -> int:
        """The number of rounds, R."""
        return self.available.shape[0]

    @property
    def num_clients(self) -> int:
        """The number of clients, N."""
        return self.available.shape[1]

    @property
    def length(self) -> float:
        """How long the fleet was observed, in units of time."""
        return float(self.moments[-1] - self.moments[0])

    @property
    def day(self) -> float | None:
        """The length of a day in rounds; None if the unit of time is unknown or less than a day was observed."""
        if self.unit is None or self.length * self.unit < SECONDS_PER_DAY:
            return None
        return SECONDS_PER_DAY / self.unit / (self.length / self.num_rounds)

    @property
    def weights(self) -> Floats:
        """[N] w_i, the weights in the objective: shares of all samples, or 1/N if sizes are unknown."""
        if self.sizes is None:
            return np.full(self.num_clients, 1 / self.num_clients)
        return self.sizes / self.sizes.sum()


def fleet_of_spells(
    clients: Integers,
    starts: Floats,
    ends: Floats,
    *,
    names: list[str],
    source: str,
    round_length: float | None = None,
    unit: float | None = None,
) -> Fleet:
    """Return the fleet of a trace. A client is available in a round if it is at the moment at which the round starts.

    Without `unit`, a trace that lasts 86,400 or longer is in seconds, and the unit of a shorter one is unknown. The
    record begins with the first spell, and times are those since then: what was before is not known.

    Args:
        clients: [M] positions of the clients.
        starts: [M] when they become available.
        ends: [M] when they become unavailable; spells may overlap.
        names: [N] names of the clients.
        source: Where the trace comes from.
        round_length: In units of time; by default 300 seconds, or 1 if the unit is unknown.
        unit: Seconds in a unit of time.

    Raises:
        DataError: If there is no spell, or fewer than two clients.
        ConfigError: If the length of a round or the unit is not usable.

    >>> fleet = fleet_of_spells(np.array([0, 1]), np.array([1.0, 0]), np.array([3.0, 2]), names=["a", "b"], source="")
    >>> fleet.available.astype(int).tolist()
    [[0, 1], [1, 1], [1, 0]]
    """
    for name, value in (("round_length", round_length), ("unit", unit)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise ConfigError(f"{name}={value}: must be a finite number above 0")
    if clients.size == 0:
        raise DataError(f"{source}: the trace contains no interval, so there is nothing to diagnose")
    if len(names) < 2:
        raise DataError(f"{source}: the trace has one client; a diagnosis compares clients and needs at least two")
    if unit is None and float(ends.max() - starts.min()) >= SECONDS_PER_DAY:
        unit = 1.0
    first = float(starts.min())
    if round_length is None:
        round_length = 1.0 if unit is None else ROUND_SECONDS / unit
    starts, ends = starts - first, ends - first
    num_rounds = math.ceil(ends.max() / round_length)
    if num_rounds * len(names) > MAX_CELLS:
        raise ConfigError(
            f"round_length={round_length:g}: {num_rounds:,} rounds of {len(names):,} clients are too many; use rounds "
            f"of at least {ends.max() * len(names) / MAX_CELLS:.3g}"
        )
    changes = np.zeros((num_rounds + 1, len(names)), np.int16)
    np.add.at(changes, (np.ceil(starts / round_length).astype(int), clients), 1)
    np.add.at(changes, (np.ceil(ends / round_length).astype(int), clients), -1)
    available = np.cumsum(changes[:-1], axis=0, dtype=np.int16) > 0
    if not available.any():
        raise ConfigError(
            f"round_length={round_length:g}: no client is available at the start of a round; use shorter rounds"
        )
    moments = np.arange(num_rounds + 1) * round_length
    midnight = 0.0 if unit is None else first % (SECONDS_PER_DAY / unit)
    return Fleet(source, available, moments, _merged(clients, starts, ends), names, unit, midnight=midnight)


def fleet_of_table(
    available: Table, *, names: list[str], source: str, moments: npt.ArrayLike | None = None, unit: float | None = None
) -> Fleet:
    """Return the fleet of a table of rounds.

    Args:
        available: bool[R, N].
        names: [N] names of the clients.
        source: Where the table comes from.
        moments: [R + 1] when each round starts, and when the last one ends; 0, 1, 2, ... by default.
        unit: Seconds in a unit of time; None if it is unknown.

    Raises:
        DataError: If no client was ever available, or there are fewer than two clients.
    """
    if not available.any():
        raise DataError(f"{source}: no client has been available in any round, so there is nothing to diagnose")
    if available.shape[1] < 2:
        raise DataError(f"{source}: has one client; a diagnosis compares clients and needs at least two")
    times = np.arange(len(available) + 1.0) if moments is None else np.asarray(moments, float)
    edges = np.diff(available.T.astype(np.int8), axis=1, prepend=0, append=0)  # [N, R + 1]
    clients, starts = np.nonzero(edges == 1)
    spells = Spells(clients, times[starts], times[np.nonzero(edges == -1)[1]])
    return Fleet(source, available, times, spells, names, unit)


def _merged(clients: Integers, starts: Floats, ends: Floats) -> Spells:
    """Return spells sorted by client and start, with those that touch or overlap merged."""
    order = np.lexsort((starts, clients))
    clients, starts, ends = clients[order], starts[order], ends[order]
    base = clients * (ends.max() + 1)  # later clients have later ends
    reach = np.maximum.accumulate(base + ends)
    is_first = np.r_[True, base[1:] + starts[1:] > reach[:-1]]
    is_last = np.r_[is_first[1:], True]
    return Spells(clients[is_first], starts[is_first], (reach - base)[is_last])
