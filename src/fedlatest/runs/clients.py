"""clients.npz: who the clients are, and who was available when, coarsely enough to look at."""

import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.errors import RunFolderError
from fedlatest.runs.files import write_atomically

MOST_ROWS, MOST_COLUMNS = 120, 400


class ClientRecord(NamedTuple):
    """The clients of a run, and a picture of their availability (of the run's first seed).

    Row i of the picture is about the clients order[row_edges[i] : row_edges[i + 1]], column j about the rounds
    column_edges[j] .. column_edges[j + 1] - 1; a cell is 255 times the share of those (client, round) pairs in which
    the client was available. `order` sorts clients by label.
    """

    labels: npt.NDArray[np.int32]  # [N] the label a client holds most of; all 0 where labels are not classes
    sizes: npt.NDArray[np.int64]  # [N] samples
    order: npt.NDArray[np.int32]  # [N]
    row_edges: npt.NDArray[np.int64]
    column_edges: npt.NDArray[np.int64]
    available: npt.NDArray[np.uint8]  # [rows, columns]


def edges(length: int, most: int) -> npt.NDArray[np.int64]:
    """Cut range(length) into at most `most` stretches of nearly equal length.

    >>> edges(10, 4).tolist()
    [0, 2, 5, 8, 10]
    """
    return np.round(np.linspace(0, length, min(length, most) + 1)).astype(np.int64)


def save_clients(path: Path, clients: ClientRecord) -> None:
    """Save as a compressed .npz, atomically."""

    def write(draft: Path) -> None:
        with draft.open("wb") as file:
            np.savez_compressed(file, **clients._asdict())

    write_atomically(path, write)


def load_clients(path: Path) -> ClientRecord:
    """Load what `save_clients` wrote."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
            arrays: dict[str, Any] = {name: content[name] for name in ClientRecord._fields}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise RunFolderError(f"{path}: cannot be read ({error})") from error
    return ClientRecord(**arrays)
