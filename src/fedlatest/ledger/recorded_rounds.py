"""The rounds that a job has recorded: who was available, and when each round started."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.ledger.client_table import read_attendance
from fedlatest.ledger.database import Database


class RecordedRounds(NamedTuple):
    """Who was available in the rounds of a job, by client number, and when."""

    available: npt.NDArray[np.bool_]  # [rounds, clients]
    moments: list[float]
    """When each round started and when the last one ended: seconds in which a server was running, since the start of
    the first round."""


def read_rounds(database: Database) -> RecordedRounds:
    """Return the recorded rounds of a job.

    Only the times at which rounds were closed are known: a round starts when the one before is closed, and the first
    one is assumed to have lasted as long as the second.
    """
    available = read_attendance(database).available
    closed = [uptime for (uptime,) in database.rows("SELECT uptime FROM rounds ORDER BY round")]
    first = closed[1] - closed[0] if len(closed) > 1 else 1.0
    return RecordedRounds(available, [0.0, *(round(time - closed[0] + first, 3) for time in closed)])
