"""The rows of metrics.csv: when a target was reached, and files of earlier versions."""

from pathlib import Path

import numpy as np
import pytest

from fedlatest.errors import ConfigError
from fedlatest.runs.metrics import COLUMNS, Metrics, Row, read_metrics


def test_time_to_accuracy() -> None:
    """Seed 0 reaches 0.3 at the evaluation at 60 s, seed 1 never."""
    rows = [Row(seed, n, 0.0, 1.0, 0.5, 1.0, 0.15 * n * (1 - seed), time=30.0 * n) for seed in (0, 1) for n in range(4)]
    found = Metrics(rows).time_to_accuracy(0.3)
    assert found[0] == 60
    assert np.isnan(found[1])
    with pytest.raises(ConfigError, match="no virtual time"):
        Metrics([Row(0, 0, 0.0, 1.0, 0.5, 1.0, 0.25)]).time_to_accuracy(0.3)


def test_metrics_files_without_the_column_time_are_read(tmp_path: Path) -> None:
    """Files of earlier versions end with the column average_error."""
    path = tmp_path / "metrics.csv"
    path.write_text(",".join(COLUMNS[: COLUMNS.index("time")]) + "\n0,5,0.5,1,0.5,1,0.25,3,2,1.5,2,\n")
    [row] = read_metrics(path).rows
    assert (row.round, row.max_staleness, row.average_error, row.time) == (5, 2, None, None)
