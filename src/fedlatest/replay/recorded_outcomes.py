"""What happens if a client is asked in a round: what is recorded, or else what its other tasks suggest."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.replay.recorded_fleet import COUNTED, REPLIED, Flags, RecordedFleet
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
    that was not asked does not answer if it was no longer reachable at the end of the round. Otherwise its duration is
    drawn from its own tasks, or from those of all clients if it has none; a draw of a task that failed fails. The draw
    is a pure function of (seed, client, round). What takes longer than the deadline of the round fails at the deadline.
    The time from the last reply to the end of the round is added to all delays of that round.

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


def upload_durations(fleet: RecordedFleet) -> list[npt.NDArray[np.float64]]:
    """Return for each client the seconds of its accepted uploads; of all clients for one that has none."""
    own = fleet.durations(*COUNTED)
    pooled = np.concatenate(own) if any(map(len, own)) else np.array([0.0])
    return [values if len(values) else pooled for values in own]


def _drawn(fleet: RecordedFleet, seed: int) -> tuple[npt.NDArray[np.float64], Flags]:
    """Draw a task for each client and round: its seconds, and whether it failed."""
    tasks, replied = fleet.tasks, fleet.tasks.have(*REPLIED)
    elapsed, failed = tasks.answered - tasks.asked, ~tasks.have(*COUNTED)
    rounds = np.array([each.round for each in fleet.rounds])
    chance = np.asarray(uniform(seed, Purpose.DELAY, np.arange(fleet.num_clients)[None, :], rounds[:, None]))
    seconds, fails = np.zeros(chance.shape), np.zeros(chance.shape, bool)
    everyone = np.flatnonzero(replied)
    if not len(everyone):
        return seconds, fails
    for client, own in enumerate(tasks.by_client(fleet.num_clients, replied)):
        pool = own if len(own) else everyone
        drawn = pool[np.minimum((chance[:, client] * len(pool)).astype(np.int64), len(pool) - 1)]
        seconds[:, client], fails[:, client] = elapsed[drawn], failed[drawn]
    return seconds, fails
