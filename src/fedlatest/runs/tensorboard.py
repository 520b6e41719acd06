"""TensorBoard logging, for those who watch their runs there (extra: fedlatest[tensorboard])."""

from collections.abc import Sequence
from pathlib import Path

from fedlatest.errors import MissingExtraError
from fedlatest.runs.metrics import Row


class Tensorboard:
    """One TensorBoard run per seed, with every column of the metrics."""

    def __init__(self, folder: Path, seeds: Sequence[int]) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise MissingExtraError(
                "TensorBoard logging needs an extra: pip install 'fedlatest[tensorboard]'"
            ) from None
        self._writers = {seed: SummaryWriter(str(folder / f"seed-{seed}")) for seed in seeds}

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
