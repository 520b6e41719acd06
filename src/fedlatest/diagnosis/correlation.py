"""How availability is correlated: in time, between clients, and with the labels and sizes of the clients."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedlatest.diagnosis.fleet import Fleet, Floats, Table

PERMUTATIONS = 999
MAX_CLIENTS = 1000  # whose autocorrelation is computed; a random sample of more
CERTAIN = 0.8  # an autocorrelation that is a cycle however few clients there are
PEAK = 0.05  # by how much the autocorrelation after a cycle exceeds that after half a cycle, besides the noise


@dataclass(frozen=True)
class Association:
    """How strongly availability is associated with a property of the clients."""

    strength: float
    expected: float
    """The mean strength if the property is assigned to the clients at random."""
    p_value: float
    """Share of random assignments that are at least as strong."""


@dataclass(frozen=True)
class CorrelationFacts:
    """How availability is correlated. Times are in rounds."""

    correlation_time: float | None
    """Rounds after which the autocorrelation of a client's availability has fallen below 1/e; None if it does not, or
    if all clients are always available."""
    day_to_day: float | None
    """Correlation of a client's availability with that one cycle later."""
    cycle: float | None
    """Length of the cycle with which availability repeats; None if none was found."""
    cycle_is_day: bool
    pair_correlation: float | None
    """Mean correlation of the availability of two clients over time."""
    overdispersion: float | None
    """Variance of the number of available clients, divided by that of independent clients with the same shares."""
    label: Association | None
    """Share of the variance of the clients' shares of time that their labels explain."""
    size: Association | None
    """Rank correlation (Spearman) of the clients' shares of time and their sizes, without its sign."""


def correlation_facts(fleet: Fleet) -> CorrelationFacts:
    """Return how the availability of a fleet is correlated."""
    decay = autocorrelation(fleet.available)
    below = np.flatnonzero(decay < np.exp(-1))
    shares = fleet.available.mean(axis=0)
    changing = int(((shares > 0) & (shares < 1)).sum())
    independent = changing * fleet.num_rounds / (2 * float(below[0]) if below.size else fleet.num_rounds)
    cycle, is_day = _cycle(decay, fleet.day, noise=4 / np.sqrt(max(independent, 1)))
    pairs, dispersion = between_clients(fleet.available)
    return CorrelationFacts(
        correlation_time=float(below[0]) if below.size else None,
        day_to_day=None if cycle is None else float(decay[round(cycle)]),
        cycle=cycle,
        cycle_is_day=is_day,
        pair_correlation=pairs,
        overdispersion=dispersion,
        label=None if fleet.labels is None else label_association(shares, fleet.labels),
        size=None if fleet.sizes is None else size_association(shares, fleet.sizes),
    )


