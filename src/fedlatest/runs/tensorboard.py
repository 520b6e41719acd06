"""Logging to TensorBoard (extra: fedlatest[tensorboard])."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedlatest.runs.loggers import Status, logged_values
from fedlatest.runs.metrics import Row


class Tensorboard:
    """Logs every column of the metrics, as one TensorBoard run per seed in the folder `tensorboard`."""

    def __init__(self) -> None:
        from tensorboardX import SummaryWriter

        self._writer_class, self._writers = SummaryWriter, dict[int, Any]()

    def start(self, folder: Path, manifest: Mapping[str, Any], *, first_round: int) -> None:
        """Open the logs; values that an interrupted run logged from `first_round` on are discarded."""
        for seed in manifest["seeds"]:
            place = folder / "tensorboard" / f"seed-{seed}"
            self._writers[seed] = self._writer_class(str(place), purge_step=first_round)

    def log(self, rows: Sequence[Row]) -> None:
        """Log an evaluation."""
        for row in rows:
            for name, value in logged_values(row).items():
                self._writers[row.seed].add_scalar(name, value, row.round)

    def finish(self, status: Status) -> None:
        """Flush and close the logs."""
        for writer in self._writers.values():
            writer.close()
