"""The delays of a job's clients, from its recorded tasks, as a file that `fedlatest.delays.read_delays` reads."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.errors import LedgerError
from fedlatest.files import write_csv
from fedlatest.ledger.database import Database
from fedlatest.ledger.durations import Tasks, read_tasks

ANSWERED = ("accepted", "late")


class MedianDelays(NamedTuple):
    """The typical seconds of each client, [N] by client number; NaN for a client without an accepted upload."""

    training: npt.NDArray[np.float64]
    communication: npt.NDArray[np.float64]  # the time from the request to the reply, without the training


def median_delays(tasks: Tasks, num_clients: int) -> MedianDelays:
    """Return the medians of each client over its accepted uploads.

    Where a client does not send its training seconds, as in a secure job, all the time counts as training.
    """
    found = np.full((2, num_clients), np.nan)
    elapsed = tasks.answered - tasks.asked
    training = np.where(np.isnan(tasks.training_seconds), elapsed, tasks.training_seconds)
    for client, own in enumerate(tasks.by_client(num_clients, tasks.have(*ANSWERED))):
        if len(own):
            found[:, client] = np.median(training[own]), np.median((elapsed - training)[own])
    return MedianDelays(*found)


def write_delays(ledger: Path, path: Path) -> int:
    """Write the median delays of a job's clients as CSV: client, download, training and upload seconds.

    The server does not know when the model has arrived at a client: half of the time that a client did not train
    counts as download and half as upload. A client without an accepted upload has the medians of the others.

    Args:
        ledger: the ledger's file.
        path: the file to write.

    Returns:
        The number of clients that have accepted uploads.

    Raises:
        LedgerError: no upload with its times is recorded, or the file cannot be written.
    """
    with Database.open_for_reading(ledger) as database:
        names = [client for (client,) in database.rows("SELECT client FROM clients ORDER BY number")]
        found = median_delays(read_tasks(database), len(names))
    known = ~np.isnan(found.training)
    if not known.any():
        raise LedgerError(f"{ledger}: no upload with its times is recorded yet; earlier versions did not record them")
    training, communication = (np.where(known, values, np.median(values[known])) for values in found)
    halves = np.round(np.maximum(communication, 0.0) / 2, 4)
    rows = zip(names, halves.tolist(), np.round(training, 3).tolist(), halves.tolist(), strict=True)
    header = ("client", "download_seconds", "training_seconds", "upload_seconds")
    write_csv(path, [header, *rows], error=LedgerError)
    return int(known.sum())
