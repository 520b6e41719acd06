"""Replay of a deployed job in the simulator: the recorded availability and delays, with any algorithm.

May import `algorithms`, `availability`, `data`, `delays`, `experiments`, `ledger`, `models`, `runs`, `simulation` and
`streams`.
"""

from fedlatest.replay.agreement import Agreement, agreement_of_run
from fedlatest.replay.recorded_fleet import RecordedFleet, read_recorded_fleet
from fedlatest.replay.replay_plan import Replay, plan_replay
from fedlatest.replay.schedule import Schedule, make_schedule

__all__ = [
    "Agreement",
    "RecordedFleet",
    "Replay",
    "Schedule",
    "agreement_of_run",
    "make_schedule",
    "plan_replay",
    "read_recorded_fleet",
]
