"""The sums of an open round, exact in fixed-point numbers."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedlatest.ledger.fixed_point import SUM_DTYPE, FixedPoint, FixedPointSum, from_fixed_point
from fedlatest.ledger.hashing import add_in_place


@dataclass(frozen=True)
class RoundSums:
    """The sums of the open round, in fixed-point numbers.

    Args:
        old_total: sum of the clients' latest updates before the round; None for an algorithm without remembered state.
        delta_or_none: change of the sum in this round, or None if it is zero.
        untrained_delta: the part of the change from clients that left or sent their update again. None if it is zero.
        size: the length of the sums.
        num: number of clients that trained.
        weight: total weight of the clients that trained.
        num_clients: clients that have contributed, including this round.
        total_weight: their total weight.
    """

    old_total: FixedPointSum | None
    delta_or_none: FixedPointSum | None
    untrained_delta: FixedPointSum | None
    size: int
    num: int
    weight: float
    num_clients: int
    total_weight: float

    @property
    def delta(self) -> FixedPointSum:
        """The change of the sum in this round; without remembered state, the sum of the uploads."""
        return self._or_zero(self.delta_or_none)

    @property
    def total(self) -> FixedPointSum:
        """The sum of the clients' latest updates after the round; zero for an algorithm without remembered state."""
        if self.old_total is None:
            return self._or_zero(None)
        return self.old_total if self.delta_or_none is None else self.old_total + self.delta_or_none

    @property
    def trained_delta(self) -> FixedPointSum:
        """The part of `delta` that comes from clients that trained, not from those that left."""
        return self.delta if self.untrained_delta is None else self.delta - self.untrained_delta

    def total_in(self, unit: float) -> npt.NDArray[np.float32]:
        """Return `total * unit` in single precision."""
        if self.old_total is None:
            return np.zeros(self.size, np.float32)
        return from_fixed_point(self.old_total, unit, plus=self.delta_or_none)

    def trained_delta_in(self, unit: float) -> npt.NDArray[np.float32]:
        """Return `trained_delta * unit` in single precision."""
        if self.delta_or_none is None:
            return np.zeros(self.size, np.float32)
        return from_fixed_point(self.delta_or_none, unit, minus=self.untrained_delta)

    def _or_zero(self, numbers: FixedPointSum | None) -> FixedPointSum:
        return np.zeros(self.size, SUM_DTYPE) if numbers is None else numbers


def add_upload(delta: FixedPointSum | None, upload: FixedPoint, stored: FixedPoint | None) -> FixedPointSum:
    """Add an upload to a sum in place, and subtract the update that it replaces."""
    if delta is None:
        delta = np.zeros(upload.shape, SUM_DTYPE)
    add_in_place(delta, upload)
    if stored is not None:
        add_in_place(delta, stored, sign=-1)
    return delta
