"""Who was here in which round, as a table and as a trace that the simulator replays."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedlatest.availability.trace import write_table
from fedlatest.errors import LedgerError
from fedlatest.ledger.database import Database


def attendance_table(database: Database, *, took_part: bool = False) -> npt.NDArray[np.bool_]:
    """[rounds, clients] who was here, or who took part; clients by number."""
    [(rounds,)] = database.rows("SELECT round FROM state")
    [(num_clients,)] = database.rows("SELECT COALESCE(MAX(number), -1) + 1 FROM clients")
    table = np.zeros((rounds, num_clients), bool)
    for round, number, worked in database.rows(
        "SELECT round, number, took_part FROM attendance WHERE round < ?", rounds
    ):
        table[round, number] = worked or not took_part
    return table


def write_attendance(ledger: Path, path: Path, *, seconds: bool = False) -> int:
    """Write a job's attendance as a trace; in rounds, or in seconds since its first round. How many clients it has."""
    database = Database.open(ledger)
    try:
        here = attendance_table(database)
        times = [time for (time,) in database.rows("SELECT time FROM rounds ORDER BY round")]
    finally:
        database.close()
    if not here.any():
        raise LedgerError(f"{ledger}: nobody was here in any round yet")
    try:
        write_table(path, here, moments=_moments(times) if seconds else None)
    except OSError as error:
        raise LedgerError(f"{path}: could not be written ({error.strerror})") from error
    return here.shape[1]


def _moments(times: list[float]) -> list[float]:
    """When each round began, from when each was closed; the first is taken to have lasted as long as the second."""
    first = times[1] - times[0] if len(times) > 1 else 1.0
    return [0.0, *(round(time - times[0] + first, 3) for time in times)]
