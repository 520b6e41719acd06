"""The clients' participation rates under an availability model, for algorithms that must know them."""

import numpy as np
import numpy.typing as npt

from fedlatest.availability import Availability

NUM_SEEDS = 8  # over which the rates of random availability are averaged
FIRST_SEED = 2**32 - NUM_SEEDS  # far from the seeds of runs: the rates must not contain what happens in a run
MAX_PAIRS = 10**8  # (client, round) pairs that are evaluated for one seed


def participation_rates(model: Availability, *, rounds: int, cohort_size: int) -> npt.NDArray[np.float64]:
    """Return [N] the mean probability of each client to take part in a round, if cohorts are drawn uniformly.

    In a round with M available clients, each of them takes part with probability min(1, K / M). The rates of random
    models are means over draws with seeds that runs do not use. A client that is never available has the rate
    1 / rounds.

    Args:
        model: Which clients are available in which round.
        rounds: The number of rounds over which the rates are averaged.
        cohort_size: K, the largest number of clients in a cohort.

    >>> from fedlatest.availability import diurnal
    >>> participation_rates(diurnal([True, False, False], period=1), rounds=10, cohort_size=1).tolist()
    [0.5, 0.25, 0.25]
    """
    horizon = max(1, min(rounds, MAX_PAIRS // model.num_clients))
    seeds = [0] if model.intervals() is not None else range(FIRST_SEED, FIRST_SEED + NUM_SEEDS)
    total = np.zeros(model.num_clients)
    for seed in seeds:
        available = model.table(horizon, seed)
        chance = np.minimum(1, cohort_size / np.maximum(available.sum(axis=1), 1))
        total += chance @ available / horizon
    return np.clip(total / len(seeds), 1 / rounds, 1)
