"""What happens if a client is asked in a round: what is recorded, or else what its other tasks suggest."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.replay.recorded_fleet import COUNTED, Flags, RecordedFleet
from fedlatest.streams import Purpose, uniform


class Outcomes(NamedTuple):
    """What happens to each client if it is asked in a round, [R, N]."""

    seconds: npt.NDArray[np.float64]
    """Seconds after the beginning of the round until it answers, or until the server stops waiting for it."""
    fails: Flags
    """Whether it does not answer in this round."""


def outcomes_of(fleet: RecordedFleet, *, seed: int) -> Outcomes:
    """Return what happens to each client in each round.

    A client that was asked in a round behaves as recorded: it answers after the recorded time, or not at all. A client
    that was not asked does not answer if it was no longer reachable at the end of the round. Otherwise it behaves as in
    one of its own tasks, drawn at random, or in one of any client if it has none: if the drawn task failed or its reply
    was missed, it does not answer. The draw is a pure function of (seed, client, round). What was missed or takes
    longer than the deadline of the round fails at the deadline. The time from the last reply to the end of the round is
    added to all delays of that round.

    Args:
        fleet: The record.
        seed: Seed of the draws.
    """
    seconds, fails = _drawn(fleet, seed)
    deadlines = np.array([each.deadline for each in fleet.rounds])[:, None]
    began = np.array([each.began for each in fleet.rounds])
    first = np.array([each.times[0] - each.began if len(each.times) else 0.0 for each in fleet.rounds])
    seconds = seconds + first[:, None]
    too_slow = seconds > deadlines
    seconds, fails = np.where(too_slow, deadlines, seconds), fails | too_slow
    gone = ~fleet.reachable
    lengths = np.broadcast_to(fleet.lengths[:, None], seconds.shape)
    seconds, fails = np.where(gone, lengths, seconds), fails | gone
    at = (fleet.task_rounds, fleet.tasks.client)
    fails[at] = ~fleet.tasks.have("accepted")
    # The server waited for a reply until it arrived or, if it came later or never, until the end of the round.
    seconds[at] = np.fmin(fleet.tasks.answered - began[fleet.task_rounds], fleet.lengths[fleet.task_rounds])
    last = np.where(fleet.asked, seconds, 0.0).max(axis=1)
    own_time = np.where(fleet.asked.any(axis=1), np.maximum(fleet.lengths - last, 0.0), 0.0)  # such as for unmasking
    return Outcomes(np.maximum(seconds, 0.0) + own_time[:, None], fails)


class TaskDurations(NamedTuple):
    """For each client the seconds of its tasks, and which of them failed."""

    seconds: list[npt.NDArray[np.float64]]
    fails: list[Flags]


def task_durations(fleet: RecordedFleet) -> TaskDurations:
    """Return how long the tasks of each client took, of all clients for one that has none.

    The server stops waiting for a reply that it missed at the deadline of the round.
    """
    tasks = fleet.tasks
    deadlines = np.array([each.deadline for each in fleet.rounds])[fleet.task_rounds]
    elapsed = np.where(tasks.have("missed"), deadlines, tasks.answered - tasks.asked)
    everyone, failed = np.arange(len(elapsed)), ~tasks.have(*COUNTED)
    own = [each if len(each) else everyone for each in tasks.by_client(fleet.num_clients, np.ones_like(failed))]
    return TaskDurations([elapsed[each] for each in own], [failed[each] for each in own])


def _drawn(fleet: RecordedFleet, seed: int) -> tuple[npt.NDArray[np.float64], Flags]:
    """Draw a task for each client and round: its seconds, infinite if the reply was missed, and whether it failed."""
    tasks, missed = fleet.tasks, fleet.tasks.have("missed")
    elapsed, failed = np.where(missed, np.inf, tasks.answered - tasks.asked), ~tasks.have(*COUNTED)
    rounds = np.array([each.round for each in fleet.rounds])
    chance = np.asarray(uniform(seed, Purpose.DELAY, np.arange(fleet.num_clients)[None, :], rounds[:, None]))
    seconds, fails = np.zeros(chance.shape), np.zeros(chance.shape, bool)
    everyone, unexplained = np.arange(len(missed)), _unexplained_misses(fleet)
    for client, own in enumerate(tasks.by_client(fleet.num_clients, np.ones_like(missed))):
        pool = own if len(own) else everyone
        others = int((~missed[pool]).sum())
        each = unexplained / len(pool) if others else 1 / len(pool)  # the probability of a missed task
        rest = (1 - each * (len(pool) - others)) / max(others, 1)
        sums = np.cumsum(np.where(missed[pool], each, rest))
        drawn = pool[np.minimum(np.searchsorted(sums, chance[:, client], side="right"), len(pool) - 1)]
        seconds[:, client], fails[:, client] = elapsed[drawn], failed[drawn]
    return seconds, fails


def _unexplained_misses(fleet: RecordedFleet) -> float:
    """Return the share of the missed tasks that is drawn, besides the clients that are known to have gone offline.

    Some tasks were missed because the client went offline. Clients that were not asked fail if they went offline; if
    all missed tasks were drawn as well, this would count twice.
    """
    missed, could_be_asked = fleet.tasks.have("missed").mean(), fleet.candidates & ~fleet.asked
    if not missed or not could_be_asked.any():
        return 1.0
    gone = 1 - fleet.reachable[could_be_asked].mean()
    return float(max(0.0, missed - gone) / ((1 - gone) * missed)) if gone < 1 else 0.0
