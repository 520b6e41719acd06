"""Samples before they are dealt to clients."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.data.federation import Federation
from fedlatest.data.partition import Partition


class Samples(NamedTuple):
    """A data set: training and test samples, no clients yet."""

    name: str
    features: npt.NDArray[np.float32]
    labels: npt.NDArray[Any]
    test_features: npt.NDArray[np.float32]
    test_labels: npt.NDArray[Any]

    def deal(self, partition: Partition) -> Federation:
        """The Federation in which the partition's clients hold these samples."""
        return Federation(*self, order=partition.order, offsets=partition.offsets)
