"""Published curves, drawn behind our own."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


class PublishedCurve(NamedTuple):
    """What was published for one run."""

    rounds: npt.NDArray[np.int64]
    train_loss: npt.NDArray[np.floating[Any]]
    test_accuracy: npt.NDArray[np.floating[Any]]
