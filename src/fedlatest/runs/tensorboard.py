"""Logging to TensorBoard (extra: fedlatest[tensorboard])."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedlatest.errors import MissingExtraError
from fedlatest.runs.metrics import Row


class Tensorboard:
    """Logs every column of the metrics, as one TensorBoard run per seed."""

    def __init__(self) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise MissingExtraError(
                "TensorBoard logging needs an extra: pip install 'fedlatest[tensorboard]'"
            ) from None
        self._writer_class, self._writers = SummaryWriter, dict[int, Any]()

    def open(self, folder: Path, seeds: Sequence[int], *, first_round: int) -> None:
        """Open the log.

        Args:
            folder: Holds one log folder per seed.
            seeds: The seeds of the run.
            first_round: Values that an interrupted run logged from this round on are discarded.
        """
        for seed in seeds:
            self._writers[seed] = self._writer_class(str(folder / f"seed-{seed}"), purge_step=first_round)

    def record(self, rows: Sequence[Row]) -> None:
        """Log an evaluation."""
        for row in rows:
            for name, value in row._asdict().items():
                if name not in ("seed", "round") and value is not None:
                    self._writers[row.seed].add_scalar(name, value, row.round)

    def close(self) -> None:
        """Flush and close the log."""
        for writer in self._writers.values():
            writer.close()
