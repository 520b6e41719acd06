"""Blocks of rounds between evaluations, and when to write checkpoints."""

import time
from itertools import pairwise
from typing import NamedTuple

from fedlatest.errors import ConfigError

MAX_ROUNDS = 2**24  # staleness is compared as float32
MAX_ROUNDS_PER_BLOCK = 50
MAX_ARRIVALS_PER_BLOCK = 1000  # of an asynchronous algorithm
CHECKPOINT_SHARE = 0.05  # at most this share of the time goes into checkpoints


class Block(NamedTuple):
    """Rounds first .. last - 1, and whether an evaluation follows."""

    first: int
    last: int
    evaluate: bool


def blocks(rounds: int, evaluate_every: int, *, first: int = 0, longest: int = MAX_ROUNDS_PER_BLOCK) -> list[Block]:
    """Divide rounds into blocks that end at every evaluation; the last round is always evaluated.

    The boundaries depend on the configuration alone, so a resumed run executes the same programs as an uninterrupted
    one.

    Args:
        rounds: The number of rounds of the run.
        evaluate_every: Rounds between evaluations.
        first: Leave out the blocks before this round.
        longest: The largest number of rounds in a block.

    >>> [(block.first, block.last, block.evaluate) for block in blocks(130, 60)]
    [(0, 50, False), (50, 60, True), (60, 110, False), (110, 120, True), (120, 130, True)]
    """
    if not 1 <= rounds <= MAX_ROUNDS:
        raise ConfigError(f"rounds={rounds}: must be in 1 .. {MAX_ROUNDS}")
    if evaluate_every < 1:
        raise ConfigError(f"evaluate_every={evaluate_every}: must be at least 1")
    evaluations = [*range(0, rounds, evaluate_every), rounds]
    divided = [
        Block(start, min(start + longest, end), start + longest >= end)
        for begin, end in pairwise(evaluations)
        for start in range(begin, end, longest)
    ]
    remaining = [block for block in divided if block.first >= first]
    assert first == rounds or remaining[0].first == first, "a run is resumed between two blocks"
    return remaining


def longest_block(buffer: int | None) -> int:
    """Return the largest number of rounds in a block; `buffer` is the number of arrivals in an asynchronous step.

    >>> longest_block(None), longest_block(1), longest_block(10)
    (50, 1000, 100)
    """
    return MAX_ROUNDS_PER_BLOCK if buffer is None else max(1, MAX_ARRIVALS_PER_BLOCK // buffer)


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


class RemainingTime:
    """An estimate of the time that a run still takes, from blocks after the first of their length, which compiles."""

    def __init__(self) -> None:
        self._compiled: set[int] = set()  # lengths of blocks
        self._done, self._share, self._seconds = 0.0, 0.0, 0.0

    def add(self, num_rounds: int, share: float, seconds: float) -> None:
        """Note a block.

        Args:
            num_rounds: Its length.
            share: Which share of the run is done after it.
            seconds: How long it took.
        """
        if num_rounds in self._compiled:
            self._share += share - self._done
            self._seconds += seconds
        self._compiled.add(num_rounds)
        self._done = share

    def seconds_left(self, share: float) -> float | None:
        """Return the estimate after a share of the run; None before a block was timed."""
        return (1 - share) * self._seconds / self._share if self._share > 0 else None
