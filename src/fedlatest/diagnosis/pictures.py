"""What a figure shows of a fleet, in at most a few hundred points per curve."""

from dataclasses import dataclass

import numpy as np

from fedlatest.diagnosis.correlation import numbered
from fedlatest.diagnosis.fedavg_bias import fedavg_weights
from fedlatest.diagnosis.fleet import Fleet, Floats
from fedlatest.runs.clients import clients_of_table, edges, longest_absences

MOST_POINTS = 400
PHASES = 48  # half hours of a day


@dataclass(frozen=True)
class FleetPictures:
    """Curves and a picture of a fleet. Times are in rounds, ascending; clients are sorted for each curve."""

    rows: list[str]
    """The picture: one hexadecimal digit per cell, f where the clients of the row are available in all rounds of the
    column. Rows are groups of clients, the most available first."""
    by_label: bool
    """Whether the rows are sorted by label first."""
    row_edges: list[int]
    column_edges: list[int]
    available: list[float]
    """Mean number of available clients in each column."""
    cycle: float | None
    profile: list[tuple[float, float, float, float]]
    """Of the number available over a cycle: phase (0 to 1), mean, and the quantiles 10% and 90%; empty without one."""
    shares: list[float]
    """Share of time in which a client is available, descending."""
    longest_absences: list[float]
    """Longest absence of each client as a share of the record, descending; 1 for a client that was never available."""
    times_fair: list[float]
    """Weight in FedAvg's limit divided by the fair weight, descending."""


def fleet_pictures(fleet: Fleet, cycle: float | None) -> FleetPictures:
    """Return what a figure shows.

    Args:
        fleet: The fleet.
        cycle: The length of the cycle in rounds, if there is one.
    """
    shares = fleet.available.mean(axis=0)
    labels = np.zeros(shares.size, int) if fleet.labels is None else numbered(fleet.labels)[1]
    picture = clients_of_table(fleet.available[:, np.lexsort((-shares, labels))])
    counts = fleet.available.sum(axis=1)
    columns = edges(fleet.num_rounds, picture.available.shape[1])
    fair = fleet.weights
    return FleetPictures(
        rows=["".join(f"{round(cell / 17):x}" for cell in row) for row in picture.available.tolist()],
        by_label=bool(labels.any()),
        row_edges=picture.row_edges.tolist(),
        column_edges=columns.tolist(),
        available=_rounded(np.add.reduceat(counts, columns[:-1]) / np.diff(columns)),
        cycle=cycle,
        profile=[] if cycle is None else _profile(counts, cycle, begins=_phase(fleet, cycle)),
        shares=_thinned(shares),
        longest_absences=_thinned(longest_absences(fleet.available) / fleet.num_rounds),
        times_fair=_thinned(fedavg_weights(fleet.available, fair) / np.maximum(fair, 1e-300)),
    )


def _phase(fleet: Fleet, cycle: float) -> float:
    """Return in which round of the cycle the record begins: that since midnight if the cycle is a day, otherwise 0."""
    return fleet.midnight * fleet.num_rounds / fleet.length if cycle == fleet.day else 0.0


def _profile(counts: Floats, cycle: float, *, begins: float) -> list[tuple[float, float, float, float]]:
    phases = min(PHASES, max(2, int(cycle)))
    number = ((np.arange(counts.size) + begins) % cycle * phases / cycle).astype(int)
    found = []
    for phase in range(phases):
        own = counts[number == phase]
        if own.size:
            low, high = np.quantile(own, [0.1, 0.9])
            found.append(((phase + 0.5) / phases, float(own.mean()), float(low), float(high)))
    return found


def _thinned(values: Floats) -> list[float]:
    """Return values in descending order, at most MOST_POINTS evenly spaced ones with the first and the last."""
    ordered = np.sort(values)[::-1]
    return _rounded(ordered[np.linspace(0, ordered.size - 1, min(ordered.size, MOST_POINTS)).round().astype(int)])


def _rounded(values: Floats) -> list[float]:
    return [float(f"{value:.5g}") for value in values]
