"""Schedules: functions of the round that multiply the learning rate.

The learning rate itself stays a number of the trial, so that experiments that differ in it share a compiled program.
"""

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from fedlatest.errors import ConfigError

Schedule = Callable[[jax.Array], Any]
ScheduleName = Literal["constant", "inverse_sqrt"]  # values of the key `schedule`
SCHEDULE_ROUNDS = 10.0


def inverse_sqrt(*, rounds: float = SCHEDULE_ROUNDS) -> Schedule:
    """Return the schedule 1 / sqrt(t / rounds + 1) of the round t = 0, 1, ..., that of FedAWE's experiments.

    Args:
        rounds: After 3 times as many rounds the learning rate is halved.

    >>> [float(inverse_sqrt(rounds=10)(jnp.int32(t))) for t in (0, 30, 80)]
    [1.0, 0.5, 0.3333333432674408]
    """
    if not (np.isfinite(rounds) and rounds > 0):
        raise ConfigError(f"schedule_rounds={rounds}: must be a finite number above 0")
    return lambda round: (round / jnp.float32(rounds) + 1) ** -0.5


def named_schedule(name: ScheduleName | None, rounds: float | None) -> Schedule | None:
    """Return the schedule with this name, None if the learning rate is constant.

    Args:
        name: The value of the key `schedule`; None if it is not set.
        rounds: The value of the key `schedule_rounds`; None if it is not set.
    """
    if name in (None, "constant"):
        if rounds is not None:
            raise ConfigError(f"schedule_rounds={rounds}: the learning rate is constant; add schedule=inverse_sqrt")
        return None
    return inverse_sqrt(rounds=SCHEDULE_ROUNDS if rounds is None else rounds)
