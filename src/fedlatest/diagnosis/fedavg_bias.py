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
"""

from dataclasses import dataclass

import numpy as np

from fedlatest.diagnosis.correlation import Association, numbered, permutation_test
from fedlatest.diagnosis.fleet import Fleet, Floats, Table

WINDOWS = 8  # of a cycle: three hours of a day
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
    window_variation: float
    """Between the q of a window and the q of all rounds, mean over the windows."""
    windows: str
    """What is divided into windows: "day", "cycle" or, without a cycle, "record"."""
    labels: list[LabelShift] | None
    label_variation: Association | None
    """As `total_variation`, of the weights of labels."""
    label_window_variation: Association | None
    """As `window_variation`, of the weights of labels."""


def fedavg_weights(available: Table, weights: Floats) -> Floats:
    """Return [N] q, the weights of the clients in FedAvg's limit for small steps.

    Args:
        available: bool[R, N]; in at least one round a client is available.
        weights: [N] w, the weights in the objective.

    >>> fedavg_weights(np.array([[True, False]] * 3 + [[False, True]]), np.array([0.5, 0.5])).tolist()
    [0.75, 0.25]
    """
    shares = weights * participation(available)
    return np.asarray(shares / shares.sum())


def participation(available: Table) -> Floats:
    """Return [N] m, the mean weight 1 / M_r of a client in the rounds, 0 where it is not available."""
    counts = available.sum(axis=1)
    return np.asarray((1 / np.maximum(counts, 1)) @ available / len(available))


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
    return FedAvgBias(
        effective_clients=float(1 / (biased**2).sum()),
        fair_clients=float(1 / (fair**2).sum()),
        top_share=float(biased[top].sum()),
        fair_top_share=float(fair[top].sum()),
        total_variation=_distance(biased, fair),
        window_variation=float(np.mean([_distance(window, biased) for window in windows])),
        windows="record" if cycle is None else "day" if cycle_is_day else "cycle",
        labels=labels,
        label_variation=shift,
        label_window_variation=swing,
    )


def window_weights(fleet: Fleet, cycle: float | None) -> Floats:
    """Return [windows, N] the weights q in each eighth of the cycle, or of all rounds; empty windows are left out."""
    rounds = np.arange(fleet.num_rounds)
    number = (rounds % (cycle or fleet.num_rounds) * WINDOWS / (cycle or fleet.num_rounds)).astype(int)
    parts = [fleet.available[number == window] for window in range(WINDOWS)]
    return np.array([fedavg_weights(part, fleet.weights) for part in parts if part.any()])


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
        return _distance(biased[clients] @ in_label, fleet.weights[clients] @ in_label)

    def swing(order: Floats) -> float:
        clients = order.astype(int)
        whole = biased[clients] @ in_label
        return float(np.mean([_distance(window, whole) for window in windows[:, clients] @ in_label]))

    everyone = np.arange(fleet.num_clients, dtype=float)
    return shifts, permutation_test(shift, everyone), permutation_test(swing, everyone)


def _distance(first: Floats, second: Floats) -> float:
    """Return the total variation distance of two weightings."""
    return float(np.abs(first - second).sum() / 2)
