"""What `diagnose` reads: a trace or a job, delays, and labels and sizes of clients."""

import csv
import dataclasses
import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from fedlatest.cli.app import show_notes
from fedlatest.errors import ConfigError, DataError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from fedlatest.diagnosis import Fleet
    from fedlatest.ledger.durations import Tasks

MAX_FILE_BYTES = 2**28
SPARSE = 3  # a trace whose numbers are this many times more than its clients has names, not positions


def read_fleet(
    source: Path,
    *,
    round_length: float | None = None,
    unit: float | None = None,
    delays: Path | None = None,
    clients: Path | None = None,
) -> "Fleet":
    """Read a fleet.

    Args:
        source: A trace, or the folder of a job.
        round_length: Length of a round of a trace, in its unit of time.
        unit: Seconds in the unit of time of a trace.
        delays: Seconds that clients take.
        clients: Labels and sizes.

    Raises:
        DataError: If a file cannot be read, or the files name different clients.
        ConfigError: If an option does not fit the source.
    """
    is_trace = source.is_file() and source.suffix not in (".sqlite", ".db")
    if source.is_dir() or (source.exists() and not is_trace):
        if round_length is not None or unit is not None:
            raise ConfigError("--round-length, --unit: a job has recorded its rounds and times; leave them out")
        fleet = _read_job(source)
    else:
        fleet = _read_trace(source, round_length, unit)
    if delays is not None:
        job = None if fleet.job is None else fleet.job._replace(num_unanswered=0)  # the file has their delays
        fleet = dataclasses.replace(fleet, delays=_read_delays(delays, fleet.names), job=job)
    return fleet if clients is None else _with_clients(fleet, clients)


def _read_trace(source: Path, round_length: float | None, unit: float | None) -> "Fleet":
    import numpy as np

    from fedlatest.availability.recorded_devices import read_devices
    from fedlatest.availability.trace_files import find_trace, number_clients, read_trace
    from fedlatest.diagnosis import fleet_of_spells

    path = find_trace(str(source))
    if path.suffix in (".json", ".pkl", ".pickle"):
        devices = read_devices(path)
        show_notes(list(devices.notes))
        intervals, names = devices.intervals, [str(number) for number in range(devices.num_devices)]
    else:
        intervals, num_clients = number_clients(found := read_trace(path))
        names, seen = [str(number) for number in range(num_clients)], list(dict.fromkeys(row.client for row in found))
        if not all(isinstance(client, int) for client in seen) or num_clients > SPARSE * len(seen):
            numbers = {client: number for number, client in enumerate(seen)}
            intervals = [row._replace(client=numbers[row.client]) for row in found]
            names = list(map(str, seen))
    columns = np.array(intervals, float).reshape(-1, 3).T
    return fleet_of_spells(
        columns[0].astype(np.int64), columns[1], columns[2], names=names, source=path.name,
        round_length=round_length, unit=unit,
    )  # fmt: skip


def _read_job(source: Path) -> "Fleet":
    """Read who was available in the rounds of a job, how long clients took, and their names and weights."""
    import numpy as np

    from fedlatest.diagnosis import JobFacts, fleet_of_table
    from fedlatest.ledger.database import Database
    from fedlatest.ledger.durations import read_task_rounds, read_tasks
    from fedlatest.ledger.job_folder import find_ledger
    from fedlatest.ledger.recorded_rounds import read_rounds

    ledger = find_ledger(source)
    with Database.open_for_reading(ledger) as database:
        rounds = read_rounds(database)
        rows = database.rows("SELECT client, name, weight FROM clients ORDER BY number")
        delays, num_unanswered = _recorded_delays(read_tasks(database), len(rows))
        deadlines = [each.deadline for each in read_task_rounds(database)]
    if not len(rounds.available):
        raise DataError(f"{source}: the job has not finished any round yet, so there is nothing to diagnose")
    names = [str(name or client) for client, name, _ in rows]
    fleet = fleet_of_table(rounds.available, names=names, source=source.name, moments=rounds.moments, unit=1.0)
    return dataclasses.replace(
        fleet,
        sizes=_filled(np.array([weight for _, _, weight in rows], float)),
        delays=None if np.isnan(delays).all() else delays,
        job=JobFacts(deadlines[-1] if deadlines else None, num_unanswered),
    )


