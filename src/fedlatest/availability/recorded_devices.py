"""Recorded devices of a trace in any supported format, and what a user wants to know about them."""

import statistics
from pathlib import Path
from typing import Literal, NamedTuple

from fedlatest.availability.fedscale_format import read_fedscale
from fedlatest.availability.flash_format import read_flash
from fedlatest.availability.trace_files import RecordedDevices, number_clients, read_trace
from fedlatest.errors import DataError

TraceFormat = Literal["auto", "csv", "flash", "fedscale"]


class TraceSummary(NamedTuple):
    """What a trace contains; times are in its own unit, from 0 to the last end."""

    num_devices: int
    num_never_available: int
    num_intervals: int
    length: float
    mean_availability: float  # share of the length, mean over all devices
    longest_absence: float  # of any device
    median_longest_absence: float  # over all devices


def read_devices(path: Path, trace_format: TraceFormat = "auto") -> RecordedDevices:
    """Read a trace.

    Args:
        path: The file.
        trace_format: `csv` for the files of `read_trace`, including Parquet, `flash` or `fedscale`; `auto` takes a file
            whose name contains .csv or ends in .parquet for the first, .json for the second, and a pickle for the last.

    Raises:
        DataError: The file does not follow the format, or its format is not recognised.
    """
    if trace_format == "auto":
        trace_format = _recognise(path)
    if trace_format == "flash":
        return read_flash(path)
    if trace_format == "fedscale":
        return read_fedscale(path)
    return RecordedDevices(*number_clients(read_trace(path)))


def summarise(devices: RecordedDevices) -> TraceSummary:
    """Return the size, the mean availability and the longest absences of a trace.

    >>> from fedlatest.availability import Interval
    >>> summary = summarise(RecordedDevices([Interval(0, 2, 6), Interval(0, 5, 10)], num_devices=2))
    >>> summary.mean_availability, summary.longest_absence, summary.median_longest_absence
    (0.4, 10, 6.0)
    """
    length = max((interval.end for interval in devices.intervals), default=0)
    present: dict[int | str, float] = {}  # time for which each device is available
    reached: dict[int | str, float] = {}  # its latest end so far
    absence: dict[int | str, float] = {}  # its longest absence so far
    for device, start, end in sorted(devices.intervals):
        before = reached.get(device, 0)
        absence[device] = max(absence.get(device, 0), start - before)
        present[device] = present.get(device, 0) + max(end - max(start, before), 0)
        reached[device] = max(before, end)
    longest = [max(absence[device], length - reached[device]) for device in present]
    longest += [length] * (devices.num_devices - len(longest))
    return TraceSummary(
        num_devices=devices.num_devices,
        num_never_available=devices.num_devices - len(present),
        num_intervals=len(devices.intervals),
        length=length,
        mean_availability=_ratio(sum(present.values()), length * devices.num_devices),
        longest_absence=max(longest, default=0),
        median_longest_absence=statistics.median(longest) if longest else 0,
    )


def _recognise(path: Path) -> TraceFormat:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if ".csv" in suffixes or suffixes[-1:] == [".parquet"]:
        return "csv"
    if suffixes[-1:] == [".json"]:
        return "flash"
    try:
        with path.open("rb") as file:
            start = file.read(1)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    if start == b"\x80" or suffixes[-1:] in ([".pkl"], [".pickle"]):  # a pickle of protocol 2 or later
        return "fedscale"
    raise DataError(f"{path}: its format is not recognised; choose one with --format csv, flash or fedscale")


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
