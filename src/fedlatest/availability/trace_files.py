"""Recorded availability in tables with the columns client, start, end: CSV, gzipped CSV, Parquet or a data frame."""

import csv
import gzip
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, time
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
    """A client, given by its position or its name, is available from `start` (included) to `end` (excluded)."""

    client: int | str
    start: float
    end: float


class RecordedDevices(NamedTuple):
    """The intervals of devices 0 .. num_devices - 1, some of which may have none, and messages for the user."""

    intervals: list[Interval]
    num_devices: int
    notes: tuple[str, ...] = ()


def read_trace(source: Any) -> list[Interval]:
    """Read the intervals of a file or a data frame with the columns client, start, end; other columns are ignored.

    A file whose name ends in .gz is gzipped CSV, .parquet is Parquet (needs the extra `parquet`), anything else CSV.
    If all clients are whole numbers, they are positions. Otherwise they are names (so are numbers with leading zeros or
    above 10 million), which `trace` matches with the names of a federation. Times are numbers, or timestamps such as
    2026-01-31 08:00, which become seconds after midnight (UTC) of the first day.

    Args:
        source: The path of a file, or a data frame of pandas or polars.

    Raises:
        DataError: The source cannot be read or a row is invalid; the message names the file and the row.
        MissingExtraError: The file is Parquet, and pyarrow is not installed.
    """
    if hasattr(source, "columns"):
        name, rows = "trace", _read_frame(source)
    else:
        path = Path(source)
        name, rows = f"trace={path}", _read_parquet(path) if path.suffix == PARQUET else _read_csv(path)
    parsed = [_parse_row(place, row) for place, row in rows if any(row)]
    intervals = _to_intervals(name, parsed)
    if all(_is_position(str(client)) for client in {interval.client for interval in intervals}):
        return [Interval(int(client), start, end) for client, start, end in intervals]
    return intervals


def number_clients(intervals: Sequence[Interval]) -> tuple[list[Interval], int]:
    """Return the intervals with positions instead of names, and the number of positions.

    Names are numbered in the order of their first appearance, for uses in which it does not matter which is which.
    """
    names = list(dict.fromkeys(interval.client for interval in intervals))
    if all(str(name).isdecimal() and int(name) <= MAX_POSITION for name in names):
        number = {name: int(name) for name in names}
    else:
        number = {name: index for index, name in enumerate(names)}
    numbered = [Interval(number[client], start, end) for client, start, end in intervals]
    return numbered, 1 + max(number.values(), default=-1)


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
    path: Path | str, rows: Iterable[tuple[int | str, float, float]], *, error: type[FedlatestError] = DataError
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
            header = [name.strip().lower() for name in next(rows, [])]
            if missing := [name for name in COLUMNS if header.count(name) != 1]:
                raise DataError(
                    f"trace={path}: the first line must name the columns {', '.join(COLUMNS)}, each once; "
                    f"{missing[0]} is missing or repeated in {','.join(header)!r}"
                )
            positions = [header.index(name) for name in COLUMNS]
            for number, row in enumerate(rows, start=2):
                if row and len(row) != len(header):
                    found = ",".join(row)
                    raise DataError(f"trace={path}, line {number}: expected {','.join(header)} but found {found!r}")
                yield f"trace={path}, line {number}", [row[position] for position in positions] if row else []
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


def _read_frame(frame: Any) -> Iterator[tuple[str, list[str]]]:
    """Yield where each row of a data frame stands, for error messages, and its cells as text."""
    if missing := [name for name in COLUMNS if name not in list(frame.columns)]:
        found = ", ".join(map(str, frame.columns))
        raise DataError(f"trace: the data frame has no column {missing[0]}; its columns are {found}")
    columns = (frame[name].to_list() for name in COLUMNS)
    rows = ([_cell(value) for value in row] for row in zip(*columns, strict=True))
    return ((f"trace, row {number}", row) for number, row in enumerate(rows))


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


def _write_parquet(path: Path, draft: Path, rows: Iterable[tuple[int | str, float, float]]) -> None:
    parquet = _pyarrow(path)
    import pyarrow

    clients, starts, ends = zip(*rows, strict=True) if (rows := list(rows)) else ((), (), ())
    times = [np.array(column, float) for column in (starts, ends)]
    named = any(isinstance(client, str) for client in clients)
    first = list(map(str, clients)) if named else np.array(clients, np.int64)
    parquet.write_table(pyarrow.table([first, *times], names=list(COLUMNS)), draft)


def _pyarrow(path: Path) -> Any:
    """Return the module pyarrow.parquet, or raise MissingExtraError."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError(f"{path} is Parquet, not CSV, and", "parquet") from None
    return pyarrow.parquet


def _cell(value: object) -> str:
    return "" if value is None else str(value)


def _is_position(text: str) -> bool:
    return text.isdecimal() and str(int(text)) == text and int(text) <= MAX_POSITION


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class _ParsedRow(NamedTuple):
    place: str  # for error messages
    client: str
    start: float | datetime
    end: float | datetime
    times: str  # as they were written


def _parse_row(place: str, row: list[str]) -> _ParsedRow:
    try:
        name, start, end = (cell.strip() for cell in row)
        parsed = _ParsedRow(place, name, _parse_time(start), _parse_time(end), f"{start} .. {end}")
    except ValueError:
        raise DataError(f"{place}: expected client,start,end but found {','.join(row)!r}") from None
    if not name or (_is_number(name) and not name.isdecimal()):
        raise DataError(f"{place}: client {name!r} is neither a position (0, 1, ...) nor a name")
    return parsed


def _parse_time(text: str) -> float | datetime:
    """Return a number, or the timestamp in UTC; timestamps without a time zone are taken as UTC."""
    try:
        return float(text)
    except ValueError:
        moment = datetime.fromisoformat(text)  # raises ValueError
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _to_intervals(source: str, rows: list[_ParsedRow]) -> list[Interval]:
    """Return the rows with numbers as times; timestamps become seconds after midnight of the first day."""
    moments = [moment for row in rows for moment in (row.start, row.end) if isinstance(moment, datetime)]
    if moments and len(moments) < 2 * len(rows):
        raise DataError(f"{source}: contains numbers and timestamps as times; use one of them")
    origin = datetime.combine(min(moments, default=datetime.min).date(), time(), UTC)
    intervals = []
    for row in rows:
        start, end = (_seconds_after(origin, moment) for moment in (row.start, row.end))
        if not (math.isfinite(end) and 0 <= start < end):
            raise DataError(f"{row.place}: an interval needs 0 <= start < end, not {row.times}")
        intervals.append(Interval(row.client, start, end))
    return intervals


def _seconds_after(origin: datetime, moment: float | datetime) -> float:
    return (moment - origin).total_seconds() if isinstance(moment, datetime) else moment
