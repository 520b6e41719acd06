"""Importers of published traces, with small files whose intervals can be read off, and the summary of a trace."""

import json
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlatest import DataError, Interval
from fedlatest.availability.fedscale_format import read_fedscale
from fedlatest.availability.flash_format import read_flash
from fedlatest.availability.recorded_devices import read_devices, summarise
from fedlatest.availability.trace_files import RecordedDevices, write_intervals


def messages(*lines: str) -> dict[str, str]:
    """A device of a FLASH file; each line is a time of day and a state, on 31 January unless a day is given."""
    dated = (line if not line or line.startswith("2020") else f"2020-01-31 {line}" for line in lines)
    return {"model": "some phone", "messages": "\n".join(line.replace("|", "\t") for line in dated) + "\n"}


def write_flash(path: Path, **devices: Any) -> Path:
    path.write_text(json.dumps(devices))
    return path


def test_a_flash_device_is_available_while_charging_on_wifi_and_locked(tmp_path: Path) -> None:
    """All three hold from 10:00:20 to 10:01:00 (unlocked), and from 10:02:00 (locked) to 10:03:00 (4G).

    Times count from midnight: 10:00:00 is second 36000. Screen and battery levels change nothing.
    """
    path = write_flash(
        tmp_path / "state_traces.json",
        first=messages(
            "10:00:00|battery_charged_on", "10:00:10|Wifi", "10:00:15|screen_off", "10:00:20|screen_lock",
            "10:00:30|71.0%", "10:00:40|screen_on", "10:01:00|screen_unlock", "10:02:00|screen_lock",
            "10:02:30|wifi", "10:03:00|4G", "10:04:00|battery_charged_off", "10:05:00|wifi",
        ),
    )  # fmt: skip
    found = read_flash(path)
    assert found == RecordedDevices([Interval(0, 36020, 36060), Interval(0, 36120, 36180)], 1)


@pytest.mark.parametrize("network", ["2g", "3G", "4g", "5G", "Unknown"])
def test_a_flash_device_is_not_available_on_other_networks(tmp_path: Path, network: str) -> None:
    device = messages("00:00:01|wifi", "00:00:02|screen_lock", "00:00:03|battery_charged_on", f"00:00:09|{network}")
    assert read_flash(write_flash(tmp_path / "a.json", a=device)).intervals == [Interval(0, 3, 9)]


def test_flash_times_count_from_midnight_of_the_first_day(tmp_path: Path) -> None:
    """The earliest message is from device b, on 30 January; a is available on the 31st, until its last message.

    Lines may be out of order and separated by blank ones. Device b is never available.
    """
    path = write_flash(
        tmp_path / "a.json",
        a=messages("02:00:00|screen_lock", "", "01:00:00|wifi", "01:30:00|battery_charged_on", "02:00:05|80%"),
        b=messages("2020-01-30 23:59:59|wifi"),
        c=messages(),
    )
    day = 86_400
    assert read_flash(path) == RecordedDevices([Interval(0, day + 7200, day + 7205)], 3)


