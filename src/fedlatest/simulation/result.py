"""What a simulation says while it runs, and what it leaves."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedlatest.runs import Metrics, Row


class Progress(NamedTuple):
    """What a on_progress hears before the first round and after each block; it may raise KeyboardInterrupt to stop."""

    round: int
    rounds: int
    rows: Sequence[Row]  # new evaluations
    seconds_left: float | None  # an estimate, once a block has been timed after compilation
    bytes_needed: int


class Result(NamedTuple):
    """What a simulation leaves."""

    metrics: Metrics
    params: Any  # final models, [seeds, ...]
    largest_staleness: int
    folder: Path | None
