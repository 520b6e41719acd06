"""PrintedProgress: the progress of a run as lines of text, for output that is not a terminal."""

import sys
import time
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from fedlatest.simulation.simulate import Progress

SECONDS_BETWEEN_LINES = 5.0


class PrintedProgress:
    """A progress callback that prints a line when the run starts, every few seconds, and at its end.

    Args:
        name: Printed at the start of every line.
        file: Where the lines are printed; by default the standard error output at the time of printing.
        seconds: Least time between two lines, except the last.
    """

    def __init__(self, name: str = "", *, file: IO[str] | None = None, seconds: float = SECONDS_BETWEEN_LINES) -> None:
        self._start, self._file, self._seconds = f"{name}: " if name else "", file, seconds
        self._last: float | None = None
        self._accuracy: float | None = None

    def begin(self) -> None:
        """Say that the run is being compiled, which may take longer than the first rounds."""
        self._last = time.monotonic()
        self._print("compiling")

    def __call__(self, progress: "Progress") -> None:
        """Print the round, the last test accuracy and an estimate of the time left, unless a line is recent."""
        if progress.rows:
            self._accuracy = progress.rows[-1].test_accuracy
        if self._last is None:
            self.begin()
            for note in progress.notes:
                self._print(note)
        now, is_end = time.monotonic(), progress.round == progress.rounds
        if not is_end and (self._last is None or now - self._last < self._seconds):
            return
        self._last = now
        accuracy = "" if self._accuracy is None else f", test accuracy {self._accuracy:.4f}"
        left = "" if is_end or progress.seconds_left is None else f", about {progress.seconds_left:.0f} s left"
        self._print(f"round {progress.round}/{progress.rounds}{accuracy}{left}")

    def _print(self, text: str) -> None:
        print(f"{self._start}{text}", file=self._file or sys.stderr, flush=True)
