"""Who took part in each round, compactly: flat client positions with offsets per seed and round."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.runs.files import load_npz, save_npz


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
