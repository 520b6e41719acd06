"""Recorded availability in files: intervals with the columns client, start, end, as CSV, gzipped CSV or Parquet."""

import csv
import gzip
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.availability.base import Availability
from fedlatest.bounded_reading import DECOMPRESSION_ERRORS, open_lines
from fedlatest.errors import DataError, FedlatestError, MissingExtraError
from fedlatest.files import write_atomically
from fedlatest.paths import DATA, data_folder

MAX_POSITION = 10**7
MAX_BYTES = 2**30  # that come out of a gzipped or Parquet file
MAX_ROWS = 2**25  # of a Parquet file, in which a few bytes can stand for any number of equal rows
COLUMNS = ("client", "start", "end")
GZIP, PARQUET = ".gz", ".parquet"  # suffixes; a file with any other suffix is CSV


class Interval(NamedTuple):
    """A client is available from `start` (included) to `end` (excluded)."""

    client: int
    start: float
    end: float


class RecordedDevices(NamedTuple):
    """The intervals of devices 0 .. num_devices - 1, some of which may have none, and messages for the user."""

    intervals: list[Interval]
    num_devices: int
    notes: tuple[str, ...] = ()


def read_trace(path: Path | str) -> list[Interval]:
    """Read the intervals of a file with the columns client, start, end.

    A file whose name ends in .gz is gzipped CSV, .parquet is Parquet (needs the extra `parquet`), anything else CSV.
    If all clients are whole numbers, they are positions. Otherwise they are names, numbered in the order of their first
    appearance.

    Raises:
        DataError: The file cannot be read or a row is invalid; the message names the file and the row.
        MissingExtraError: The file is Parquet, and pyarrow is not installed.
    """
    path = Path(path)
    rows = _read_parquet(path) if path.suffix == PARQUET else _read_csv(path)
    parsed = [_parse_row(place, row) for place, row in rows if row]
    names = list(dict.fromkeys(name for name, _, _ in parsed))
    by_position = all(
        name.isdecimal() and int(name) <= MAX_POSITION for name in names
    )  # larger ones are serial numbers
    number = {name: int(name) if by_position else index for index, name in enumerate(names)}
    return [Interval(number[name], start, end) for name, start, end in parsed]


def find_trace(path: str) -> Path:
    """Return the file that a relative path names: in the current folder, or else in the folder FEDLATEST_DATA/traces.

    Raises DataError if neither exists.
    """
    found, folder = Path(path), data_folder(None)
    if found.exists() or found.is_absolute():
        return found
    if folder is None:
        raise DataError(
            f"trace={path}: cannot be read, no such file; files in FOLDER/traces are found if {DATA}=FOLDER is set"
        )
    if not (folder / "traces" / path).exists():
        raise DataError(f"trace={path}: cannot be read, no such file here or in {folder / 'traces'}")
    return folder / "traces" / path


def write_trace(path: Path | str, availability: Availability, *, horizon: int, seed: int = 0) -> None:
    """Write the availability in rounds 0 .. horizon - 1 as a trace for `read_trace`.

    Args:
        path: The file to write; its name decides about the format as in `read_trace`.
        availability: The model to record.
        horizon: Number of rounds.
        seed: Seed of the model's random draws.
    """
    write_table(path, availability.table(horizon, seed))


def write_table(
    path: Path | str,
    available: npt.NDArray[np.bool_],
    *,
    moments: Sequence[float] | None = None,
    error: type[FedlatestError] = DataError,
) -> None:
    """Write a table of availability as a trace for `read_trace`.

    Args:
        path: The file to write; its name decides about the format as in `read_trace`.
        available: bool[rounds, N].
        moments: [rounds + 1] times; round r lasts from moments[r] to moments[r + 1]. By default 0, 1, 2, ...
        error: The exception to raise if the file cannot be written.
    """
    edges = np.diff(available.T.astype(np.int8), axis=1, prepend=0, append=0)
    times = list(range(len(available) + 1) if moments is None else moments)
    rows = (
        (client, times[start], times[end])
        for client, edge in enumerate(edges)
        for start, end in zip(np.flatnonzero(edge == 1).tolist(), np.flatnonzero(edge == -1).tolist(), strict=True)
    )
    write_intervals(path, rows, error=error)


