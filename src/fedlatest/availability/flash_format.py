"""Reads the state traces of phones that FLASH (Yang et al. 2021, github.com/PKU-Chengxu/FLASH) publishes.

The JSON file maps each device to an object whose `messages` is a text with one state per line: a time such as
`2020-01-31 16:46:51`, a tab, and the state that begins then.

| states | meaning |
|---|---|
| battery_charged_on, battery_charged_off | whether it is charging |
| wifi; 2g, 3g, 4g, 5g, unknown | whether it uses an unmetered network |
| screen_lock, screen_unlock | whether it is idle |
| screen_on, screen_off, a battery level such as 71.0% | not used |

As in FLASH, a device is available while it is charging, on wifi and locked; none of these holds before its first
message. An interval that is open at the device's last message ends there (FLASH discards it).
"""

import json
from collections.abc import Iterator
from datetime import datetime, time
from pathlib import Path
from typing import Any

from fedlatest.availability.trace_files import Interval, RecordedDevices
from fedlatest.errors import DataError

# State -> (condition, whether it holds from then on).
_CONDITIONS = {
    "battery_charged_on": ("charging", True), "battery_charged_off": ("charging", False),
    "wifi": ("wifi", True), "2g": ("wifi", False), "3g": ("wifi", False), "4g": ("wifi", False),
    "5g": ("wifi", False), "unknown": ("wifi", False),
    "screen_lock": ("locked", True), "screen_unlock": ("locked", False),
}  # fmt: skip
_UNUSED = {"screen_on", "screen_off"}
_NEEDED = {"charging", "wifi", "locked"}
Period = tuple[datetime, datetime]


def read_flash(path: Path) -> RecordedDevices:
    """Read the devices of a FLASH file; times become seconds since 00:00 of the first day of the file.

    Devices are numbered in the order of the file. A device with a malformed line counts as never available, and a note
    says how many there are.

    Raises:
        DataError: The file is not such a JSON file, or no device has a valid line.
    """
    periods: list[tuple[int, Period]] = []
    first_times: list[datetime] = []
    malformed: list[str] = []
    texts = _messages(path)
    for number, (device, text) in enumerate(texts.items()):
        try:
            states = sorted(_states(text), key=lambda state: state[0])  # stable: equal times keep their order
        except ValueError as error:
            malformed.append(f"{device}: {error}")
            continue
        if states:
            first_times.append(states[0][0])
            periods.extend((number, period) for period in _available(states))
    if not first_times:
        reason = f"; first: {malformed[0]}" if malformed else ""
        raise DataError(f"{path}: none of its {len(texts)} devices has a valid trace{reason}")
    origin = datetime.combine(min(first_times).date(), time())
    intervals = [
        Interval(number, (start - origin).total_seconds(), (end - origin).total_seconds())
        for number, (start, end) in periods
    ]
    if not malformed:
        return RecordedDevices(intervals, len(texts))
    note = f"{len(malformed)} devices have malformed lines and count as never available; first: {malformed[0]}"
    return RecordedDevices(intervals, len(texts), (note,))


def _messages(path: Path) -> dict[str, str]:
    """Return the messages of each device."""
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is not JSON ({error})") from error
    if not isinstance(content, dict) or not content:
        raise DataError(f"{path}: is no FLASH trace, which maps devices to objects with the key messages")
    for device, about in content.items():
        if not isinstance(about, dict) or not isinstance(about.get("messages"), str):
            raise DataError(f"{path}: device {device} has no text `messages`, as a FLASH trace has")
    return {device: about["messages"] for device, about in content.items()}


def _states(text: str) -> Iterator[tuple[datetime, str]]:
    """Yield the time and the state of each line; raise ValueError for a malformed one."""
    for line in filter(None, map(str.strip, text.splitlines())):
        moment, tab, state = line.partition("\t")
        state = state.strip().lower()
        known = state in _CONDITIONS or state in _UNUSED or (state.endswith("%") and _is_number(state[:-1]))
        if not tab or not known:
            raise ValueError(f"unknown state in {line!r}")
        yield datetime.strptime(moment.strip(), "%Y-%m-%d %H:%M:%S"), state


def _available(states: list[tuple[datetime, str]]) -> Iterator[Period]:
    """Yield the periods in which all needed conditions hold."""
    holding: set[str] = set()
    since: datetime | None = None
    for moment, state in states:
        condition, holds = _CONDITIONS.get(state, ("", False))
        (holding.add if holds else holding.discard)(condition)
        if holding == _NEEDED:
            since = since or moment
        elif since is not None:
            if since < moment:
                yield since, moment
            since = None
    if since is not None and since < states[-1][0]:
        yield since, states[-1][0]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
