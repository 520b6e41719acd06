r"""The bias of FedAvg: Theorem 1's limit for small steps, generalised to any number of clients and any availability.

In round r, M_r clients are available, and FedAvg adds the mean update of K of them, drawn uniformly, or of all M_r if
there are fewer than K. With min(K, M_r) clients in the cohort, client i is one of them with probability
min(K, M_r) / M_r and then counts 1 / min(K, M_r). So whatever K is, the expected step is

    sum_i a_ri / M_r  u_i        a_ri = 1 if client i is available in round r, otherwise 0; no step if M_r = 0.

For small steps gamma, x hardly changes while the availability goes through its cycle, and u_i = -gamma grad f_i(x),
multiplied by w_i N if the objective is sum_i w_i f_i. The sum of the steps over R rounds is then a step along the
gradient of sum_i q_i f_i with

    q_i = w_i m_i / sum_j w_j m_j,    m_i = (1/R) sum_r a_ri / M_r,

so FedAvg converges to the minimum of sum_i q_i f_i instead of that of sum_i w_i f_i. In Example 1 (M_r = 1, client 1 in
t1 of t1 + t2 rounds), q = (t1, t2) / (t1 + t2), and the minimum is (t1 e1 + t2 e2) / (t1 + t2), Theorem 1's limit.

The total variation distance d = 1/2 sum_i |q_i - w_i| says how much weight is at the wrong clients. For losses
h/2 (x - e_i)^2 the error is |sum_i (q_i - w_i) e_i| <= d (max e - min e). With larger steps, x follows the clients that
are available in a part of the cycle; the distance of the weights q of such a window from those of all rounds bounds how
far.

A record of finite length gives distances above 0 also if all clients are available equally often. How large they are by
chance follows from the differences between parts of the record: if the weights q_b of B parts vary independently about
their mean with a standard deviation s_i for client i, the mean of the parts is wrong by sqrt(2 / (pi B)) s_i on
average, and a part differs from the mean of the parts by sqrt(2 (B - 1) / (pi B)) s_i. So the distance by chance is the
mean distance of the parts from their mean, divided by sqrt(B - 1). Parts are as long as a whole number of cycles; for a
window of the cycle they are this window in different cycles, and without a cycle they are quarters of the window.
This fails if a client is available in fewer than about two rounds of the record or of a window, on average; such
weights count as chance.
"""

from dataclasses import dataclass

import numpy as np

from fedlatest.diagnosis.correlation import Association, numbered, permutation_test
from fedlatest.diagnosis.fleet import Fleet, Floats, Integers, Table

WINDOWS = 8  # of a cycle: three hours of a day
PARTS, MOST_PARTS = 4, 16  # of a window without a cycle; groups of cycles
FEWEST = 2  # rounds in which a client is available, on average, so that its weight is not only chance
TOP = 0.1  # share of the clients whose weight is reported


@dataclass(frozen=True)
class LabelShift:
    """The weight of a label's clients."""

    label: str
    clients: int
    fair: float
    """In the objective."""
    fedavg: float
    """In FedAvg's limit."""
    lowest: float
    """In the window in which they have the least."""
    highest: float


@dataclass(frozen=True)
class FedAvgBias:
    """How the weights of clients in FedAvg's limit differ from those of the objective."""

    effective_clients: float
    """1 / sum of q_i^2."""
    fair_clients: float
    """1 / sum of w_i^2; N if all clients count alike."""
    top_share: float
    """Weight of the 10% of the clients with the largest q_i / w_i."""
    fair_top_share: float
    """Their weight in the objective."""
    total_variation: float
    """Between q and w."""
    chance: float
    """The `total_variation` that a record of this length would have if all clients were available equally often."""
    window_variation: float
    """Between the q of a window and the q of all rounds, mean over the windows."""
    window_chance: float
    """The `window_variation` that a record of this length would have if availability did not change with time."""
    windows: str
    """What is divided into windows: "day", "cycle" or, without a cycle, "record"."""
    labels: list[LabelShift] | None
    label_variation: Association | None
    """As `total_variation`, of the weights of labels."""
    label_window_variation: Association | None
    """As `window_variation`, of the weights of labels."""

    @property
    def excess(self) -> float:
        """How far the weights over all rounds or in windows are from fair ones, beyond chance; the larger of both."""
        return max(0.0, self.total_variation - self.chance, self.window_variation - self.window_chance)


def fedavg_weights(
    available: Table | Floats, weights: Floats, *, members: Integers | None = None, lengths: Integers | None = None
) -> Floats:
    """Return [N] q, the weights of the clients in FedAvg's limit for small steps.

    Args:
        available: bool[R, N]; in at least one round a client is available. Or shares, if rows are ranges of rounds or
            columns are groups of clients.
        weights: [N] w, the weights in the objective.
        members: [N] number of clients in each group; 1 by default.
        lengths: [R] number of rounds in each range; 1 by default.

    >>> fedavg_weights(np.array([[True, False]] * 3 + [[False, True]]), np.array([0.5, 0.5])).tolist()
    [0.75, 0.25]
    """
    counts = available.sum(axis=1) if members is None else available @ members  # [R] M_r
    per_round = np.divide(1.0 if lengths is None else lengths, counts, where=counts > 0, out=np.zeros(len(counts)))
    shares = weights * (per_round @ available)  # m up to a factor
    return np.asarray(shares / shares.sum())