def _recorded_delays(tasks: "Tasks", num_clients: int) -> "tuple[npt.NDArray[np.float64], int]":
    """Return [N] the median seconds from a request to an accepted upload, and how many clients were asked in vain.

    The seconds of a client without an accepted upload are NaN.
    """
    import numpy as np

    from fedlatest.ledger.recorded_delays import ANSWERED

    elapsed, delays = tasks.answered - tasks.asked, np.full(num_clients, np.nan)
    for client, own in enumerate(tasks.by_client(num_clients, tasks.have(*ANSWERED))):
        if len(own):
            delays[client] = np.median(elapsed[own])
    return delays, int(np.isnan(delays[np.unique(tasks.client)]).sum())


def _filled(weights: "npt.NDArray[np.float64]") -> "npt.NDArray[np.float64] | None":
    """Return the weights of clients, with the mean for those whose weight is unknown; None if all are unknown."""
    import numpy as np

    known = weights > 0
    if not known.any():
        return None
    if not known.all():
        number, mean = int((~known).sum()), float(weights[known].mean())
        show_notes(
            [f"{number} of {known.size} clients have no recorded number of samples; the mean, {mean:g}, is used"]
        )
    return np.where(known, weights, weights[known].mean())


def _read_delays(path: Path, names: list[str]) -> "npt.NDArray[np.float64]":
    """Return the seconds of each client, NaN for those that the file does not name.

    Clients of a trace that are positions have the lines of a file with names in their order, as in `read_delays`.
    """
    import numpy as np

    from fedlatest.delays.delay_files import read_delay_table

    table = read_delay_table(path)
    total = np.sum(list(table.seconds.values()), axis=0)
    by_line = all(map(str.isdecimal, names)) and not any(map(str.isdecimal, table.clients))
    if by_line and len(table.clients) == len(names):  # the trace has positions, as one of `fedlatest trace`
        return np.asarray(total, float)
    seconds = dict(zip(table.clients, total.tolist(), strict=True))
    _check_clients(path, seconds, names)
    return np.array([seconds.get(name, math.nan) for name in names])


def _with_clients(fleet: "Fleet", path: Path) -> "Fleet":
    """Return the fleet with the labels and sizes of a CSV file."""
    import numpy as np

    from fedlatest.bounded_reading import DECOMPRESSION_ERRORS, open_lines

    try:
        with open_lines(path, encoding="utf-8-sig", limit=MAX_FILE_BYTES) as lines:
            reader = csv.DictReader(lines)
            rows = [{(key or "").strip(): (cell or "").strip() for key, cell in row.items()} for row in reader]
            columns = [name.strip() for name in reader.fieldnames or []]
    except (*DECOMPRESSION_ERRORS, UnicodeDecodeError, csv.Error, AttributeError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from error
    known = [name for name in ("label", "num_samples") if name in columns]
    if "client" not in columns or not known:
        raise DataError(
            f"{path}: the first line is {','.join(columns)!r}; it must name client, and label, num_samples or both"
        )
    by_name = {row["client"]: row for row in rows}
    if len(by_name) < len(rows):
        raise DataError(f"{path}: names a client twice")
    _check_clients(path, by_name, fleet.names)
    missing = [name for name in fleet.names if name not in by_name]
    if missing:
        raise DataError(f"{path}: does not name client {missing[0]!r} and {len(missing) - 1} others of the fleet")
    if "label" in known:
        fleet = dataclasses.replace(fleet, labels=[by_name[name]["label"] for name in fleet.names])
    if "num_samples" in known:
        sizes = np.array([_size(path, by_name[name]) for name in fleet.names])
        if not (sizes > 0).any():
            raise DataError(f"{path}: num_samples is 0 for all clients")
        fleet = dataclasses.replace(fleet, sizes=sizes)
    return fleet


def _size(path: Path, row: dict[str, str]) -> float:
    try:
        value = float(row["num_samples"])
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise DataError(f"{path}: num_samples of client {row['client']} is {row['num_samples']!r}; it must be a number")
    return value


def _check_clients(path: Path, found: Iterable[str], names: list[str]) -> None:
    """Raise DataError if a file names a client that the fleet does not have."""
    known = set(names)
    unknown = [name for name in found if name not in known]
    if unknown:
        some = ", ".join(names[:3])
        others = f" and {len(unknown) - 1} others" if len(unknown) > 1 else ""
        raise DataError(
            f"{path}: names client {unknown[0]!r}{others}, which the fleet does not have; its {len(names)} clients are "
            f"{some}{', ...' if len(names) > 3 else ''}"
        )
