"""What follows from who took part: staleness of every client in every round, shares, a picture."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fedlatest.runs import ClientRecord, Participation


def staleness_counts(participation: Participation, num_clients: int) -> npt.NDArray[np.int64]:
    """[largest + 1] how many (seed, client, round) triples have staleness 0, 1, 2, ...

    Staleness is r - R_i after the selection; R_i is -1 for a client never seen. A client that takes part in round p and
    next in round q passes through the staleness 0 .. q - p - 1, each once: so a stretch is known by its longest, and
    nothing of size N x rounds is needed.
    """
    rounds = participation.num_rounds
    longest = [_longest(participation, seed, num_clients) for seed in range(len(participation.offsets))]
    ending = np.bincount(np.concatenate(longest), minlength=rounds + 1)
    counts = np.cumsum(ending[::-1])[::-1]
    counts[0] -= len(longest) * num_clients  # the stretches from before round 0 begin at staleness 1
    return np.trim_zeros(counts, "b")


def _longest(participation: Participation, seed: int, num_clients: int) -> npt.NDArray[np.int64]:
    """The last staleness of every stretch between two selections of a client, those at the two ends included."""
    clients, rounds = _pairs(participation, seed)
    by_client = np.argsort(clients, kind="stable")  # rounds stay ascending within a client
    clients, rounds = clients[by_client], rounds[by_client]
    before = np.full(rounds.shape, -1)
    same = clients[1:] == clients[:-1]
    before[1:][same] = rounds[:-1][same]
    last = np.full(num_clients, -1)
    last[clients] = rounds  # of a client's rounds the last one stays
    return np.concatenate([rounds - before - 1, participation.num_rounds - 1 - last])


def times_chosen(participation: Participation, num_clients: int) -> npt.NDArray[np.int64]:
    """[seeds, N] in how many rounds each client took part."""
    seeds = range(len(participation.offsets))
    return np.array([np.bincount(_pairs(participation, seed)[0], minlength=num_clients) for seed in seeds])


def jain_index(counts: npt.NDArray[np.int64]) -> float:
    """Jain's index of fairness: 1 if all are equal, 1 / N if one has everything.

    >>> jain_index(np.array([2, 2, 2, 2])), jain_index(np.array([8, 0, 0, 0]))
    (1.0, 0.25)
    """
    values = counts.astype(np.float64)
    return float(values.sum() ** 2 / (values.size * (values**2).sum())) if values.any() else 1.0


def picture(participation: Participation, clients: ClientRecord) -> npt.NDArray[np.float64]:
    """[rows, columns] the share of (client, round) pairs that took part, in the bins of the availability picture."""
    rows, columns = np.diff(clients.row_edges), np.diff(clients.column_edges)
    row_of = np.empty(clients.order.size, np.int64)
    row_of[clients.order] = np.repeat(np.arange(rows.size), rows)
    column_of = np.repeat(np.arange(columns.size), columns)
    who, when = _pairs(participation, 0)
    cells = row_of[who] * columns.size + column_of[when]
    took_part = np.bincount(cells, minlength=rows.size * columns.size).reshape(rows.size, columns.size)
    return took_part / np.outer(rows, columns)


def _pairs(participation: Participation, seed: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """The (client, round) pairs of one seed, by round."""
    offsets = participation.offsets[seed]
    rounds = np.repeat(np.arange(participation.num_rounds), np.diff(offsets))
    return participation.clients[offsets[0] : offsets[-1]], rounds
