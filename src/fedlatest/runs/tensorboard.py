"""TensorBoard logging, for those who watch their runs there (extra: fedlatest[tensorboard])."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedlatest.errors import MissingExtraError
from fedlatest.runs.metrics import Row


class Tensorboard:
    """One TensorBoard run per seed, with every column of the metrics."""

    def __init__(self) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise MissingExtraError(
                "TensorBoard logging needs an extra: pip install 'fedlatest[tensorboard]'"
            ) from None
        self._make, self._writers = SummaryWriter, dict[int, Any]()

    def open(self, folder: Path, seeds: Sequence[int], *, first_round: int) -> None:
        """Begin at a round; what an interrupted run logged from there on is hidden."""
        for seed in seeds:
            self._writers[seed] = self._make(str(folder / f"seed-{seed}"), purge_step=first_round)

    def record(self, rows: Sequence[Row]) -> None:
        """Log an evaluation."""
        for row in rows:
            for name, value in row._asdict().items():
                if name not in ("seed", "round") and value is not None:
                    self._writers[row.seed].add_scalar(name, value, row.round)

    def close(self) -> None:
        """Flush and close."""
        for writer in self._writers.values():
            writer.close()
