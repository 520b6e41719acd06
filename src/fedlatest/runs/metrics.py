"""metrics.csv (one row per evaluation and seed) and labels.csv (test accuracy of every label)."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.errors import ConfigError, MissingExtraError, RunFolderError
from fedlatest.files import write_csv


class Row(NamedTuple):
    """An evaluation of one seed after `round` rounds; what describes a round is None at round 0."""

    seed: int
    round: int
    seconds: float
    train_loss: float
    train_accuracy: float
    test_loss: float
    test_accuracy: float
    num_available: int | None = None
    cohort_size: int | None = None
    mean_staleness: float | None = None
    max_staleness: int | None = None
    average_error: float | None = None
    time: float | None = None  # virtual seconds; this and what follows is None if the run has no virtual time
    downloads: int | None = None  # clients that were asked since the start of the run
    uploads: int | None = None  # updates that clients sent since then, also those that were too late
    merged: int | None = None  # updates that were used since then


COLUMNS = Row._fields
FIRST_OPTIONAL = COLUMNS.index("time")  # runs that were recorded by older versions lack this column and later ones
LATE_SHARE = 0.25  # "late" is the last quarter of the rounds, as in the paper: (3000, 4000] of 4000
_INTEGERS = {"seed", "round", "num_available", "cohort_size", "max_staleness", "downloads", "uploads", "merged"}


class Metrics(NamedTuple):
    """The rows of metrics.csv, with access to its columns."""

    rows: Sequence[Row]

    @property
    def seeds(self) -> list[int]:
        """The seeds, in the order of their rows."""
        return list(dict.fromkeys(row.seed for row in self.rows))

    @property
    def rounds(self) -> npt.NDArray[np.int64]:
        """[evaluations] number of rounds completed before each evaluation."""
        return np.array(list(dict.fromkeys(row.round for row in self.rows)))

    def to_pandas(self) -> Any:
        """Return the rows as a pandas.DataFrame with the columns of metrics.csv.

        Raises:
            MissingExtraError: If pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise MissingExtraError("to_pandas", "pandas") from None
        return pandas.DataFrame(list(self.rows), columns=list(COLUMNS))

    def column(self, name: str) -> npt.NDArray[np.float64]:
        """Return a column as [seeds, evaluations]; empty cells are NaN."""
        cells = {(row.seed, row.round): getattr(row, name) for row in self.rows}
        table = [[cells.get((seed, round)) for round in self.rounds] for seed in self.seeds]
        return np.array(table, dtype=np.float64)

    def time_to_accuracy(self, target: float, name: str = "test_accuracy") -> npt.NDArray[np.float64]:
        """Return [seeds] the virtual time of the first evaluation at which a column reached a target, or NaN.

        >>> rows = [Row(0, n, 0.0, 1.0, 0.5, 1.0, 0.1 * n, time=30.0 * n) for n in range(9)]
        >>> Metrics(rows).time_to_accuracy(0.5).tolist()
        [150.0]

        Raises:
            ConfigError: If the run has no virtual time.
        """
        times, reached = self.column("time"), self.column(name) >= target
        if np.isnan(times).any():
            raise ConfigError("time: the run has no virtual time; simulate it with `timing`")
        first = times[np.arange(len(times)), reached.argmax(axis=1)]
        return np.where(reached.any(axis=1), first, np.nan)

    def late(self, name: str) -> npt.NDArray[np.float64]:
        """Return a column over the last quarter of the rounds, [seeds, evaluations]."""
        rounds = self.rounds
        late = rounds > (1 - LATE_SHARE) * rounds[-1]
        late[-1] = True  # a run that was evaluated only at round 0
        return self.column(name)[:, late]


def read_metrics(path: Path) -> Metrics:
    """Read a metrics.csv; an incomplete last line, left by a crash, is ignored."""
    try:
        complete, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise RunFolderError(f"{path}: cannot be read ({error})") from error
    header, *lines = csv.reader(complete.splitlines() or [""])
    if len(header) < FIRST_OPTIONAL or tuple(header) != COLUMNS[: len(header)]:
        raise RunFolderError(f"{path}: is not a metrics file (its first line must be {','.join(COLUMNS)})")
    try:
        return Metrics([_parse(tuple(header), cells) for cells in lines])
    except ValueError as error:
        raise RunFolderError(f"{path}: is damaged ({error})") from error


