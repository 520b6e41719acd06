"""When a run stops to look: blocks of rounds, evaluations, checkpoints."""

import time
from itertools import pairwise
from typing import NamedTuple

from fedlatest.errors import ConfigError

MOST_ROUNDS = 2**24  # ages are compared as float32
MOST_ROUNDS_PER_BLOCK = 50
CHECKPOINT_SHARE = 0.05  # of the time at most goes into checkpoints


class Block(NamedTuple):
    """Rounds first .. last - 1, and whether an evaluation follows."""

    first: int
    last: int
    evaluate: bool


def blocks(rounds: int, evaluate_every: int, *, first: int = 0) -> list[Block]:
    """Cut rounds into blocks that end at every evaluation; the last round is always evaluated.

    The cuts depend on the configuration alone, so a resumed run plays the same programs as an uninterrupted one.

    >>> [(block.first, block.last, block.evaluate) for block in blocks(130, 60)]
    [(0, 50, False), (50, 60, True), (60, 110, False), (110, 120, True), (120, 130, True)]
    """
    if not 1 <= rounds <= MOST_ROUNDS:
        raise ConfigError(f"rounds={rounds}: must be in 1 .. {MOST_ROUNDS}")
    if evaluate_every < 1:
        raise ConfigError(f"evaluate_every={evaluate_every}: must be at least 1")
    evaluations = [*range(0, rounds, evaluate_every), rounds]
    cuts = [
        Block(start, min(start + MOST_ROUNDS_PER_BLOCK, end), start + MOST_ROUNDS_PER_BLOCK >= end)
        for begin, end in pairwise(evaluations)
        for start in range(begin, end, MOST_ROUNDS_PER_BLOCK)
    ]
    left = [block for block in cuts if block.first >= first]
    assert first == rounds or left[0].first == first, "a run is resumed between two blocks"
    return left


class Pace:
    """Checkpoints paced by time: no more often than asked, and never so often that writing them dominates."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._wait = seconds
        self._last = time.monotonic()

    def due(self) -> bool:
        """Whether it is time for a checkpoint."""
        return time.monotonic() - self._last >= self._wait

    def written(self, took: float) -> None:
        """A checkpoint was written and took so many seconds."""
        self._last = time.monotonic()
        self._wait = max(self.seconds, took / CHECKPOINT_SHARE)
