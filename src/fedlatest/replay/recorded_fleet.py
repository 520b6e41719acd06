"""What a job has recorded about its clients: who was available, who was asked, when they answered.

Axes: [R] consecutive rounds whose tasks are recorded, [N] clients by number, all that have ever joined. NumPy only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.errors import LedgerError
from fedlatest.ledger.client_table import NEVER, read_attendance
from fedlatest.ledger.database import Database, read_job
from fedlatest.ledger.durations import RecordedRound, Tasks, read_task_rounds, read_tasks
from fedlatest.ledger.job_config import JobConfig, Layout

Flags = npt.NDArray[np.bool_]
Seconds = npt.NDArray[np.float64]
COUNTED = ("accepted", "late")


class LateAnswer(NamedTuple):
    """An upload that counted in a later round than it was asked for in."""

    asked_in: int  # position of the round
    client: int
    answered: float  # uptime


@dataclass(frozen=True, eq=False)
class RecordedFleet:
    """The record of a job, made by `read_recorded_fleet`."""

    job: str
    config: JobConfig
    layout: Layout
    names: Sequence[str]  # [N] for people
    weights: npt.NDArray[np.float64]  # [N] number of samples; 0 if not known
    rounds: Sequence[RecordedRound]
    tasks: Tasks  # of these rounds
    available: Flags  # [R, N]
    took_part: Flags  # [R, N]
    reachable: Flags  # [R, N] at the end of the round
    last_round: npt.NDArray[np.int64]  # [N] before the first of these rounds, or NEVER
    num_closed: int  # all rounds of the job, also those whose tasks are not recorded

    @property
    def num_clients(self) -> int:
        """The number of clients that have ever joined, N."""
        return len(self.names)

    @property
    def num_rounds(self) -> int:
        """The number of these rounds, R."""
        return len(self.rounds)

    @property
    def cohort_size(self) -> int:
        """The number of clients that the server asked in a round, in the last one."""
        return min(self.rounds[-1].cohort_size, self.num_clients)

    @cached_property
    def lengths(self) -> Seconds:
        """[R] seconds from the beginning of each round to its end."""
        return np.array([each.closed - each.began for each in self.rounds])

    @cached_property
    def ends(self) -> Seconds:
        """[R] the end of each round, in seconds in which a round was open."""
        return np.cumsum(self.lengths)

    @cached_property
    def task_rounds(self) -> npt.NDArray[np.int64]:
        """[tasks] the position of the round in which each task was asked."""
        return self.tasks.round - self.rounds[0].round

    @cached_property
    def asked(self) -> Flags:
        """[R, N] who was asked to train."""
        found = np.zeros((self.num_rounds, self.num_clients), bool)
        found[self.task_rounds, self.tasks.client] = True
        return found

    @cached_property
    def candidates(self) -> Flags:
        """[R, N] who could be asked at some moment of the round."""
        return np.array([each.candidates.any(axis=0) for each in self.rounds]).reshape(self.asked.shape)

    @cached_property
    def late(self) -> Mapping[int, Sequence[LateAnswer]]:
        """The uploads that counted in a later round than that of the request, by the position of the later one."""
        closed = np.array([each.closed for each in self.rounds])
        found: dict[int, list[LateAnswer]] = {}
        for number in np.flatnonzero(self.tasks.have("late")):
            answered = float(self.tasks.answered[number])
            counted_in = int(np.searchsorted(closed, answered - 0.001))
            client = int(self.tasks.client[number])
            late = LateAnswer(int(self.task_rounds[number]), client, answered)
            found.setdefault(counted_in, []).append(late)
        return found

    def asked_before(self, position: int) -> Flags:
        """Return [selections + 1, N] who had been asked in a round before each of its selections, and in all of it."""
        record = self.rounds[position]
        own = slice(*np.searchsorted(self.task_rounds, [position, position + 1]))  # tasks are sorted by round
        found = np.zeros((len(record.times) + 1, self.num_clients), bool)
        # A client is asked a moment after the selection, and times are rounded to milliseconds.
        selection = np.searchsorted(record.times, self.tasks.asked[own] + 0.002, side="right") - 1
        for client, first in zip(self.tasks.client[own], np.maximum(selection, 0), strict=True):
            found[first + 1 :, client] = True
        return found


def read_recorded_fleet(ledger: Path) -> RecordedFleet:
    """Read the record of a job.

    If an earlier version of fedlatest, which does not record tasks, has run some rounds in between, only the last
    rounds without a gap are read.

    Raises:
        LedgerError: The file is not a ledger, or holds no round whose tasks are recorded.
    """
    with Database.open_for_reading(ledger) as database, database.read():
        return _read(database, ledger)


def _read(database: Database, ledger: Path) -> RecordedFleet:
    job, config, layout = read_job(database)
    rows = database.rows("SELECT client, name, weight FROM clients ORDER BY number")
    rounds, tasks = read_task_rounds(database), read_tasks(database)
    if not rounds or not len(tasks.round):
        raise LedgerError(
            f"{ledger}: records nobody who was asked to train; run some rounds with this version of fedlatest first, "
            "because earlier ones did not record it"
        )
    numbers = np.array([each.round for each in rounds])
    gaps = np.flatnonzero(np.diff(numbers) > 1)
    rounds = rounds[gaps[-1] + 1 :] if len(gaps) else rounds
    available, took_part, reachable = read_attendance(database)
    first, end = rounds[0].round, rounds[-1].round + 1
    earlier = np.arange(first)[:, None]
    last_round = np.where(took_part[:first], earlier, NEVER).max(axis=0, initial=NEVER)
    return RecordedFleet(
        job=job,
        config=config,
        layout=layout,
        names=[name or client for client, name, _ in rows],
        weights=np.array([weight or 0.0 for _, _, weight in rows], np.float64),
        rounds=rounds,
        tasks=tasks.where((tasks.round >= first) & (tasks.round < end)),
        available=available[first:end],
        took_part=took_part[first:end],
        reachable=reachable[first:end],
        last_round=last_round.astype(np.int64),
        num_closed=len(available),
    )
