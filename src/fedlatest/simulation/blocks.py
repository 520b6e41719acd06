"""Blocks of rounds between evaluations, and when to write checkpoints."""

import time
from itertools import pairwise
from typing import NamedTuple

from fedlatest.errors import ConfigError

MAX_ROUNDS = 2**24  # staleness is compared as float32
MAX_ROUNDS_PER_BLOCK = 50
CHECKPOINT_SHARE = 0.05  # at most this share of the time goes into checkpoints


class Block(NamedTuple):
    """Rounds first .. last - 1, and whether an evaluation follows."""

    first: int
    last: int
    evaluate: bool


def blocks(rounds: int, evaluate_every: int, *, first: int = 0) -> list[Block]:
    """Divide rounds into blocks that end at every evaluation; the last round is always evaluated.

    The boundaries depend on the configuration alone, so a resumed run executes the same programs as an uninterrupted
    one.

    Args:
        rounds: The number of rounds of the run.
        evaluate_every: Rounds between evaluations.
        first: Leave out the blocks before this round.

    >>> [(block.first, block.last, block.evaluate) for block in blocks(130, 60)]
    [(0, 50, False), (50, 60, True), (60, 110, False), (110, 120, True), (120, 130, True)]
    """
    if not 1 <= rounds <= MAX_ROUNDS:
        raise ConfigError(f"rounds={rounds}: must be in 1 .. {MAX_ROUNDS}")
    if evaluate_every < 1:
        raise ConfigError(f"evaluate_every={evaluate_every}: must be at least 1")
    evaluations = [*range(0, rounds, evaluate_every), rounds]
    divided = [
        Block(start, min(start + MAX_ROUNDS_PER_BLOCK, end), start + MAX_ROUNDS_PER_BLOCK >= end)
        for begin, end in pairwise(evaluations)
        for start in range(begin, end, MAX_ROUNDS_PER_BLOCK)
    ]
    remaining = [block for block in divided if block.first >= first]
    assert first == rounds or remaining[0].first == first, "a run is resumed between two blocks"
    return remaining


class CheckpointTimer:
    """Says when a checkpoint is due: at most every `seconds`, and less often if writing takes long."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._interval = seconds
        self._last = time.monotonic()

    def due(self) -> bool:
        """Return whether it is time for a checkpoint."""
        return time.monotonic() - self._last >= self._interval

    def written(self, took: float) -> None:
        """Start the next interval after a checkpoint that took so many seconds."""
        self._last = time.monotonic()
        self._interval = max(self.seconds, took / CHECKPOINT_SHARE)
