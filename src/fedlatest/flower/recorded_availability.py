"""The availability that a job has recorded, as a trace that the simulator can replay."""

from pathlib import Path

from fedlatest.availability.trace_files import write_table
from fedlatest.errors import LedgerError
from fedlatest.ledger.database import Database
from fedlatest.ledger.recorded_rounds import read_rounds


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
    with Database.open_for_reading(ledger) as database:
        available, moments = read_rounds(database)
    if not available.any():
        raise LedgerError(f"{ledger}: no client has been available in any round yet")
    write_table(path, available, moments=moments if seconds else None, error=LedgerError)
    return available.shape[1]
