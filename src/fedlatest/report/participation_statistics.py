"""Statistics of a run's cohorts: staleness, how often each client took part, and participation over time."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fedlatest.runs import ClientRecord, Participation


def staleness_counts(participation: Participation, num_clients: int) -> npt.NDArray[np.int64]:
    """Return how many (seed, client, round) triples have staleness 0, 1, 2, ...; shape [largest + 1].

    Staleness is r - R_i after the selection; R_i is -1 for a client that has not taken part yet. A client that takes
    part in round p and next in round q has the staleness 0, 1, ..., q - p - 1 in between, each once. An interval is
    therefore described by its last staleness, and no array of size N x rounds is needed.
    """
    rounds = participation.num_rounds
    last = [_last_staleness(participation, seed, num_clients) for seed in range(len(participation.offsets))]
    ending = np.bincount(np.concatenate(last), minlength=rounds + 1)
    counts = np.cumsum(ending[::-1])[::-1]
    counts[0] -= len(last) * num_clients  # the intervals that start before round 0 start at staleness 1
    return np.trim_zeros(counts, "b")


def participation_counts(participation: Participation, num_clients: int) -> npt.NDArray[np.int64]:
    """Return in how many rounds each client took part, [seeds, N]."""
    seeds = range(len(participation.offsets))
    return np.array([np.bincount(_pairs(participation, seed)[0], minlength=num_clients) for seed in seeds])


def jain_index(counts: npt.NDArray[np.int64]) -> float:
    """Return Jain's fairness index: 1 if all counts are equal, 1 / N if only one is not 0.

    >>> jain_index(np.array([2, 2, 2, 2])), jain_index(np.array([8, 0, 0, 0]))
    (1.0, 0.25)
    """
    values = counts.astype(np.float64)
    return float(values.sum() ** 2 / (values.size * (values**2).sum())) if values.any() else 1.0


def participation_picture(
    participation: Participation, clients: ClientRecord, *, model_rounds: npt.NDArray[np.int64] | None = None
) -> npt.NDArray[np.float64]:
    """Return the share of (client, round) pairs that took part, [rows, columns] as in the availability picture.

    The first seed is shown.

    Args:
        participation: The cohorts.
        clients: The clients, with the picture of their availability.
        model_rounds: [rounds] the round of the availability model in which each round took place, if availability
            followed the time; clients may then take part more than once per round of the picture. By default they
            are the same.
    """
    rows, columns = np.diff(clients.row_edges), np.diff(clients.column_edges)
    row_of = np.empty(clients.order.size, np.int64)
    row_of[clients.order] = np.repeat(np.arange(rows.size), rows)
    column_of = np.repeat(np.arange(columns.size), columns)
    positions, rounds = _pairs(participation, 0)
    if model_rounds is not None:
        rounds = model_rounds[rounds]
        shown = rounds < column_of.size
        positions, rounds = positions[shown], rounds[shown]
    cells = row_of[positions] * columns.size + column_of[rounds]
    took_part = np.bincount(cells, minlength=rows.size * columns.size).reshape(rows.size, columns.size)
    return took_part / np.outer(rows, columns)


def _last_staleness(participation: Participation, seed: int, num_clients: int) -> npt.NDArray[np.int64]:
    """Return the last staleness of every interval between two selections of a client, or to either end of the run."""
    clients, rounds = _pairs(participation, seed)
    by_client = np.argsort(clients, kind="stable")  # rounds stay ascending within a client
    clients, rounds = clients[by_client], rounds[by_client]
    before = np.full(rounds.shape, -1)
    same = clients[1:] == clients[:-1]
    before[1:][same] = rounds[:-1][same]
    last_round = np.full(num_clients, -1)
    last_round[clients] = rounds  # the last of a client's rounds is assigned last
    return np.concatenate([rounds - before - 1, participation.num_rounds - 1 - last_round])


def _pairs(participation: Participation, seed: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Return the (client, round) pairs of one seed, ordered by round."""
    offsets = participation.offsets[seed]
    rounds = np.repeat(np.arange(participation.num_rounds), np.diff(offsets))
    return participation.clients[offsets[0] : offsets[-1]], rounds