@pytest.mark.parametrize(
    "line", ["10:00:00|dancing", "10:00:00 wifi", "10:00|wifi", "25:00:00|wifi", "10:00:00|x%", "10:00:00|"]
)
def test_a_malformed_flash_device_is_never_available_and_noted(tmp_path: Path, line: str) -> None:
    good = messages("00:00:01|wifi", "00:00:02|screen_lock", "00:00:03|battery_charged_on", "00:00:09|3g")
    bad = messages("00:00:01|wifi", "00:00:02|screen_lock", "00:00:03|battery_charged_on", line)
    found = read_flash(write_flash(tmp_path / "a.json", bad=bad, good=good))
    assert found.intervals == [Interval(1, 3, 9)]
    assert found.num_devices == 2
    [note] = found.notes
    assert note.startswith("1 devices have malformed lines and count as never available; first: bad: ")
    with pytest.raises(DataError, match="none of its 1 devices has a valid trace; first: bad: "):
        read_flash(write_flash(tmp_path / "a.json", bad=bad))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[1]", "is no FLASH trace"),
        ("{}", "is no FLASH trace"),
        ('{"a": 1}', "device a has no text `messages`"),
        ('{"a": {"messages": ["2020"]}}', "device a has no text `messages`"),
        ('{"a": {"messages": ""}}', "none of its 1 devices has a valid trace"),
    ],
)
def test_files_that_are_no_flash_trace_are_named(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "a.json"
    with pytest.raises(DataError, match="^" + re.escape(f"{path}: cannot be read")):
        read_flash(path)
    path.write_text(content)
    with pytest.raises(DataError, match="^" + re.escape(f"{path}: {message}")):
        read_flash(path)


def client(active: Any, inactive: Any, finish: Any = 100) -> dict[str, Any]:
    return {"duration": 1, "inactive": inactive, "finish_time": finish, "active": active, "model": "some phone"}


def write_fedscale(path: Path, content: object) -> Path:
    path.write_bytes(pickle.dumps(content))
    return path


def test_fedscale_clients(tmp_path: Path) -> None:
    """Client 1 has the longest recording, 100 s. Client 2 repeats after 40 s: at 5, 45 and 85, and 30, 70 and 110.

    Its period 35-60 is cut off at the end of its cycle. Client 7 has a period without a duration, client 9 none.
    """
    path = write_fedscale(
        tmp_path / "client_behave_trace",
        {
            1: client([10, 50], [20, 90.5]),
            2: client([5, 30, 35], [8, 32, 60], finish=40),
            7: client([3], [3]),
            9: client([], [], finish=50),
        },
    )
    second = [(5, 8), (30, 32), (35, 40), (45, 48), (70, 72), (75, 80), (85, 88)]
    expected = [Interval(0, 10, 20), Interval(0, 50, 90.5), *(Interval(1, *period) for period in second)]
    assert read_fedscale(path) == RecordedDevices(expected, 4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "is no FedScale trace"),
        ({}, "is no FedScale trace"),
        ({5: []}, "client 5 needs the keys active, inactive and finish_time"),
        ({5: {"active": [], "inactive": []}}, "client 5 needs the keys active, inactive and finish_time"),
        ({5: client([1], [2, 3])}, "client 5: active and inactive must be two lists of equal length"),
        ({5: client(1, 2)}, "client 5: active and inactive must be two lists of equal length"),
        ({5: client(["1"], [2])}, "client 5: times must be numbers of seconds from 0 on"),
        ({5: client([-1], [2])}, "client 5: times must be numbers of seconds from 0 on"),
        ({5: client([1], [float("nan")])}, "client 5: times must be numbers of seconds from 0 on"),
        ({5: client([1], [2], finish=0)}, "client 5: times must be numbers of seconds from 0 on"),
        ({5: client([1], [2], finish=None)}, "client 5: times must be numbers of seconds from 0 on"),
        ({5: client([10**400], [2])}, "client 5: times must be numbers of seconds from 0 on"),
        (
            {5: client([0], [1], finish=1e-9), 6: client([0], [1], finish=1e9)},
            "repeating the recordings up to the longest finish_time, 1e+09 s, gives 1e+18 intervals",
        ),
        ({5: client([9], [2])}, "client 5 becomes active at 9 and inactive before that, at 2"),
        ({5: client([np.int64(1)], [2])}, "refused, because it contains the pickle instruction"),
    ],
)
def test_files_that_are_no_fedscale_trace_are_named(tmp_path: Path, content: object, message: str) -> None:
    path = write_fedscale(tmp_path / "client_behave_trace", content)
    with pytest.raises(DataError, match="^" + re.escape(f"{path}: {message}")):
        read_fedscale(path)


def test_formats_are_recognised(tmp_path: Path) -> None:
    """By the name, or by the first byte of a pickle; the format can be given instead."""
    device = messages("00:00:01|wifi", "00:00:02|screen_lock", "00:00:03|battery_charged_on", "00:00:09|3g")
    expected = RecordedDevices([Interval(0, 3, 9)], 1)
    flash, pickled = write_flash(tmp_path / "a.json", a=device), write_fedscale(tmp_path / "a", {8: client([3], [9])})
    assert read_devices(flash) == read_devices(pickled) == expected
    for name in ("a.csv", "a.csv.gz", "a.parquet"):
        write_intervals(tmp_path / name, expected.intervals)
        assert read_devices(tmp_path / name) == expected
    (tmp_path / "other").write_bytes(flash.read_bytes())
    with pytest.raises(DataError, match=r"other: its format is not recognised; choose one with --format"):
        read_devices(tmp_path / "other")
    assert read_devices(tmp_path / "other", "flash") == expected
    (tmp_path / "old.pickle").write_bytes(pickle.dumps({8: client([3], [9])}, protocol=0))
    assert read_devices(tmp_path / "old.pickle") == expected
    with pytest.raises(DataError, match=r"nowhere: cannot be read"):
        read_devices(tmp_path / "nowhere")


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(1, 9)), min_size=1, max_size=8),
    st.integers(3, 5),
)
def test_the_summary_equals_a_count_of_seconds(drawn: list[tuple[int, int, int]], num_devices: int) -> None:
    intervals = [Interval(device, start, start + length) for device, start, length in drawn]
    end = int(max(interval.end for interval in intervals))
    table = np.zeros((num_devices, end), bool)
    for device, start, stop in intervals:
        table[int(device), int(start) : int(stop)] = True
    longest = [max(len(gap) for gap in "".join(map(str, row)).split("1")) for row in table.astype(int)]
    summary = summarise(RecordedDevices(intervals, num_devices))
    assert summary.length == end
    assert summary.num_devices == num_devices
    assert summary.num_intervals == len(intervals)
    assert summary.num_never_available == (~table.any(axis=1)).sum()
    assert summary.mean_availability == pytest.approx(table.mean())
    assert summary.longest_absence == max(longest)
    assert summary.median_longest_absence == np.median(longest)


def test_the_summary_of_an_empty_trace() -> None:
    assert summarise(RecordedDevices([], 0)) == (0, 0, 0, 0, 0, 0, 0)
    assert summarise(RecordedDevices([], 2)) == (2, 2, 0, 0, 0, 0, 0)
