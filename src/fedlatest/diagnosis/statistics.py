"""How available a fleet is: shares of time, the number of available clients, absences and spells."""

from dataclasses import dataclass

import numpy as np

from fedlatest.diagnosis.fleet import Fleet
from fedlatest.runs.clients import longest_absences

MOST_NAMED = 10
LEFT = 0.5  # a client that is absent for this share of the time at the end counts as one that has left


@dataclass(frozen=True)
class AvailabilityFacts:
    """How available the clients are. Times are in rounds, unless the name says otherwise."""

    num_clients: int
    num_rounds: int
    round_seconds: float | None
    """Length of a round; None if the unit of time is unknown."""
    days: float | None
    mean_share: float
    """Share of the rounds in which a client is available, mean over clients."""
    shares: list[float]
    """The smallest share of a client, the three quartiles, and the largest."""
    available: list[float]
    """Number of available clients: the smallest, the quantiles 10%, 50% and 90%, and the largest."""
    num_never: int
    never: list[str]
    """Names of clients that were never available, at most ten."""
    num_left: int
    """Clients that were available and then absent for at least half of the time, until the end."""
    longest_absence: int
    """Of any client that was available at least once."""
    median_longest_absence: float
    most_absent: list[tuple[str, int]]
    """The clients with the longest absences, and these."""
    median_spell: float
    """Rounds for which a client stays available, median."""
    median_gap: float
    """Rounds between two spells of a client, median; 0 if no client came back."""
    smallest_e: int
    """E of Assumption 4 for the clients that were available at least once."""

    @property
    def num_seen(self) -> int:
        """Number of clients that were available at least once."""
        return self.num_clients - self.num_never


def availability_facts(fleet: Fleet) -> AvailabilityFacts:
    """Return how available the clients of a fleet are."""
    table = fleet.available
    shares, counts = table.mean(axis=0), table.sum(axis=1)
    seen = np.flatnonzero(table.any(axis=0))
    never = np.flatnonzero(~table.any(axis=0))
    absences = longest_absences(table[:, seen])
    final = np.argmax(table[::-1, seen], axis=0)  # rounds after the last one in which a client is available
    order = np.argsort(-absences, kind="stable")
    edges = np.diff(table[:, seen].T.astype(np.int8), axis=1, prepend=0, append=0)
    (first_of, first), (_, after) = np.nonzero(edges == 1), np.nonzero(edges == -1)
    gaps = (first[1:] - after[:-1])[first_of[1:] == first_of[:-1]]
    round_seconds = None if fleet.unit is None else fleet.length * fleet.unit / fleet.num_rounds
    return AvailabilityFacts(
        num_clients=fleet.num_clients,
        num_rounds=fleet.num_rounds,
        round_seconds=round_seconds,
        days=None if fleet.day is None else fleet.num_rounds / fleet.day,
        mean_share=float(shares.mean()),
        shares=[float(share) for share in np.quantile(shares, [0, 0.25, 0.5, 0.75, 1])],
        available=[float(count) for count in np.quantile(counts, [0, 0.1, 0.5, 0.9, 1])],
        num_never=never.size,
        never=[fleet.names[client] for client in never[:MOST_NAMED]],
        num_left=int((final >= LEFT * fleet.num_rounds).sum()),
        longest_absence=int(absences.max()),
        median_longest_absence=float(np.median(absences)),
        most_absent=[(fleet.names[seen[client]], int(absences[client])) for client in order[:5]],
        median_spell=float(np.median(after - first)),
        median_gap=float(np.median(gaps)) if gaps.size else 0.0,
        smallest_e=int(absences.max()) + 1,
    )
