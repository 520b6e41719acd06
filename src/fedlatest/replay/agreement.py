"""How far a replay of the job's own algorithm agrees with what the job has recorded."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedlatest.replay.recorded_fleet import Flags, RecordedFleet
from fedlatest.replay.replay_plan import ReplayedRun
from fedlatest.runs import RunFolder


class Agreement(NamedTuple):
    """The share of rounds in which a replay and the record are equal."""

    asked: float
    answered: float
    both: float
    rounds: int


def agreement(fleet: RecordedFleet, asked: Flags, answered: Flags) -> Agreement:
    """Return in how many rounds the same clients were asked, and answered, as in the record.

    Args:
        fleet: The record.
        asked: [R, N] who was asked in the replay; it may have fewer rounds than the record.
        answered: [R, N] whose upload counted.
    """
    rounds = len(asked)
    same_asked = (asked == fleet.asked[:rounds]).all(axis=1)
    same_answered = (answered == fleet.took_part[:rounds]).all(axis=1)
    both = same_asked & same_answered
    return Agreement(float(same_asked.mean()), float(same_answered.mean()), float(both.mean()), rounds)


def agreement_of_run(fleet: RecordedFleet, run: ReplayedRun, path: Path) -> Agreement | None:
    """Compare a simulated run of the job's own algorithm with the record.

    Args:
        fleet: The record.
        run: A run of the replay.
        path: Its run folder, whose cohorts are those that answered in the simulation.

    Returns:
        The agreement; None for another algorithm, or if the run has not finished.
    """
    folder = RunFolder(path)
    if not run.is_own or run.schedule is None or not folder.finished:
        return None
    cohorts = folder.participation()
    answered = np.zeros_like(run.schedule.answered)
    for round in range(len(answered)):
        answered[round, cohorts.cohort(seed=0, round=round)] = True
    return agreement(fleet, run.schedule.asked, answered)
