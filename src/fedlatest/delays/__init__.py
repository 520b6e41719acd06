"""How long clients take: delay models, files of delays, and when a synchronous round ends.

May import `bounded_reading`, `digest` and `streams`.
"""

from fedlatest.delays.delay_files import read_delays
from fedlatest.delays.models import (
    Delays,
    Duration,
    Stages,
    Unit,
    Work,
    constant,
    exponential,
    lognormal,
)
from fedlatest.delays.recorded import empirical, recorded
from fedlatest.delays.timing import Interruption, Timing

__all__ = [
    "Delays",
    "Duration",
    "Interruption",
    "Stages",
    "Timing",
    "Unit",
    "Work",
    "constant",
    "empirical",
    "exponential",
    "lognormal",
    "read_delays",
    "recorded",
]
