"""Records about clients: clients.npz (labels, sizes, availability over time) and participation.npz (cohorts)."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.runs.array_files import load_npz, save_npz

MOST_ROWS, MOST_COLUMNS = 120, 400  # size limits of an availability picture
MOST_NAMED = 10  # clients that were never available, listed in a manifest
QUARTERS = 24 * 4  # quarter hours in a day


class ClientRecord(NamedTuple):
    """The clients of a run and a picture of their availability (of the run's first seed).

    Row i of the picture is about the clients order[row_edges[i] : row_edges[i + 1]], column j about the rounds
    column_edges[j] .. column_edges[j + 1] - 1. A cell is 255 times the share of these (client, round) pairs in which
    the client was available. `order` sorts clients by label, and clients of one label by the start of their window.

    The picture of many clients or rounds is made from a sample of them, whose sizes are in `sample`.

    `sent` has no rows if samples have no time of day, and `window` has no rows if clients have no daily window. Files
    of older versions lack the arrays with defaults and are read as if these were empty.
    """

    labels: npt.NDArray[np.int32]  # [N] the most frequent label of a client; all 0 if labels are not classes
    sizes: npt.NDArray[np.int64]  # [N] samples
    order: npt.NDArray[np.int32]  # [N]
    row_edges: npt.NDArray[np.int64]  # [rows + 1]
    column_edges: npt.NDArray[np.int64]  # [columns + 1]
    available: npt.NDArray[np.uint8]  # [rows, columns]
    sent: npt.NDArray[np.uint16] = np.zeros((0, QUARTERS), np.uint16)  # [N, 96] samples per quarter hour of the day
    window: npt.NDArray[np.float32] = np.zeros((0, 2), np.float32)  # [N, 2] start and length in hours
    sample: npt.NDArray[np.int64] = np.zeros(0, np.int64)  # [2] clients and rounds from which the picture is made

    @property
    def sample_note(self) -> str:
        """What the picture is a sample of, for captions; empty if it shows all clients and rounds.

        >>> record = clients_of_table(np.ones((800, 300), bool))
        >>> record.sample_note, record._replace(sample=np.array([60, 400])).sample_note
        ('', 'a sample: 60 of 300 clients, 400 of 800 rounds')
        """
        totals = {"clients": self.labels.size, "rounds": int(self.column_edges[-1])}
        parts = [
            f"{shown:,} of {total:,} {name}"
            for shown, (name, total) in zip(self.sample.tolist(), totals.items(), strict=False)
            if shown < total
        ]
        return f"a sample: {', '.join(parts)}" if parts else ""


class Participation(NamedTuple):
    """The cohorts of a run: clients[offsets[s, r] : offsets[s, r + 1]], ascending, for seed number s and round r."""

    clients: npt.NDArray[Any]
    offsets: npt.NDArray[np.int64]  # [seeds, rounds + 1]

    @property
    def num_rounds(self) -> int:
        """Number of recorded rounds."""
        return self.offsets.shape[1] - 1

    def cohort(self, *, seed: int, round: int) -> npt.NDArray[Any]:
        """Return the positions of the clients in a cohort; `seed` counts the run's seeds from 0."""
        return self.clients[self.offsets[seed, round] : self.offsets[seed, round + 1]]


def save_clients(path: Path, clients: ClientRecord) -> None:
    """Save a client record as a compressed .npz file, atomically."""
    save_npz(path, clients._asdict())


def load_clients(path: Path) -> ClientRecord:
    """Load a file written by `save_clients`."""
    return ClientRecord(*load_npz(path, ClientRecord._fields, ClientRecord._field_defaults))


def save_participation(path: Path, participation: Participation) -> None:
    """Save participation as a compressed .npz file, atomically."""
    save_npz(path, participation._asdict())


def load_participation(path: Path) -> Participation:
    """Load a file written by `save_participation`."""
    return Participation(*load_npz(path, Participation._fields))


def edges(length: int, most: int) -> npt.NDArray[np.int64]:
    """Return the edges of at most `most` bins of nearly equal size that cover range(length).

    >>> edges(10, 4).tolist()
    [0, 2, 5, 8, 10]
    """
    return np.round(np.linspace(0, length, min(length, most) + 1)).astype(np.int64)


def clients_of_table(available: npt.NDArray[np.bool_]) -> ClientRecord:
    """Return the record of clients about whom only their availability, a table [rounds, N], is known."""
    num_rounds, num_clients = available.shape
    rows, columns = edges(num_clients, MOST_ROWS), edges(num_rounds, MOST_COLUMNS)
    shares = np.array(
        [
            [available[first:last, top:bottom].mean() for first, last in pairwise(columns)]
            for top, bottom in pairwise(rows)
        ]
    )
    picture = np.round(255 * shares).astype(np.uint8).reshape(len(rows) - 1, len(columns) - 1)
    unknown = np.zeros(num_clients, np.int32)
    order = np.arange(num_clients, dtype=np.int32)
    sample = np.array([num_clients, num_rounds])
    return ClientRecord(unknown, unknown.astype(np.int64), order, rows, columns, picture, sample=sample)


def assumption_of_table(available: npt.NDArray[np.bool_]) -> dict[str, Any]:
    """Return a manifest's facts about Assumption 4 for an availability table [rounds, N].

    The assumption holds if no client was unavailable in all rounds; the smallest E is then the longest absence of any
    client, in rounds, plus 1.

    >>> facts = assumption_of_table(np.array([[True, False], [True, False], [False, True]]))
    >>> facts["smallest_e"], facts["assumption_holds"]
    (3, True)
    """
    never = np.flatnonzero(~available.any(axis=0))
    return {
        "smallest_e": None if never.size else 1 + int(longest_absences(available).max(initial=0)),
        "assumption_holds": never.size == 0,
        "num_never_available": int(never.size),
        "never_available": never[:MOST_NAMED].tolist(),
    }


def longest_absences(available: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return [N] the largest number of consecutive rounds in which each client of a table [rounds, N] is unavailable.

    >>> longest_absences(np.array([[True, False], [True, False], [False, True]])).tolist()
    [1, 2]
    """
    return np.array([_longest_absence(column) for column in available.T], np.int64)


def pack(clients: npt.NDArray[Any], mask: npt.NDArray[np.bool_], num_clients: int) -> Participation:
    """Pack cohorts into the form in which they are stored.

    Args:
        clients: [seeds, rounds, K] positions of clients.
        mask: [seeds, rounds, K] which of these slots are used.
        num_clients: N.
    """
    ordered = np.sort(np.where(mask, clients, num_clients), axis=-1)
    kept = ordered[ordered < num_clients].astype(np.min_scalar_type(num_clients))
    counts = mask.sum(axis=-1)
    ends = np.cumsum(counts.reshape(-1)).reshape(counts.shape)
    starts = np.concatenate([[0], ends[:-1, -1]])
    return Participation(kept, np.concatenate([starts[:, None], ends], axis=1))


def pack_table(took_part: npt.NDArray[np.bool_]) -> Participation:
    """Pack the cohorts of one seed, given as a table [rounds, N] of which client took part in which round."""
    clients = np.nonzero(took_part)[1].astype(np.min_scalar_type(took_part.shape[1]))
    return Participation(clients, np.concatenate([[0], np.cumsum(took_part.sum(axis=1))])[None])


def join(parts: Sequence[Participation]) -> Participation:
    """Concatenate the participation of consecutive blocks of rounds."""
    num_seeds = len(parts[0].offsets)
    pieces, offsets, length = [], [], 0
    for seed in range(num_seeds):
        row = [np.array([length])]
        for part in parts:
            first, last = part.offsets[seed, 0], part.offsets[seed, -1]
            pieces.append(part.clients[first:last])
            row.append(part.offsets[seed, 1:] - first + length)
            length += int(last - first)
        offsets.append(np.concatenate(row))
    return Participation(np.concatenate(pieces), np.array(offsets))


def _longest_absence(available: npt.NDArray[np.bool_]) -> int:
    """Return the largest number of consecutive rounds in which a client, a column of a table, was not available."""
    present = np.flatnonzero(np.concatenate([[True], available, [True]]))
    return int(np.diff(present).max()) - 1
