"""clients.npz: who the clients are, and who was available when, coarsely enough to look at."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.runs.array_files import load_npz, save_npz

MOST_ROWS, MOST_COLUMNS = 120, 400
QUARTERS = 24 * 4  # of an hour, in a day


class ClientRecord(NamedTuple):
    """The clients of a run, and a picture of their availability (of the run's first seed).

    Row i of the picture is about the clients order[row_edges[i] : row_edges[i + 1]], column j about the rounds
    column_edges[j] .. column_edges[j + 1] - 1; a cell is 255 times the share of those (client, round) pairs in which
    the client was available. `order` sorts clients by label, those of a label by the beginning of their window.

    `sent` and `window` hold no row where samples have no time of day, clients no daily window; folders written before
    they were noted lack them, and are read as if so.
    """

    labels: npt.NDArray[np.int32]  # [N] the label a client holds most of; all 0 where labels are not classes
    sizes: npt.NDArray[np.int64]  # [N] samples
    order: npt.NDArray[np.int32]  # [N]
    row_edges: npt.NDArray[np.int64]
    column_edges: npt.NDArray[np.int64]
    available: npt.NDArray[np.uint8]  # [rows, columns]
    sent: npt.NDArray[np.uint16] = np.zeros((0, QUARTERS), np.uint16)  # [N, 96] samples by quarter of an hour
    window: npt.NDArray[np.float32] = np.zeros((0, 2), np.float32)  # [N, 2] when it begins, how long it is, in hours


def edges(length: int, most: int) -> npt.NDArray[np.int64]:
    """Cut range(length) into at most `most` stretches of nearly equal length.

    >>> edges(10, 4).tolist()
    [0, 2, 5, 8, 10]
    """
    return np.round(np.linspace(0, length, min(length, most) + 1)).astype(np.int64)


def save_clients(path: Path, clients: ClientRecord) -> None:
    """Save as a compressed .npz, atomically."""
    save_npz(path, clients._asdict())


def load_clients(path: Path) -> ClientRecord:
    """Load what `save_clients` wrote."""
    return ClientRecord(*load_npz(path, ClientRecord._fields, ClientRecord._field_defaults))


class Participation(NamedTuple):
    """The clients of seed s in round r are clients[offsets[s, r] : offsets[s, r + 1]], in ascending order."""

    clients: npt.NDArray[Any]
    offsets: npt.NDArray[np.int64]  # [seeds, rounds + 1]

    @property
    def num_rounds(self) -> int:
        """How many rounds are recorded."""
        return self.offsets.shape[1] - 1

    def cohort(self, *, seed: int, round: int) -> npt.NDArray[Any]:
        """Positions of the clients that took part; `seed` counts the run's seeds from 0."""
        return self.clients[self.offsets[seed, round] : self.offsets[seed, round + 1]]


def pack(clients: npt.NDArray[Any], mask: npt.NDArray[np.bool_], num_clients: int) -> Participation:
    """Pack cohorts [seeds, rounds, K] of which only masked slots are real."""
    ordered = np.sort(np.where(mask, clients, num_clients), axis=-1)
    kept = ordered[ordered < num_clients].astype(np.min_scalar_type(num_clients))
    counts = mask.sum(axis=-1)
    ends = np.cumsum(counts.reshape(-1)).reshape(counts.shape)
    starts = np.concatenate([[0], ends[:-1, -1]])
    return Participation(kept, np.concatenate([starts[:, None], ends], axis=1))


def join(parts: Sequence[Participation]) -> Participation:
    """Put consecutive stretches of rounds together."""
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


def save(path: Path, participation: Participation) -> None:
    """Save as a compressed .npz, atomically."""
    save_npz(path, participation._asdict())


def load(path: Path) -> Participation:
    """Load what `save` wrote."""
    return Participation(*load_npz(path, Participation._fields))
