"""Workload M for the peers: 1000 clients with 60 samples of 784 pixels each, 100 of them in a round.

The programs in this folder run in environments of their own, without fedlatest: they import nothing of it. Each prints
the milliseconds of every round but the first, as a list in JSON.
"""

import functools
import json
import time

import numpy as np
import numpy.typing as npt

CLIENTS, SAMPLES, PIXELS, CLASSES = 1000, 60, 784, 10
COHORT, STEPS, BATCH, RATE = 100, 10, 5, 0.01


@functools.cache
def make_data() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Return features [clients, samples, pixels] and labels [clients, samples], the same in every call of a process."""
    rng = np.random.default_rng(0)
    features = rng.random((CLIENTS, SAMPLES, PIXELS), dtype=np.float32)
    return features, rng.integers(0, CLASSES, (CLIENTS, SAMPLES))


class Stopwatch:
    """Records the time between rounds."""

    def __init__(self) -> None:
        self.moments: list[float] = []

    def round_done(self) -> None:
        """Note the end of a round."""
        self.moments.append(time.perf_counter())

    def report(self) -> None:
        """Print the milliseconds of all rounds but the first."""
        print(json.dumps((np.diff(self.moments) * 1e3).round(3).tolist()))
