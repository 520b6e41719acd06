"""Published training histories, to be drawn behind our own and compared with them."""

import csv
import gzip
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.errors import DataError

COLUMNS = ("algorithm", "setting", "round", "train_loss", "test_accuracy")


class PublishedCurve(NamedTuple):
    """One published history."""

    rounds: npt.NDArray[np.int64]
    train_loss: npt.NDArray[np.float64]
    test_accuracy: npt.NDArray[np.float64]


def read_published(path: Path) -> dict[tuple[str, str], PublishedCurve]:
    """Histories by (algorithm, setting), from a CSV (plain or .gz) that has at least the columns above."""
    try:
        with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="") as file:
            reader = csv.DictReader(file)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise DataError(f"published={path}: lacks the column {missing[0]}")
            rows = list(reader)
        curves: dict[tuple[str, str], list[tuple[int, float, float]]] = {}
        for row in rows:
            point = int(row["round"]), float(row["train_loss"]), float(row["test_accuracy"])
            curves.setdefault((row["algorithm"], row["setting"]), []).append(point)
    except (OSError, EOFError, ValueError, TypeError, csv.Error) as error:
        raise DataError(f"published={path}: cannot be read ({error})") from error
    return {key: PublishedCurve(*map(np.array, zip(*sorted(points), strict=True))) for key, points in curves.items()}