def fedavg_bias(fleet: Fleet, *, cycle: float | None = None, cycle_is_day: bool = False) -> FedAvgBias:
    """Return the bias of FedAvg for the availability of a fleet.

    Args:
        fleet: The fleet.
        cycle: The length in rounds of the cycle that is divided into windows; by default all rounds.
        cycle_is_day: Whether the cycle is a day.
    """
    fair = fleet.weights
    biased = fedavg_weights(fleet.available, fair)
    windows = window_weights(fleet, cycle)
    ratio = biased / np.maximum(fair, 1e-300)
    top = np.argsort(-ratio, kind="stable")[: max(1, round(TOP * fair.size))]
    labels, shift, swing = _label_facts(fleet, biased, windows)
    measured = total_variation(biased, fair)
    in_windows = float(np.mean([total_variation(window, biased) for window in windows]))
    appearances = fleet.available.sum() / fleet.num_clients
    return FedAvgBias(
        effective_clients=float(1 / (biased**2).sum()),
        fair_clients=float(1 / (fair**2).sum()),
        top_share=float(biased[top].sum()),
        fair_top_share=float(fair[top].sum()),
        total_variation=measured,
        chance=_chance(fleet, cycle) if appearances >= FEWEST else measured,
        window_variation=in_windows,
        window_chance=_window_chance(fleet, cycle) if appearances >= FEWEST * WINDOWS else in_windows,
        windows="record" if cycle is None else "day" if cycle_is_day else "cycle",
        labels=labels,
        label_variation=shift,
        label_window_variation=swing,
    )


def window_weights(fleet: Fleet, cycle: float | None) -> Floats:
    """Return [windows, N] the weights q in each eighth of the cycle, or of all rounds; empty windows are left out."""
    return _weights_of_parts(fleet, _window_of_round(fleet, cycle))


def total_variation(first: Floats, second: Floats) -> float:
    """Return the total variation distance of two weightings."""
    return float(np.abs(first - second).sum() / 2)


def _window_of_round(fleet: Fleet, cycle: float | None) -> Integers:
    rounds, length = np.arange(fleet.num_rounds), cycle or fleet.num_rounds
    return (rounds % length * WINDOWS / length).astype(np.int64)


def _weights_of_parts(fleet: Fleet, number: Integers) -> Floats:
    """Return [parts, N] the weights q of the rounds with each number, without parts in which no client counts.

    Args:
        fleet: The fleet.
        number: [R] the number of the part of each round; -1 for none.
    """
    parts = [fleet.available[number == part] for part in range(number.max() + 1)]
    counting = fleet.weights > 0
    return np.array([fedavg_weights(part, fleet.weights) for part in parts if part[:, counting].any()])


def _chance(fleet: Fleet, cycle: float | None) -> float:
    """Return the distance of the weights of the record from their expectation that is due to chance."""
    rounds, num_cycles = np.arange(fleet.num_rounds), 0 if cycle is None else int(fleet.num_rounds / cycle)
    if cycle is None or num_cycles < 2:
        return _error_of_mean(_weights_of_parts(fleet, rounds * WINDOWS // fleet.num_rounds))
    of_cycle = (rounds / cycle).astype(np.int64)
    number = of_cycle * min(WINDOWS, num_cycles) // num_cycles
    return _error_of_mean(_weights_of_parts(fleet, np.where(of_cycle < num_cycles, number, -1)))


def _window_chance(fleet: Fleet, cycle: float | None) -> float:
    """Return the distance of the weights of a window from those of the record that is due to chance."""
    rounds, window = np.arange(fleet.num_rounds), _window_of_round(fleet, cycle)
    part = rounds * WINDOWS * PARTS // fleet.num_rounds % PARTS
    if cycle is not None:
        of_cycle = (rounds / cycle).astype(np.int64)
        part = of_cycle * min(MOST_PARTS, of_cycle[-1] + 1) // (of_cycle[-1] + 1)
    errors = [
        _error_of_mean(_weights_of_parts(fleet, np.where(own, part, -1)))
        for own in (window == number for number in range(WINDOWS))
        if fleet.available[own].any()
    ]
    return float(np.mean(errors) * np.sqrt(1 - 1 / WINDOWS))  # the window is a part of the record


def _error_of_mean(parts: Floats) -> float:
    """Return the distance of the mean of independent weightings, [parts, N], from its expectation, on average.

    >>> round(_error_of_mean(np.array([[0.7, 0.3], [0.3, 0.7]])), 9)
    0.2
    """
    if len(parts) < 2:
        return 0.0
    return float(np.mean([total_variation(part, parts.mean(axis=0)) for part in parts]) / np.sqrt(len(parts) - 1))


def _label_facts(
    fleet: Fleet, biased: Floats, windows: Floats
) -> tuple[list[LabelShift] | None, Association | None, Association | None]:
    """Return the weights of the labels, how far FedAvg shifts them, and how far they swing between windows.

    Args:
        fleet: The fleet.
        biased: [N] q.
        windows: [windows, N] q of each window.
    """
    if fleet.labels is None:
        return None, None, None
    names, groups, counts = numbered(fleet.labels)
    in_label = np.eye(counts.size)[groups]  # [N, labels]
    columns = (fleet.weights @ in_label, biased @ in_label, *((windows @ in_label).min(0), (windows @ in_label).max(0)))
    rows = zip(names, counts.tolist(), *(column.tolist() for column in columns), strict=True)
    shifts = [LabelShift(*row) for row in rows]
    if counts.size < 2:
        return shifts, None, None

    def shift(order: Floats) -> float:
        clients = order.astype(int)
        return total_variation(biased[clients] @ in_label, fleet.weights[clients] @ in_label)

    def swing(order: Floats) -> float:
        clients = order.astype(int)
        whole = biased[clients] @ in_label
        return float(np.mean([total_variation(window, whole) for window in windows[:, clients] @ in_label]))

    everyone = np.arange(fleet.num_clients, dtype=float)
    return shifts, permutation_test(shift, everyone), permutation_test(swing, everyone)
