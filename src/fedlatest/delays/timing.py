"""Timing: the delays of the clients, when rounds and runs end, and how availability follows the time."""

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from fedlatest.delays.models import MAX_SECONDS, Delays
from fedlatest.errors import ConfigError

Interruption = Literal["finish", "pause", "fail"]
MAX_SECONDS_PER_ROUND = 10**5
MAX_UNTIL = 10**9  # 31 years


@dataclass(frozen=True)
class Timing:
    """The virtual time of a simulation.

    Args:
        delays: How long the clients take.
        deadline: A synchronous round ends after this number of seconds; later updates are dropped.
        answers: A synchronous round ends when this number of clients have answered; the updates of the others are
            dropped. With a larger `cohort_size` this is over-selection.
        seconds_per_round: The length of a round of the availability model in virtual seconds, a whole number: clients
            are available at time t as in round t // seconds_per_round of the model. None uses the number of the
            simulated round, as without timing; asynchronous algorithms need a number.
        interruption: What a client does that becomes unavailable before its update has arrived: "finish" as if it were
            available, "pause" until it is available again, or "fail", upon which the server stops waiting for it.
            "pause" and "fail" need `seconds_per_round`.
        until: End the run at the first evaluation at which this number of virtual seconds has passed in all of its
            trials; `rounds` is then the largest number of rounds. None ends it after `rounds` rounds.

    >>> Timing(Delays(training=10), deadline=30).deadline
    30
    """

    delays: Delays
    deadline: float | None = None
    answers: int | None = None
    seconds_per_round: int | None = None
    interruption: Interruption = "finish"
    until: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.delays, Delays):
            raise ConfigError(f"delays={self.delays!r}: give Delays(...), such as Delays(training=10)")
        if self.deadline is not None and not (math.isfinite(self.deadline) and 0 < self.deadline <= MAX_SECONDS):
            raise ConfigError(f"deadline={self.deadline}: must be above 0 and at most {MAX_SECONDS:.0f} seconds")
        if self.answers is not None and self.answers < 1:
            raise ConfigError(f"answers={self.answers}: must be at least 1")
        seconds = self.seconds_per_round
        if seconds is not None and not (seconds == int(seconds) and 1 <= seconds <= MAX_SECONDS_PER_ROUND):
            raise ConfigError(
                f"seconds_per_round={seconds}: must be a whole number in 1 .. {MAX_SECONDS_PER_ROUND}, or None"
            )
        if self.interruption not in get_args(Interruption):
            raise ConfigError(f"interruption={self.interruption!r}: choose one of {', '.join(get_args(Interruption))}")
        if self.interruption != "finish" and seconds is None:
            raise ConfigError(f"interruption={self.interruption!r}: needs seconds_per_round")
        if self.until is not None and not 0 < self.until <= MAX_UNTIL:
            raise ConfigError(f"until={self.until}: must be above 0 and at most {MAX_UNTIL} seconds")

    def as_dict(self) -> dict[str, Any]:
        """Return what the manifest of a run stores."""
        return {
            "delays": self.delays.fingerprint(),
            "deadline": self.deadline,
            "answers": self.answers,
            "seconds_per_round": self.seconds_per_round,
            "interruption": self.interruption,
            **({} if self.until is None else {"until": self.until}),
        }
