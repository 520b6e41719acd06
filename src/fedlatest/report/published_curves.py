"""Published training histories, read from CSV to be drawn and compared with runs."""

import csv
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.bounded_reading import DECOMPRESSION_ERRORS, open_lines
from fedlatest.errors import DataError

COLUMNS = ("algorithm", "setting", "round", "train_loss", "test_accuracy")
MAX_BYTES = 2**28  # that come out of a gzipped file


class PublishedCurve(NamedTuple):
    """A published history of one algorithm in one setting; each field is [evaluations]."""

    rounds: npt.NDArray[np.int64]
    train_loss: npt.NDArray[np.float64]
    test_accuracy: npt.NDArray[np.float64]


def read_published(path: Path) -> dict[tuple[str, str], PublishedCurve]:
    """Read histories by (algorithm, setting) from a CSV file, plain or gzipped, with at least the columns in COLUMNS.

    Raises:
        DataError: If the file cannot be read, lacks a column or contains a number that is not finite.
    """
    curves: dict[tuple[str, str], list[tuple[int, float, float]]] = {}
    try:
        with open_lines(path, encoding="utf-8", limit=MAX_BYTES) as lines:
            reader = csv.DictReader(lines)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            for row in () if missing else reader:
                curves.setdefault((row["algorithm"], row["setting"]), []).append(_parse_point(row))
    except (*DECOMPRESSION_ERRORS, ValueError, TypeError, csv.Error) as error:
        raise DataError(f"published={path}: cannot be read ({error})") from error
    if missing:
        raise DataError(f"published={path}: lacks the column {missing[0]}")
    return {key: PublishedCurve(*map(np.array, zip(*sorted(own), strict=True))) for key, own in curves.items()}


def _parse_point(row: dict[str, str]) -> tuple[int, float, float]:
    point = int(row["round"]), float(row["train_loss"]), float(row["test_accuracy"])
    if not all(map(math.isfinite, point)):
        raise ValueError(f"round {row['round']} holds a number that is not finite")
    return point
