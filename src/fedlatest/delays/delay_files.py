"""Files of delays: a CSV file with one line per device and its seconds of download, training and upload."""

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.bounded_reading import DECOMPRESSION_ERRORS, open_lines
from fedlatest.delays.models import Delays, Stages, constant
from fedlatest.errors import ConfigError, DataError

COLUMNS = tuple(f"{stage}_seconds" for stage in Stages._fields)
MAX_FILE_BYTES = 2**30


class DelayTable(NamedTuple):
    """The delays of a file, one row for each device."""

    clients: list[str]
    """As they are named in the file."""
    seconds: dict[str, npt.NDArray[np.float64]]
    """Seconds by stage: "download", "training" and "upload", those that the file has."""


def read_delays(
    path: Path | str, *, num_clients: int | None = None, devices: Sequence[str | None] | None = None
) -> Delays:
    """Read the delays of devices from a CSV file.

    The first line names the columns: `client`, and at least one of `download_seconds`, `training_seconds` and
    `upload_seconds`; a stage without a column takes no time. Client i of the federation has the delays of the i-th
    line, unless `devices` says which line is its own.

    Args:
        path: The file; compressed if its name ends in .gz.
        num_clients: The number of clients of the federation. If there are more of them than lines, the lines repeat:
            client i has those of line i modulo their number. By default the number of lines.
        devices: For each client the device, as the column `client` names it, whose delays it has, such as the phone
            whose availability it follows; None for a client that is never available and takes no time.

    Raises:
        DataError: If the file cannot be read or a line is not valid.
        ConfigError: If the number of clients is below 1.
    """
    if num_clients is not None and num_clients < 1:
        raise ConfigError(f"num_clients={num_clients}: must be at least 1")
    table = read_delay_table(path)
    num_lines = len(table.clients)
    lines_of = (
        np.arange(num_clients or num_lines) % num_lines if devices is None else _lines(path, table.clients, devices)
    )
    return Delays(**{name: constant(np.append(values, 0.0)[lines_of]) for name, values in table.seconds.items()})


def read_delay_table(path: Path | str) -> DelayTable:
    """Read the delays of devices from a CSV file, as for `read_delays`, with the names of the clients.

    Raises:
        DataError: If the file cannot be read or a line is not valid.
    """
    path = Path(path)
    try:
        with open_lines(path, encoding="utf-8-sig", limit=MAX_FILE_BYTES) as lines:
            header, *rows = list(csv.reader(lines)) or [[]]
    except (*DECOMPRESSION_ERRORS, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: cannot be read ({error})") from error
    names = [name.strip() for name in header]
    found = [name for name in names if name in COLUMNS]
    unknown = [name for name in names if name not in (*COLUMNS, "client")]
    if "client" not in names or not found or unknown or len(set(names)) < len(names):
        raise DataError(
            f"{path}: the first line is {','.join(header)!r}; it must name client and at least one of "
            f"{', '.join(COLUMNS)}, each once"
        )
    columns: dict[str, list[float]] = {name: [] for name in found}
    seen: dict[str, int] = {}
    for number, row in enumerate(rows, start=2):
        if not row:
            continue
        if len(row) != len(names):
            raise DataError(f"{path}, line {number}: has {len(row)} values, the first line names {len(names)} columns")
        cells = dict(zip(names, row, strict=True))
        if cells["client"] in seen:
            raise DataError(
                f"{path}, line {number}: client {cells['client']} is in line {seen[cells['client']]} already"
            )
        seen[cells["client"]] = number
        for name in found:
            columns[name].append(_seconds(path, number, name, cells[name]))
    if not seen:
        raise DataError(f"{path}: holds no delays, only the first line")
    return DelayTable(list(seen), {name.removesuffix("_seconds"): np.array(values) for name, values in columns.items()})


def _lines(path: Path | str, clients: Sequence[str], devices: Sequence[str | None]) -> npt.NDArray[np.int64]:
    """Return the position of each device among the lines; that after the last for None."""
    position: dict[str | None, int] = {name.strip(): number for number, name in enumerate(clients)}
    position[None] = len(clients)
    if unknown := [device for device in devices if device not in position]:
        raise DataError(
            f"{path}: has no line for device {unknown[0]} of the trace"
            + (f" and {len(set(unknown)) - 1} others" if len(set(unknown)) > 1 else "")
            + "; both files must name the same devices"
        )
    return np.array([position[device] for device in devices])


def _seconds(path: Path, number: int, name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise DataError(f"{path}, line {number}: {name} is {text!r}; it must be a number of seconds, 0 or larger")
    return value
