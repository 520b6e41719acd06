r"""Stability of a step along remembered updates: does a deviation from the optimum decay or grow?

Let all clients have the same curvature h, f_i(x) = h/2 (x - e_i)^2, in one direction of x. C local steps of size gamma
on w_i N f_i give the update

    u_i = -g_i (x - e_i),    g_i = 1 - (1 - gamma w_i N h)^C      the client's gain, between 0 and 1 for small steps.

R_i is the last round in which client i took part before round r, S the cohort of round r. FedLaAvg and FedVARP are

    x_{r+1} = x_r + (1/N) \sum_i u_i + a \sum_{i in S} (u_i_new - u_i),   a = 1/N (FedLaAvg) or 1/|S| (FedVARP).

The cohorts depend on the availability, not on x. The difference z of two trajectories with the same cohorts therefore
follows a linear equation with delays, in which the centres e_i do not occur:

    z_{r+1} = z_r - \sum_tau c_r(tau) z_{r-tau}
    c_r(0)   = a \sum_{i in S} g_i
    c_r(tau) = (1/N) \sum_{i: r - R_i = tau} g_i - a \sum_{i in S: r - R_i = tau} g_i       for tau >= 1

With a = 1/N and equal gains, c_r(tau) is g times the share of clients whose staleness is tau after the selection.

If the cohorts repeat every P rounds, z is multiplied over a period by a matrix on its last values. Its eigenvalues are
the Floquet multipliers: x converges if all of them are inside the unit circle, and their arguments are the frequencies
of the swing. If the cohorts do not repeat, the growth rate (Lyapunov exponent) takes the place of the multiplier.

Several directions of x are independent if the clients share the directions of curvature; then each has its own gain.
Axes: [rounds, N] tables, [M] several gains at once.
"""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from fedlatest.errors import ConfigError

Fresh = Literal["average", "cohort"] | float
Selection = Literal["oldest", "uniform", "weighted"]
Table = npt.NDArray[np.bool_]  # [rounds, N]
Floats = npt.NDArray[np.float64]
Draw = Callable[[npt.NDArray[np.int64]], npt.NDArray[np.int64]]
RESCALE_EVERY = 16  # rounds
GRID = 25  # gains that are examined side by side
REFINEMENTS = 2  # each divides the interval that contains the threshold by GRID - 1


class Growth(NamedTuple):
    """How a deviation develops for each of M gains."""

    rate: Floats
    """[M] logarithm of its growth per round: below 0 the method is stable."""
    swing: Floats
    """[M] period of its strongest oscillation in rounds; infinite if it does not oscillate."""


class StableGain(NamedTuple):
    """The gain up to which a method is stable."""

    gain: float
    """The first gain at which a deviation no longer decays; the largest gain examined if there is none."""
    swing: float
    """Period of the oscillation at this gain, in rounds; NaN if the method is stable for all gains examined."""
    gains: Floats
    """[M] the grid of gains examined first."""
    rates: Floats
    """[M] the growth rates on this grid."""

    @property
    def exists(self) -> bool:
        """Whether one of the gains examined is unstable."""
        return not np.isnan(self.swing)


