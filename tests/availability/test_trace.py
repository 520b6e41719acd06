"""Recorded availability: compared with a linear search through the intervals; errors in files name the line."""

import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedlatest import (
    ConfigError,
    DataError,
    Interval,
    Samples,
    bernoulli,
    by_client,
    diurnal,
    lifetime,
    read_trace,
    trace,
    write_trace,
)
from fedlatest.availability.trace_files import number_clients

NUM_CLIENTS = 3
HORIZON = 40


@st.composite
def recordings(draw: st.DrawFn) -> list[Interval]:
    """Up to 8 intervals in quarters of a time unit, in any order; they may overlap, touch, or contain no round."""
    intervals = []
    for _ in range(draw(st.integers(1, 8))):
        start, length = draw(st.integers(0, 60)), draw(st.integers(1, 20))
        intervals.append(Interval(draw(st.integers(0, NUM_CLIENTS - 1)), start / 4, (start + length) / 4))
    return intervals


def is_available(intervals: list[Interval], client: int, time: Fraction) -> bool:
    return any(owner == client and start <= time < end for owner, start, end in intervals)


def contains_a_round(interval: Interval, round_length: float) -> bool:
    return math.ceil(interval.start / round_length) < math.ceil(interval.end / round_length)


@settings(max_examples=80)
@given(
    intervals=recordings(),
    # Quarters divided by these are whole numbers or differ from one by at least 1/12, so rounding errors do not matter.
    round_length=st.sampled_from([1.0, 0.5, 0.75, 2.0, 3.0]),
    wrap=st.booleans(),
)
@example(intervals=[Interval(0, 4, 6), Interval(0, 0, 2), Interval(0, 2, 4)], round_length=1.0, wrap=True)  # touching
@example(intervals=[Interval(1, 0, 9), Interval(1, 2, 3), Interval(1, 4, 11)], round_length=1.0, wrap=False)  # nested
@example(intervals=[Interval(2, 5, 6)], round_length=2.0, wrap=False)  # between rounds 2 and 3: contains none
def test_equals_a_linear_search(intervals: list[Interval], round_length: float, wrap: bool) -> None:
    """Round r is at the time r * round_length; a wrapped trace repeats from the first round after its last end."""
    usable = [interval for interval in intervals if contains_a_round(interval, round_length)]
    if not usable:
        with pytest.raises(ConfigError, match=f"^round_length={round_length}:"):
            trace(intervals, num_clients=NUM_CLIENTS, wrap=wrap, round_length=round_length)
        return
    if wrap:  # test_an_interval_without_a_round_still_ends_the_trace covers the others
        intervals = usable
    length = math.ceil(max(end for _, _, end in intervals) / round_length) if wrap else HORIZON
    table = trace(intervals, num_clients=NUM_CLIENTS, wrap=wrap, round_length=round_length).table(HORIZON)
    for round in range(HORIZON):
        time = round % length * Fraction(round_length)
        assert table[round].tolist() == [is_available(intervals, client, time) for client in range(NUM_CLIENTS)]


def test_by_hand_with_longer_rounds() -> None:
    """Rounds are at the times 0, 10, 20, ...: 5-25 contains 10 and 20, 30-31 contains 30, 41-49 contains none."""
    intervals = [Interval(0, 30, 31), Interval(0, 5, 25), Interval(1, 41, 49), Interval(1, 0, 0.1)]
    table = trace(intervals, num_clients=3, round_length=10).table(8)
    assert [np.flatnonzero(column).tolist() for column in table.T] == [[1, 2, 3], [0], []]


def test_by_hand_with_wrap() -> None:
    """The last end is 5, so round r is round r mod 5 of the trace, also near 10**6."""
    model = trace([Interval(0, 1, 3), Interval(1, 4, 5)], num_clients=2, wrap=True)
    assert np.flatnonzero(model.table(12)[:, 0]).tolist() == [1, 2, 6, 7, 11]
    assert np.flatnonzero(model.table(12)[:, 1]).tolist() == [4, 9]
    assert model.available(10**6 + 1, seed=0).tolist() == [True, False]
    assert model.assumption(50).smallest_e == 5


def test_many_intervals_of_one_client() -> None:
    """Available in every other round, 1000 times: the binary search finds the first and the last interval."""
    table = trace([Interval(1, 2 * k, 2 * k + 1) for k in range(1000)], num_clients=3).table(2001)
    assert table[:, 1].tolist() == [round % 2 == 0 for round in range(2000)] + [False]
    assert not table[:, [0, 2]].any()