def autocorrelation(available: Table) -> Floats:
    """Return the autocorrelation of the clients' availability for the lags 0 .. R/2, [R/2 + 1].

    It is that of all clients together: the sum of their autocovariances, each about the client's own mean, divided by
    the sum of their variances. It is 1 for the lag 0, and NaN if no client's availability changes.

    >>> autocorrelation(np.tile([[True, False], [False, True]], (4, 1))).round(9).tolist()
    [1.0, -1.0, 1.0, -1.0, 1.0]
    """
    rounds, num_clients = available.shape
    if num_clients > MAX_CLIENTS:
        chosen = np.random.default_rng(0).choice(num_clients, MAX_CLIENTS, replace=False)
        available = available[:, np.sort(chosen)]
    deviations = available - available.mean(axis=0)
    size = 1 << (2 * rounds - 1).bit_length()  # padded: the transform is of a line, not of a circle
    power = np.zeros(size // 2 + 1)
    for start in range(0, deviations.shape[1], 64):
        power += (np.abs(np.fft.rfft(deviations[:, start : start + 64], size, axis=0)) ** 2).sum(axis=1)
    lags = np.arange(rounds // 2 + 1)
    covariance = np.fft.irfft(power, size)[: lags.size] / (rounds - lags)
    if covariance[0] < 1e-12:
        return np.full(lags.size, np.nan)
    return np.asarray(covariance / covariance[0])


def between_clients(available: Table) -> tuple[float | None, float | None]:
    """Return the mean correlation of two clients, and the overdispersion of the number of available clients.

    Both are None if fewer than two clients' availability changes. With z_i the availability of client i minus its mean,
    divided by its standard deviation, the variance of sum_i z_i is n + sum over i != j of the correlations. So the mean
    correlation follows from the variance of one sum, without all pairs.

    >>> between_clients(np.array([[True, True], [False, False]]))
    (1.0, 2.0)
    """
    shares = available.mean(axis=0)
    changing = (shares > 0) & (shares < 1)
    num = int(changing.sum())
    if num < 2:
        return None, None
    spread = np.sqrt(shares * (1 - shares))
    total = available[:, changing] @ (1 / spread[changing])
    pairs = (total.var() - num) / (num * (num - 1))
    return float(pairs), float(available.sum(axis=1).var() / (spread**2).sum())


def label_association(shares: Floats, labels: list[str]) -> Association | None:
    """Return the share of the variance of the clients' shares of time that labels explain; None without any variance.

    Args:
        shares: [N] share of time in which each client is available.
        labels: [N].
    """
    _, groups, sizes = numbered(labels)
    variance = shares.var()
    if variance < 1e-12 or sizes.size < 2:
        return None

    def explained(values: Floats) -> float:
        means = np.bincount(groups, values) / sizes
        return float((sizes * (means - shares.mean()) ** 2).sum() / shares.size / variance)

    return permutation_test(explained, shares)


def size_association(shares: Floats, sizes: Floats) -> Association | None:
    """Return the rank correlation of shares of time and sizes, without its sign; None if one of them is constant.

    Args:
        shares: [N] share of time in which each client is available.
        sizes: [N] number of samples.
    """
    if np.ptp(shares) < 1e-12 or np.ptp(sizes) == 0:
        return None
    ranks = _standardised_ranks(sizes)
    return permutation_test(lambda values: abs(float(ranks @ values) / shares.size), _standardised_ranks(shares))


def permutation_test(statistic: Callable[[Floats], float], values: Floats) -> Association:
    """Return a statistic of values, compared with that of the same values in random orders (999, with a fixed seed)."""
    rng = np.random.default_rng(0)
    strength = statistic(values)
    random = np.array([statistic(rng.permutation(values)) for _ in range(PERMUTATIONS)])
    exceeding = int((random >= strength - 1e-12).sum())
    return Association(strength, float(random.mean()), (1 + exceeding) / (1 + PERMUTATIONS))


def numbered(labels: list[str]) -> tuple[list[str], npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the different labels, [N] the number of each client's label, and how many clients have each label.

    Labels that are whole numbers are sorted as numbers.
    """
    names = sorted(set(labels), key=lambda label: (0, int(label), label) if label.isdecimal() else (1, 0, label))
    position = {name: number for number, name in enumerate(names)}
    numbers = np.array([position[label] for label in labels], np.intp)
    return names, numbers, np.bincount(numbers)


def _cycle(decay: Floats, day: float | None, *, noise: float) -> tuple[float | None, bool]:
    """Return the length of the cycle in rounds, if there is one, and whether it is a day.

    The cycle is the day if the autocorrelation after a day is clearly above that after half a day. Otherwise it is the
    first lag at which the autocorrelation is nearly as high as anywhere after its first minimum, if that is a clear
    peak.

    Args:
        decay: The autocorrelation.
        day: The length of a day in rounds, if it is known.
        noise: Four standard deviations of an autocorrelation of independent clients.
    """
    if np.isnan(decay[0]):
        return None, False
    clear = PEAK + noise
    if day is not None and round(day) < decay.size and decay[round(day)] > decay[round(day / 2)] + clear:
        return day, True
    rising = np.flatnonzero(np.diff(decay) > 0)
    if not rising.size:
        return None, False
    lowest = int(rising[0])
    high = decay[lowest:].max()
    near = lowest + int(np.argmax(decay[lowest:] > high - PEAK))  # one cycle rather than several
    peak = near + int(np.argmax(decay[near : near + max(1, near // 4)]))
    middle = decay[lowest : peak + 1].min()
    needed = min(2 * clear, CERTAIN)
    is_clear = decay[peak] > needed and decay[peak] > middle + needed
    return (float(peak), False) if is_clear else (None, False)


def _standardised_ranks(values: Floats) -> Floats:
    """Return the ranks of values, equal for equal values, with mean 0 and variance 1."""
    _, numbers, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[numbers]
    return np.asarray((ranks - ranks.mean()) / ranks.std())
