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
    empty_share: float
    """Share of the rounds in which nobody is available."""
    usually_available: float
    """Number of clients that are available in 90% of the rounds in which somebody is."""
    num_never: int
    """Clients that are not available at the start of any round."""
    num_between: int
    """Those of them that are available between the starts of two rounds."""
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
    """Rounds for which a client stays available, median; measured in time, so that it can be a part of a round."""
    median_gap: float
    """Rounds between two spells of a client, median, measured in time; 0 if no client came back."""
    smallest_e: int
    """E of Assumption 4 for the clients that were available at least once."""

    @property
    def num_seen(self) -> int:
        """Number of clients that were available at the start of at least one round."""
        return self.num_clients - self.num_never


def availability_facts(fleet: Fleet) -> AvailabilityFacts:
    """Return how available the clients of a fleet are."""
    table = fleet.available
    shares, counts = table.mean(axis=0), table.sum(axis=1)
    seen = np.flatnonzero(table.any(axis=0))
    has_spell = np.isin(np.arange(fleet.num_clients), fleet.spells.clients)
    never, between = np.flatnonzero(~has_spell), np.flatnonzero(has_spell & ~table.any(axis=0))
    absences = longest_absences(table[:, seen])
    final = np.argmax(table[::-1, seen], axis=0)  # rounds after the last one in which a client is available
    order = np.argsort(-absences, kind="stable")
    clients, starts, ends = fleet.spells
    gaps = (starts[1:] - ends[:-1])[clients[1:] == clients[:-1]]
    per_unit = fleet.num_rounds / fleet.length
    round_seconds = None if fleet.unit is None else fleet.length * fleet.unit / fleet.num_rounds
    return AvailabilityFacts(
        num_clients=fleet.num_clients,
        num_rounds=fleet.num_rounds,
        round_seconds=round_seconds,
        days=None if fleet.day is None else fleet.num_rounds / fleet.day,
        mean_share=float(shares.mean()),
        shares=[float(share) for share in np.quantile(shares, [0, 0.25, 0.5, 0.75, 1])],
        available=[float(count) for count in np.quantile(counts, [0, 0.1, 0.5, 0.9, 1])],
        empty_share=float((counts == 0).mean()),
        usually_available=float(np.quantile(counts[counts > 0], 0.1)),
        num_never=never.size + between.size,
        num_between=between.size,
        never=[fleet.names[client] for client in never[:MOST_NAMED]],
        num_left=int((final >= LEFT * fleet.num_rounds).sum()),
        longest_absence=int(absences.max()),
        median_longest_absence=float(np.median(absences)),
        most_absent=[(fleet.names[seen[client]], int(absences[client])) for client in order[:5]],
        median_spell=float(np.median(ends - starts) * per_unit),
        median_gap=float(np.median(gaps) * per_unit) if gaps.size else 0.0,
        smallest_e=int(absences.max()) + 1,
    )