def test_an_interval_without_a_round_still_ends_the_trace() -> None:
    """The last end is 9.5, so the trace repeats from round 10, although 9.1-9.5 contains no round."""
    model = trace([Interval(0, 0, 2), Interval(0, 9.1, 9.5)], num_clients=1, wrap=True)
    assert np.flatnonzero(model.table(15)[:, 0]).tolist() == [0, 1, 10, 11]


@pytest.mark.parametrize("round_length", [0.0, -1.0, math.nan, math.inf])
def test_invalid_round_lengths_are_named(round_length: float) -> None:
    with pytest.raises(ConfigError, match=f"^round_length={round_length}:"):
        trace([Interval(0, 0, 1)], num_clients=1, round_length=round_length)


def test_traces_that_cannot_be_replayed() -> None:
    with pytest.raises(DataError, match="no interval"):
        trace([], num_clients=1)
    with pytest.raises(ConfigError, match=r"^round_length=1e-06: .* more than 2147483646 rounds"):
        trace([Interval(0, 0, 3000)], num_clients=1, round_length=1e-6)
    with pytest.raises(ConfigError, match=r"^round_length=5: no interval"):
        trace([Interval(0, 1, 3), Interval(0, 6, 9)], num_clients=1, round_length=5)


@pytest.mark.parametrize("client", [2, -1])
def test_a_client_out_of_range_is_named(client: int) -> None:
    with pytest.raises(DataError, match=rf"client {client}, but the federation has clients 0 \.\. 1$"):
        trace([Interval(0, 0, 1), Interval(client, 0, 1)], num_clients=2)


@pytest.mark.parametrize("interval", [(0, 5, 3), (0, math.nan, 3), (0, 1, math.inf)], ids=str)
def test_an_invalid_interval_is_an_error(interval: tuple[int, float, float]) -> None:
    with pytest.raises(DataError):
        trace([Interval(0, 0, 1), Interval(*interval)], num_clients=1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.csv"


def test_a_missing_file_is_named(path: Path) -> None:
    with pytest.raises(DataError, match="^" + re.escape(f"trace={path}: cannot be read")):
        read_trace(path)


def test_a_file_that_is_not_text_is_named(path: Path) -> None:
    path.write_bytes(b"client,start,end\n\xff\xfe,0,1\n")
    with pytest.raises(DataError, match="^" + re.escape(f"trace={path}: cannot be read")):
        read_trace(path)


@pytest.mark.parametrize("header", ["", "0,1,2\n", "client,begin,end\n", "client,start\n", "client;start;end\n"])
def test_a_wrong_header_is_an_error(path: Path, header: str) -> None:
    path.write_text(header)
    with pytest.raises(
        DataError, match="^" + re.escape(f"trace={path}: the first line must name the columns client, start, end")
    ):
        read_trace(path)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("0,1", "expected client,start,end but found '0,1'"),
        ("0,1,2,3", "expected client,start,end but found '0,1,2,3'"),
        ("0,one,2", "expected client,start,end but found '0,one,2'"),
        ("0,,2", "expected client,start,end but found '0,,2'"),
        ("0,3,3", "an interval needs 0 <= start < end, not 3 .. 3"),
        ("0,4,3", "an interval needs 0 <= start < end, not 4 .. 3"),
        ("0,-1,3", "an interval needs 0 <= start < end, not -1 .. 3"),
        ("0,nan,3", "an interval needs 0 <= start < end, not nan .. 3"),
        ("0,1,NaN", "an interval needs 0 <= start < end, not 1 .. NaN"),
        ("0,1,inf", "an interval needs 0 <= start < end, not 1 .. inf"),
    ],
)
def test_an_invalid_row_is_named_by_its_line(path: Path, row: str, message: str) -> None:
    """The header is line 1 and the blank line counts, so the invalid row is line 4."""
    path.write_text(f"client,start,end\n0,0,1\n\n{row}\n1,0,1\n")
    with pytest.raises(DataError, match="^" + re.escape(f"trace={path}, line 4: {message}") + "$"):
        read_trace(path)


def test_a_cell_too_long_for_csv_is_an_error(path: Path) -> None:
    path.write_text(f"client,start,end\n{'x' * 200_000},0,1\n")
    with pytest.raises(DataError, match="^" + re.escape(f"trace={path}")):
        read_trace(path)


def test_a_negative_client_is_not_a_name(path: Path) -> None:
    path.write_text("client,start,end\n5,0,1\n-1,0,1\n")
    with pytest.raises(DataError, match="line 3"):
        read_trace(path)