def select_cohorts(
    available: Table, *, cohort_size: int, selection: Selection = "oldest", draw: Draw | None = None
) -> Table:
    """Return the cohorts that FedLaAvg ("oldest" first or "weighted") or FedVARP ("uniform") selects.

    They do not depend on x.

    Args:
        available: bool [rounds, N].
        cohort_size: K, the number of clients in a cohort, or all available ones if there are fewer.
        selection: "oldest" takes the clients with the lowest R_i, and draws among equal ones; "uniform" draws;
            "weighted" draws with probabilities proportional to (r - R_i)^2.
        draw: [N] rounds -> [N] random integers below 2^30, which decide: of the R_i for "oldest", of the current round
            otherwise. Without it the integers are drawn by NumPy.

    Returns:
        bool [rounds, N], who takes part.

    >>> select_cohorts(np.ones((4, 2), bool), cohort_size=1).sum(axis=0).tolist()
    [2, 2]
    """
    rounds, num_clients = available.shape
    if not 1 <= cohort_size <= num_clients:
        raise ConfigError(f"cohort_size={cohort_size}: must be in 1 .. {num_clients}, the number of clients")
    if selection not in get_args(Selection):
        raise ConfigError(f"selection={selection!r}: choose 'oldest', 'uniform' or 'weighted'")
    rng = np.random.default_rng(0)
    draw = draw or (lambda when: rng.integers(0, 2**30, when.size))
    last_round = np.full(num_clients, -1)
    cohorts = np.zeros_like(available)
    for round in range(rounds):
        candidates = np.flatnonzero(available[round])
        drawn = draw(last_round if selection == "oldest" else np.full(num_clients, round))[candidates]
        if selection == "weighted":
            order = np.argsort(-np.log((drawn + 0.5) / 2**30) / (round - last_round[candidates]) ** 2, kind="stable")
        elif selection == "oldest":
            order = np.lexsort((-drawn, last_round[candidates]))
        else:
            order = np.argsort(-drawn, kind="stable")
        chosen = candidates[order[:cohort_size]]
        last_round[chosen] = round
        cohorts[round, chosen] = True
    return cohorts


def staleness(cohorts: Table) -> npt.NDArray[np.int64]:
    """Return [rounds, N]: rounds since a client last took part, after each selection; -1 before its first time.

    >>> staleness(np.array([[1, 0], [0, 1], [0, 1]], bool)).tolist()
    [[0, -1], [1, 0], [2, 0]]
    """
    rounds = np.arange(len(cohorts))[:, None]
    last_round = np.maximum.accumulate(np.where(cohorts, rounds, -1), axis=0)
    return np.where(last_round < 0, -1, rounds - last_round)


def client_gains(gains: npt.ArrayLike, *, weights: npt.ArrayLike, num_local_steps: int) -> Floats:
    """Return [M, N]: the gain of each client if a client of weight 1 has the given gains.

    Args:
        gains: [M] g = 1 - (1 - gamma h)^C, at most 1 if C > 1.
        weights: [N] w_i N, by which the losses are multiplied.
        num_local_steps: C.

    >>> client_gains([0.19], weights=[1, 2], num_local_steps=2).round(9).tolist()
    [[0.19, 0.36]]
    """
    gain, weight = np.atleast_1d(np.asarray(gains, float)), np.asarray(weights, float)
    if num_local_steps > 1 and gain.max() > 1:
        raise ConfigError(f"gains={gain.max():g}: with {num_local_steps} local steps the largest gain is 1")
    step = gain if num_local_steps == 1 else 1 - (1 - gain) ** (1 / num_local_steps)  # gamma h
    return np.asarray(1 - (1 - step[:, None] * weight) ** num_local_steps, float)


def delay_weights(cohorts: Table, gains: npt.ArrayLike, *, fresh: Fresh = "average") -> Floats:
    """Return c_r(tau) [rounds, D + 1], where D is the largest staleness before a selection.

    Args:
        cohorts: bool [rounds, N].
        gains: g, or [N] the gains of the clients.
        fresh: a, the weight of this round's differences: "average" is 1/N, "cohort" 1/|S|.

    >>> delay_weights(np.eye(2, dtype=bool)[[0, 1, 0, 1]], 0.5)[-1].tolist()  # two clients in turn
    [0.25, 0.25, 0.0]
    """
    rounds, num_clients = cohorts.shape
    gain = np.broadcast_to(np.asarray(gains, float), (num_clients,))
    after = staleness(cohorts)
    before = np.vstack([np.full(num_clients, -1), np.where(after[:-1] < 0, -1, after[:-1] + 1)])
    weights = np.zeros((rounds, int(max(before.max(), 0)) + 1))
    for round, (members, delays) in enumerate(zip(cohorts, before, strict=True)):
        weight = _fresh_weight(fresh, members.sum(), num_clients)
        known, again = delays >= 0, members & (delays >= 0)
        np.add.at(weights[round], delays[known], gain[known] / num_clients)
        np.add.at(weights[round], delays[again], -weight * gain[again])
        weights[round, 0] += weight * gain[members].sum()
    return weights


