"""The availability that a job has recorded, as a trace that the simulator can replay."""

from pathlib import Path

from fedlatest.availability.trace_files import write_table
from fedlatest.errors import LedgerError
from fedlatest.ledger.client_table import read_attendance
from fedlatest.ledger.database import Database


def write_trace(ledger: Path, path: Path, *, seconds: bool = False) -> int:
    """Write the recorded availability of a job as a trace.

    Args:
        ledger: The ledger file of the job.
        path: The file to write: CSV, or another format of `fedlatest.read_trace`.
        seconds: Write times in seconds instead of rounds: seconds in which a server was running, since the start of
            the first round.

    Returns:
        The number of clients.

    Raises:
        LedgerError: No client was available in any round, or the file cannot be written.
    """
    database = Database.open_for_reading(ledger)
    try:
        available, _ = read_attendance(database)
        closed = [uptime for (uptime,) in database.rows("SELECT uptime FROM rounds ORDER BY round")]
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