def test_whole_numbers_are_positions(path: Path) -> None:
    path.write_text("Client, Start, END\n5,0,1.5\n 2 , 1 , 2e1 \n5,3,4\n")
    assert read_trace(path) == [Interval(5, 0, 1.5), Interval(2, 1, 20), Interval(5, 3, 4)]


def test_serial_numbers_are_names(path: Path) -> None:
    path.write_text("client,start,end\n867530912345678,0,1\n353879234252633,1,2\n867530912345678,3,4\n")
    clients = ["867530912345678", "353879234252633", "867530912345678"]
    assert [interval.client for interval in read_trace(path)] == clients


def test_names_are_numbered_by_first_appearance(path: Path) -> None:
    path.write_text("client,start,end\nzoe,0,1\nann,1,2\nzoe,3,4\n7,0,1\n")
    numbered = [Interval(0, 0, 1), Interval(1, 1, 2), Interval(0, 3, 4), Interval(2, 0, 1)]
    assert number_clients(read_trace(path)) == (numbered, 3)


def test_a_written_file(path: Path) -> None:
    """Blocks of 2 in 5 rounds: the first group in 0-2 and 4-5, the other in 2-4; the horizon ends open intervals."""
    write_trace(path, diurnal([True, False], period=2), horizon=5)
    assert path.read_text().split() == ["client,start,end", "0,0,2", "0,4,5", "1,2,4"]


@pytest.mark.parametrize("seed", [0, 1])
def test_a_written_trace_replays_the_table(path: Path, seed: int) -> None:
    """Also for a client that is always available and one that never is."""
    model = bernoulli([0.5, 1.0, 0.1, 0.0, 0.9, 0.0])
    write_trace(path, model, horizon=HORIZON, seed=seed)
    replayed = trace(read_trace(path), num_clients=6)
    assert replayed.table(HORIZON).tolist() == model.table(HORIZON, seed).tolist()
    assert not replayed.table(HORIZON + 9)[HORIZON:].any()


def test_replaying_a_trace_without_intervals_is_an_error(path: Path) -> None:
    write_trace(path, lifetime([9]), horizon=5)
    assert read_trace(path) == []
    with pytest.raises(DataError, match="no interval"):
        trace(read_trace(path), num_clients=1)


def test_names_are_matched_with_those_of_the_federation(tmp_path: Path) -> None:
    """`by_client` sorts the names (ann, bob, zoe); the trace mentions zoe first."""
    samples = Samples("own", np.zeros((3, 1), np.float32), np.arange(3), np.zeros((1, 1), np.float32), np.zeros(1, int))
    federation = samples.to_federation(by_client(["zoe", "ann", "bob"]))
    assert federation.names is not None
    assert federation.names.tolist() == ["ann", "bob", "zoe"]
    (tmp_path / "trace.csv").write_text("client,start,end\nzoe,0,1\nann,1,2\n")
    intervals = read_trace(tmp_path / "trace.csv")
    assert intervals == [Interval("zoe", 0, 1), Interval("ann", 1, 2)]
    model = trace(intervals, names=federation.names)
    assert model.table(2).astype(int).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert federation.pooled.names is None


def test_whole_numbers_are_matched_with_names(tmp_path: Path) -> None:
    names = by_client(np.array([1001, 1007])).names
    assert trace([Interval(1007, 0, 1)], names=names).table(1).tolist() == [[False, True]]
    (tmp_path / "trace.csv").write_text("client,start,end\n007,0,1\n010,0,1\n")
    assert [interval.client for interval in read_trace(tmp_path / "trace.csv")] == ["007", "010"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"names": ["ann", "bob"]}, "the trace names client 'zoe', which the federation does not have; its 2 clients"),
        ({"num_clients": 2}, "names: the trace names its clients ('zoe', ...), but the names of the federation's"),
        ({}, "num_clients: give the number of clients, or their names"),
        ({"names": ["zoe"], "num_clients": 2}, "num_clients=2: there are 1 names; leave out num_clients"),
        ({"names": ["zoe"], "drop_absent": True}, "drop_absent: renumbers the devices"),
    ],
)
def test_names_that_cannot_be_matched(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        trace([Interval("zoe", 0, 1)], **arguments)


def test_copies_of_named_devices_need_no_names() -> None:
    model = trace([Interval("zoe", 0, 1), Interval("ann", 1, 2)], num_clients=3, devices="repeat", day_length=2)
    assert model.table(2).astype(int).tolist() == [[1, 0, 1], [0, 1, 0]]