def floquet_multipliers(weights: Floats) -> npt.NDArray[np.complex128]:
    """Return the eigenvalues of the map of z over one period, the largest first.

    Args:
        weights: c_r(tau) [P, D + 1] of the rounds of one period, as in the last P rows of `delay_weights` for cohorts
            that repeat.

    >>> floquet_multipliers(np.array([[0.25]])).real.tolist()  # gradient descent: z is multiplied by 1 - g
    [0.75]
    """
    size = weights.shape[1]
    product = np.eye(size)
    for row in weights:
        step = np.eye(size, k=-1)  # moves every value one round back
        step[0] = -row
        step[0, 0] += 1
        product = step @ product
    values = np.linalg.eigvals(product).astype(np.complex128)
    return values[np.argsort(-np.abs(values))]


def round_robin_threshold(num_rounds: float) -> float:
    r"""Return the gain up to which FedLaAvg is stable if all clients take part in turn, each once in m rounds.

    With K of N = m K clients in turn, z_{r+1} = z_r - (g/m) (z_r + ... + z_{r-m+1}). A solution z_r = l^r satisfies
    (l - 1)^2 l^(m-1) + (g/m) (l^m - 1) = 0. On the unit circle, l = exp(i w), it is

        2 sin^2(w/2) l^(m/2) = i (g/m) sin(m w/2),

    which requires l^(m/2) = +-i. The smallest such g has w = pi/m: the swing takes 2 m rounds, and

        g = 2 m sin^2(pi / (2 m)),    about pi^2 / (2 m).

    Args:
        num_rounds: m = N / K.

    >>> round(round_robin_threshold(10), 3)
    0.489
    """
    if num_rounds < 1:
        raise ConfigError(f"num_rounds={num_rounds:g}: must be at least 1")
    return 2 * num_rounds * math.sin(math.pi / (2 * num_rounds)) ** 2


def growth(cohorts: Table, gains: npt.ArrayLike, *, fresh: Fresh | npt.ArrayLike = "average") -> Growth:
    """Return the growth rate and the period of a deviation, by iterating the map from z_0 = 1 without updates.

    The first half of the rounds is left out of both.

    Args:
        cohorts: bool [rounds, N]; several times as many rounds as the largest staleness.
        gains: [M] gains of all clients, or [M, N] gains of each client; a number counts as [1].
        fresh: a, see `delay_weights`, or [M] numbers.

    >>> alone = np.ones((400, 1), bool)
    >>> bool(np.isclose(growth(alone, 0.25).rate, np.log(0.75)))
    True
    """
    rounds, num_clients = cohorts.shape
    if rounds < 4 * RESCALE_EVERY:
        raise ConfigError(f"cohorts: have {rounds} rounds, and the growth rate needs at least {4 * RESCALE_EVERY}")
    gain = np.asarray(gains, float)
    gain = (gain if gain.ndim == 2 else np.atleast_1d(gain)[:, None]).T  # [N or 1, M]
    weight = fresh if isinstance(fresh, str) else np.asarray(fresh, float)
    width = max(gain.shape[1], 1 if isinstance(weight, str) else weight.size)
    gain = np.broadcast_to(gain, (num_clients, width))
    remembered, total, z = np.zeros((num_clients, width)), np.zeros(width), np.ones(width)
    scale, iterates, scales, norms = np.zeros(width), np.empty((rounds, width)), np.empty((rounds, width)), []
    for round in range(rounds):
        members = np.flatnonzero(cohorts[round])
        iterates[round], scales[round] = z, scale
        new = gain[members] * z
        difference = (new - remembered[members]).sum(axis=0)
        z = z - total / num_clients - _fresh_weight(weight, members.size, num_clients) * difference
        total = total + difference
        remembered[members] = new
        if round % RESCALE_EVERY == RESCALE_EVERY - 1:  # also bounds the rounding error of the total
            norm = np.maximum(np.maximum(np.abs(z), np.abs(remembered).max(axis=0)), 1e-300)
            z, remembered, scale = z / norm, remembered / norm, scale + np.log(norm)
            total = remembered.sum(axis=0)
            norms.append(scale)
    times = np.arange(1, len(norms) + 1) * RESCALE_EVERY
    late = len(norms) // 2
    rate = np.polyfit(times[late:], np.array(norms)[late:], 1)[0]
    half = rounds // 2
    elapsed = np.arange(half, rounds)[:, None]
    level = scales[half:] - rate * elapsed
    return Growth(rate, _strongest_period(iterates[half:] * np.exp(level - level.max(axis=0))))


