"""The availability that a job has recorded, as a table and as a trace that the simulator can replay."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedlatest.availability.trace_files import write_table
from fedlatest.errors import LedgerError
from fedlatest.ledger.database import Database


def attendance_table(database: Database, *, took_part: bool = False) -> npt.NDArray[np.bool_]:
    """Return which clients were available, or which took part, as an array [rounds, clients] by client number."""
    [(rounds,)] = database.rows("SELECT round FROM state")
    [(num_clients,)] = database.rows("SELECT COALESCE(MAX(number), -1) + 1 FROM clients")
    table = np.zeros((rounds, num_clients), bool)
    for round, number, worked in database.rows(
        "SELECT round, number, took_part FROM attendance WHERE round < ?", rounds
    ):
        table[round, number] = worked or not took_part
    return table


def write_trace(ledger: Path, path: Path, *, seconds: bool = False) -> int:
    """Write the recorded availability of a job as a trace.

    Args:
        ledger: The ledger file of the job.
        path: The file to write: CSV, or another format of `fedlatest.read_trace`.
        seconds: Write times in seconds since the start of the first round, instead of rounds.

    Returns:
        The number of clients.

    Raises:
        LedgerError: No client was available in any round, or the file cannot be written.
    """
    database = Database.open(ledger)
    try:
        available = attendance_table(database)
        closed = [time for (time,) in database.rows("SELECT time FROM rounds ORDER BY round")]
    finally:
        database.close()
    if not available.any():
        raise LedgerError(f"{ledger}: no client has been available in any round yet")
    moments = _round_boundaries(closed) if seconds else None
    write_table(path, available, moments=moments, error=LedgerError)
    return available.shape[1]


def _round_boundaries(closed: list[float]) -> list[float]:
    """Return when each round started, and when the last one ended, from the times at which rounds were closed.

    The first round is assumed to have lasted as long as the second.
    """
    first = closed[1] - closed[0] if len(closed) > 1 else 1.0
    return [0.0, *(round(time - closed[0] + first, 3) for time in closed)]
