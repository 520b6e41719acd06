"""Nodes that really leave and return: an availability model, followed round by round."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fedlatest.availability import Availability
from fedlatest.deployment.node import Node


class Attendance:
    """Who should be here in each round of a job; nodes are in the order of the model's clients."""

    def __init__(self, table: npt.NDArray[np.bool_]) -> None:
        self.table = table  # [rounds, N]

    @classmethod
    def of(cls, availability: Availability, *, rounds: int, seed: int) -> "Attendance":
        """What the model says of rounds 0 .. rounds - 1."""
        return cls(availability.table(rounds, seed))

    def apply(self, round: int, nodes: Sequence[Node]) -> None:
        """Ask nodes to be here or away as the model has it; after its last round as in its last round."""
        for node, here in zip(nodes, self.table[min(round, len(self.table) - 1)], strict=True):
            if here:
                node.here()
            else:
                node.away()