def stable_gain(
    cohorts: Table,
    *,
    fresh: Fresh = "average",
    largest: float = 1.0,
    weights: npt.ArrayLike = 1.0,
    num_local_steps: int = 1,
    tolerance: float = 0.0,
) -> StableGain:
    """Return the gain from which a deviation grows: the first on a grid, refined between it and its predecessor.

    Args:
        cohorts: bool [rounds, N].
        fresh: a, see `delay_weights`.
        largest: The largest gain to examine.
        weights: [N] w_i N; gains are those of a client of weight 1, see `client_gains`.
        num_local_steps: C.
        tolerance: The growth rate per round above which a deviation counts as growing. With clients that have left, a
            deviation can stay constant, because their remembered updates do; its measured rate is then 0 up to errors.

    >>> round(stable_gain(np.ones((400, 1), bool), largest=4).gain, 2)  # gradient descent is stable below 2
    2.0
    """
    weight = np.broadcast_to(np.asarray(weights, float), (cohorts.shape[1],))

    def examine(gains: Floats) -> Growth:
        return growth(cohorts, client_gains(gains, weights=weight, num_local_steps=num_local_steps), fresh=fresh)

    gains = np.linspace(0, largest, GRID)[1:]
    rates, swings = examine(gains)
    grid, found = gains, Growth(rates, swings)
    threshold, swing = largest, math.nan
    for refinement in range(1 + REFINEMENTS):
        unstable = np.flatnonzero(found.rate > tolerance)
        if unstable.size == 0:  # only in the first pass, or if the growth rate is within its error of 0
            break
        first = int(unstable[0])
        threshold, swing = float(grid[first]), float(found.swing[first])
        if refinement < REFINEMENTS:
            low = threshold - float(grid[1] - grid[0])
            grid = np.linspace(low, threshold, GRID)[1:]
            found = examine(grid)
    return StableGain(threshold, swing, gains, rates)


def stable_fresh(
    cohorts: Table, gain: float, *, weights: npt.ArrayLike = 1.0, num_local_steps: int = 1
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return weights a from 1/N to 1/K, evenly spaced in their logarithm, and whether each of them is stable.

    Args:
        cohorts: bool [rounds, N]; K is the size of the largest cohort.
        gain: g of a client of weight 1.
        weights: [N] w_i N.
        num_local_steps: C.
    """
    num_clients = cohorts.shape[1]
    weight = np.broadcast_to(np.asarray(weights, float), (num_clients,))
    fresh = np.geomspace(1 / num_clients, 1 / cohorts.sum(axis=1).max(), GRID)
    gains = client_gains([gain], weights=weight, num_local_steps=num_local_steps)
    return fresh, growth(cohorts, gains, fresh=fresh).rate < 0


def _fresh_weight(fresh: str | float | Floats, cohort_size: int, num_clients: int) -> Floats | float:
    if isinstance(fresh, str):
        if fresh not in ("average", "cohort"):
            raise ConfigError(f"fresh={fresh!r}: choose 'average', 'cohort' or a number")
        return 1 / (num_clients if fresh == "average" else max(int(cohort_size), 1))
    return np.asarray(fresh, float)


def _strongest_period(series: Floats) -> Floats:
    """Return [M] the period, in rows, of the largest Fourier component of each column; inf if that is the mean."""
    window = np.hanning(len(series))[:, None]
    powers = np.abs(np.fft.rfft(series * window, axis=0))
    frequency = np.argmax(powers, axis=0) / len(series)
    return np.where(frequency <= 1 / len(series), np.inf, 1 / np.maximum(frequency, 1e-300))