def write_metrics(path: Path, rows: Iterable[Row]) -> None:
    """Write a complete metrics.csv, atomically."""
    write_csv(path, [COLUMNS, *(_cells(row) for row in rows)])


def append_metrics(path: Path, rows: Iterable[Row]) -> None:
    """Append rows; readers see them immediately."""
    try:
        with path.open("a", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(_cells(row) for row in rows)
    except OSError as error:
        raise RunFolderError(f"{path}: could not be written ({error.strerror})") from error


def as_written(row: Row) -> Row:
    """Return the row as it is read back from the file: with nine digits, which represent a float32 exactly."""
    return _parse(COLUMNS, _cells(row))


class LabelRow(NamedTuple):
    """Accuracies of one seed after `round` rounds; NaN for a label that the test set does not contain."""

    seed: int
    round: int
    accuracy: npt.NDArray[np.float64]  # [labels]


class LabelAccuracy(NamedTuple):
    """Test accuracy per label over time."""

    seeds: list[int]
    rounds: npt.NDArray[np.int64]  # [evaluations]
    accuracy: npt.NDArray[np.float64]  # [seeds, evaluations, labels]


def append_labels(path: Path, rows: Iterable[LabelRow]) -> None:
    """Append an evaluation to labels.csv; the first one creates the file."""
    rows = list(rows)
    try:
        is_new = not path.exists()
        with path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            if is_new:
                writer.writerow(["seed", "round", *range(len(rows[0].accuracy))])
            writer.writerows(_label_cells(row) for row in rows)
    except OSError as error:
        raise RunFolderError(f"{path}: could not be written ({error.strerror})") from error


def cut_labels(path: Path, *, last_round: int) -> None:
    """Remove the rows after `last_round` and an incomplete last line; a file without rows is deleted."""
    if "\n" not in path.read_text(encoding="utf-8"):  # the first line is incomplete
        path.unlink()
        return
    header, rows = _read_label_rows(path)
    kept = [row for row in rows if row.round <= last_round]
    if not kept:
        path.unlink()
        return
    write_csv(path, [header, *(_label_cells(row) for row in kept)])


def read_labels(path: Path) -> LabelAccuracy:
    """Read a labels.csv; an evaluation that is missing for some seeds is ignored."""
    header, rows = _read_label_rows(path)
    seeds, rounds = (list(dict.fromkeys(column)) for column in ([r.seed for r in rows], [r.round for r in rows]))
    cells = {(row.seed, row.round): row.accuracy for row in rows}
    complete = [round for round in rounds if all((seed, round) in cells for seed in seeds)]
    table = np.array([[cells[seed, round] for round in complete] for seed in seeds], float)
    return LabelAccuracy(seeds, np.array(complete, np.int64), table.reshape(len(seeds), len(complete), len(header) - 2))


def _cells(row: Row) -> list[str]:
    return ["" if value is None else f"{value:.9g}" if isinstance(value, float) else str(value) for value in row]


def _parse(columns: tuple[str, ...], cells: list[str]) -> Row:
    values = [
        None if cell == "" else int(cell) if name in _INTEGERS else float(cell)
        for name, cell in zip(columns, cells, strict=True)
    ]
    return Row(*values)  # type: ignore[arg-type]


def _read_label_rows(path: Path) -> tuple[list[str], list[LabelRow]]:
    try:
        complete, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
        header, *lines = csv.reader(complete.splitlines() or [""])
        rows = [LabelRow(int(line[0]), int(line[1]), np.array(line[2:], float)) for line in lines]
    except (OSError, ValueError, IndexError) as error:
        raise RunFolderError(f"{path}: cannot be read ({error})") from error
    if header[:2] != ["seed", "round"] or any(len(row.accuracy) != len(header) - 2 for row in rows):
        raise RunFolderError(f"{path}: is damaged (it must hold a seed, a round and an accuracy per label)")
    return header, rows


def _label_cells(row: LabelRow) -> list[Any]:
    return [row.seed, row.round, *(f"{value:.5g}" for value in row.accuracy)]
