"""Reads the availability of phones that FedScale publishes as `client_behave_trace` (github.com/SymbioticLab/FedScale).

The pickle maps each client to a dict: `active` and `inactive` are the seconds at which it becomes available and
unavailable, in turn; after `finish_time` seconds they repeat. `duration` and `model` are not used.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedlatest.availability.plain_pickle import read_plain_pickle
from fedlatest.availability.trace_files import Interval, RecordedDevices
from fedlatest.errors import DataError

MAX_SECONDS = 2**40
MAX_INTERVALS = 10**8


def read_fedscale(path: Path) -> RecordedDevices:
    """Read the clients of a FedScale file, without executing anything in it; times are in seconds.

    Clients are numbered in the order of the file. A client whose recording is shorter than the longest one is repeated
    after its own `finish_time`, as in FedScale, so that all clients have the same length. Intervals without a duration
    are left out.

    Raises:
        DataError: The file is not such a pickle; the message names the client.
    """
    content = read_plain_pickle(path)
    if not isinstance(content, dict) or not content:
        raise DataError(f"{path}: is no FedScale trace, which is a dict from clients to their times")
    recordings = [_recording(path, client, about) for client, about in content.items()]
    length = max(finish for _, finish in recordings)
    num_repeated = sum(length / finish * len(periods) for periods, finish in recordings)
    if num_repeated > MAX_INTERVALS:
        raise DataError(
            f"{path}: repeating the recordings up to the longest finish_time, {length:g} s, gives {num_repeated:.2g} "
            f"intervals, more than {MAX_INTERVALS:,}; is a finish_time much too short?"
        )
    intervals = [
        Interval(number, start, end)
        for number, (periods, finish) in enumerate(recordings)
        for start, end in _repeated(periods, finish, length)
    ]
    return RecordedDevices(intervals, len(recordings))


def _recording(path: Path, client: object, about: Any) -> tuple[list[tuple[float, float]], float]:
    """Return the periods in which a client is available and its finish time; raise DataError if they are invalid."""
    subject = f"{path}: client {client}"
    if not isinstance(about, dict) or not {"active", "inactive", "finish_time"} <= about.keys():
        raise DataError(f"{subject} needs the keys active, inactive and finish_time")
    active, inactive, finish = about["active"], about["inactive"], about["finish_time"]
    if not isinstance(active, list) or not isinstance(inactive, list) or len(active) != len(inactive):
        raise DataError(f"{subject}: active and inactive must be two lists of equal length")
    if not all(_is_time(value) for value in (*active, *inactive, finish)) or finish <= 0:
        raise DataError(f"{subject}: times must be numbers of seconds from 0 on, and finish_time above 0")
    periods = list(zip(active, inactive, strict=True))
    for start, end in periods:
        if start > end:
            raise DataError(f"{subject} becomes active at {start} and inactive before that, at {end}")
    return periods, finish


def _repeated(periods: list[tuple[float, float]], finish: float, length: float) -> Iterator[tuple[float, float]]:
    """Yield the periods of all cycles that start before `length`, cut off at the end of their cycle and at `length`."""
    for cycle in range(math.ceil(length / finish)):
        begin = cycle * finish
        for start, end in periods:
            shown = begin + start, min(begin + min(end, finish), length)
            if shown[0] < shown[1]:
                yield shown


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < MAX_SECONDS