def write_intervals(
    path: Path | str, rows: Iterable[tuple[int, float, float]], *, error: type[FedlatestError] = DataError
) -> None:
    """Write intervals (client, start, end) as a trace for `read_trace`, completely or not at all.

    Args:
        path: The file to write; its name decides about the format as in `read_trace`.
        rows: The intervals.
        error: The exception to raise if the file cannot be written.
    """
    path = Path(path)

    def write(draft: Path) -> None:
        if path.suffix == PARQUET:
            _write_parquet(path, draft, rows)
        elif path.suffix == GZIP:  # the time 0 instead of the current one: equal traces are equal files
            with (
                draft.open("wb") as raw,
                gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,
                io.TextIOWrapper(packed, encoding="utf-8", newline="") as text,
            ):
                csv.writer(text, lineterminator="\n").writerows(chain([COLUMNS], rows))
        else:
            with draft.open("w", encoding="utf-8", newline="") as text:
                csv.writer(text, lineterminator="\n").writerows(chain([COLUMNS], rows))

    write_atomically(path, write, error=error)


def _read_csv(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield where each row stands, for error messages, and its cells."""
    try:
        # some spreadsheets write a byte order mark
        with open_lines(path, encoding="utf-8-sig", limit=MAX_BYTES) as lines:
            rows = csv.reader(lines)
            if tuple(name.strip().lower() for name in next(rows, [])) != COLUMNS:
                raise DataError(f"trace={path}: the first line must be {','.join(COLUMNS)}")
            for number, row in enumerate(rows, start=2):
                yield f"trace={path}, line {number}", row
    except (*DECOMPRESSION_ERRORS, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"trace={path}: cannot be read as text ({error})") from error


def _read_parquet(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield where each row stands, for error messages, and its cells as text."""
    parquet = _pyarrow(path)
    try:
        with parquet.ParquetFile(path) as file:
            _check_parquet(path, file)
            table = file.read(columns=list(COLUMNS))
    except DataError:
        raise
    except (OSError, ValueError) as error:  # pyarrow's errors about damaged files are ValueErrors
        raise DataError(f"trace={path}: cannot be read as Parquet ({error})") from error
    columns = (table.column(name).to_pylist() for name in COLUMNS)
    rows = ([_cell(value) for value in row] for row in zip(*columns, strict=True))
    return ((f"trace={path}, row {number}", row) for number, row in enumerate(rows, start=1))


def _check_parquet(path: Path, file: Any) -> None:
    """Raise DataError if a column is missing, or if the footer of the file announces more than the limits."""
    if missing := [name for name in COLUMNS if name not in file.schema_arrow.names]:
        raise DataError(f"trace={path}: has no column {missing[0]}; a trace needs {', '.join(COLUMNS)}")
    about = file.metadata
    num_bytes = sum(about.row_group(number).total_byte_size for number in range(about.num_row_groups))
    if about.num_rows > MAX_ROWS or num_bytes > MAX_BYTES:
        raise DataError(
            f"trace={path}: announces {about.num_rows:,} rows in {num_bytes:,} bytes, the limits are {MAX_ROWS:,} rows "
            f"and {MAX_BYTES:,} bytes"
        )


def _write_parquet(path: Path, draft: Path, rows: Iterable[tuple[int, float, float]]) -> None:
    parquet = _pyarrow(path)
    import pyarrow

    columns = np.array(list(rows), float).reshape(-1, 3).T
    arrays = [columns[0].astype(np.int64), columns[1], columns[2]]
    parquet.write_table(pyarrow.table(arrays, names=list(COLUMNS)), draft)


def _pyarrow(path: Path) -> Any:
    """Return the module pyarrow.parquet, or raise MissingExtraError."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError(
            f"{path}: Parquet needs an extra; install it with pip install 'fedlatest[parquet]', or use CSV"
        ) from None
    return pyarrow.parquet


def _cell(value: object) -> str:
    return "" if value is None else str(value)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parse_row(place: str, row: list[str]) -> tuple[str, float, float]:
    try:
        name, start, end = (cell.strip() for cell in row)
        times = float(start), float(end)
    except ValueError:
        raise DataError(f"{place}: expected client,start,end but found {','.join(row)!r}") from None
    if not name or (_is_number(name) and not name.isdecimal()):
        raise DataError(f"{place}: client {name!r} is neither a position (0, 1, ...) nor a name")
    if not (math.isfinite(times[1]) and 0 <= times[0] < times[1]):
        raise DataError(f"{place}: an interval needs 0 <= start < end, not {start} .. {end}")
    return name, *times
