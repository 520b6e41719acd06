"""Traces in gzipped CSV and Parquet files, and where a named trace is found."""

import builtins
import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlatest import DataError, Interval, MissingExtraError, diurnal, load_digits, read_trace, write_trace
from fedlatest.availability import AVAILABILITY, ClientInfo
from fedlatest.availability.trace_files import find_trace, write_intervals

INTERVALS = [Interval(0, 0.5, 2), Interval(3, 1, 4), Interval(0, 7, 8.25)]


@pytest.mark.parametrize("name", ["trace.csv", "trace.csv.gz", "trace.parquet"])
def test_every_format_is_read_as_it_was_written(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_intervals(path, INTERVALS)
    assert read_trace(path) == INTERVALS
    assert [file.name for file in tmp_path.iterdir()] == [name], "no draft is left"
    model = diurnal([True, False], period=2)
    write_trace(path, model, horizon=5)
    assert read_trace(path) == [Interval(0, 0, 2), Interval(0, 4, 5), Interval(1, 2, 4)]


def test_a_gzipped_file_is_plain_csv(tmp_path: Path) -> None:
    write_intervals(tmp_path / "a.csv.gz", INTERVALS)
    text = gzip.decompress((tmp_path / "a.csv.gz").read_bytes()).decode()
    assert text == "client,start,end\n0,0.5,2\n3,1,4\n0,7,8.25\n"
    write_intervals(tmp_path / "b.csv.gz", INTERVALS)
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()


@pytest.mark.parametrize("damage", [slice(0, -9), slice(0, 15), slice(5, None)], ids=["end", "most", "start"])
def test_a_damaged_gzipped_file_is_named(tmp_path: Path, damage: slice) -> None:
    path = tmp_path / "trace.csv.gz"
    write_intervals(path, INTERVALS)
    path.write_bytes(path.read_bytes()[damage])
    with pytest.raises(DataError, match="^" + re.escape(f"trace={path}: cannot be read")):
        read_trace(path)


def write_parquet(path: Path, **columns: list[Any]) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table(columns), path)


def test_parquet_with_names_and_further_columns(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    write_parquet(path, end=[1, 2, 4], model=["x", "y", "x"], start=[0.0, 1.5, 3.0], client=["zoe", "ann", "zoe"])
    assert read_trace(path) == [Interval("zoe", 0, 1), Interval("ann", 1.5, 2), Interval("zoe", 3, 4)]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"client": [0], "start": [0]}, ": has no column end; a trace needs client, start, end"),
        ({"client": [0, 1], "start": [0, 5], "end": [1, 5]}, ", row 2: an interval needs 0 <= start < end, not 5 .. 5"),
        ({"client": [0, None], "start": [0, 5], "end": [1, 6]}, ", row 2: client '' is neither a position"),
        ({"client": [0.5], "start": [0], "end": [1]}, ", row 1: client '0.5' is neither a position"),
        ({"client": [0], "start": [None], "end": [1]}, ", row 1: expected client,start,end but found '0,,1'"),
    ],
)
def test_invalid_parquet_is_named(tmp_path: Path, columns: dict[str, list[Any]], message: str) -> None:
    path = tmp_path / "trace.parquet"
    write_parquet(path, **columns)
    with pytest.raises(DataError, match="^" + re.escape(f"trace={path}{message}")):
        read_trace(path)


def test_a_file_that_is_not_parquet_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    for content in (None, b"", b"client,start,end\n0,0,1\n"):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(DataError, match="^" + re.escape(f"trace={path}: cannot be read as Parquet")):
            read_trace(path)


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_pyarrow(name: str, *arguments: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return original(name, *arguments)

    original = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", without_pyarrow)
    path = tmp_path / "trace.parquet"
    path.touch()
    message = re.escape(f"{path} is Parquet, not CSV, and needs packages that") + r".* pip install '\.\[parquet\]'"
    with pytest.raises(MissingExtraError, match=message):
        read_trace(path)
    with pytest.raises(MissingExtraError, match=message):
        write_intervals(path, INTERVALS)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "trace.csv"
    with pytest.raises(DataError, match=re.escape(f"{path}: could not be written")):
        write_intervals(path, INTERVALS)


def test_where_a_trace_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the current folder first, then in FEDLATEST_DATA/traces; absolute paths are not looked for elsewhere."""
    (tmp_path / "data" / "traces").mkdir(parents=True)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("FEDLATEST_DATA", raising=False)
    with pytest.raises(DataError, match=r"^trace=a\.csv: cannot be read, no such file; .* if FEDLATEST_DATA=FOLDER"):
        find_trace("a.csv")
    monkeypatch.setenv("FEDLATEST_DATA", str(tmp_path / "data"))
    with pytest.raises(DataError, match=r"^trace=a\.csv: cannot be read, no such file here or in .*traces$"):
        find_trace("a.csv")
    write_intervals(tmp_path / "data" / "traces" / "a.csv", [Interval(0, 0, 1)])
    clients = ClientInfo(np.array([0, 1]), 2, seed=0)
    assert AVAILABILITY["trace"](clients, trace="a.csv").table(2).tolist() == [[True, False], [False, False]]
    write_intervals("a.csv", [Interval(1, 1, 2)])
    assert AVAILABILITY["trace"](clients, trace="a.csv").table(2).tolist() == [[False, False], [False, True]]
    assert find_trace(str(tmp_path / "b.csv")) == tmp_path / "b.csv"


def test_further_columns_and_timestamps_in_csv(tmp_path: Path) -> None:
    """Timestamps become seconds after midnight (UTC) of the first day; columns are found by their names."""
    path = tmp_path / "trace.csv"
    path.write_text(
        "model,End,start,client\n"
        "x,2026-01-31 02:00,2026-01-31 01:30,ann\n"
        "y,2026-02-01T00:00:01Z,2026-01-31T23:00:00-00:30,bob\n"
    )
    assert read_trace(path) == [Interval("ann", 5400, 7200), Interval("bob", 84600, 86401)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("client,start,end\n0,1,2\n1,2026-01-31,2026-02-01\n", ": contains numbers and timestamps as times"),
        ("client,start\n0,1\n", ": the first line must name the columns client, start, end, each once; end is missing"),
        ("client,start,end\n0,2026-02-01,2026-01-31\n", ", line 2: an interval needs 0 <= start < end, not 2026-02-01"),
        ("client,start,end,x\n0,1,2\n", ", line 2: expected client,start,end,x but found '0,1,2'"),
    ],
)
def test_invalid_csv_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(DataError, match="^" + re.escape(f"trace={path}{message}")):
        read_trace(path)


def test_a_data_frame_is_a_trace() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"client": ["ann", "bob"], "start": [0, 1.5], "end": [1, 2], "model": ["x", "y"]})
    assert read_trace(frame) == [Interval("ann", 0, 1), Interval("bob", 1.5, 2)]
    stamped = frame.assign(start=pandas.Timestamp("2026-01-31 00:00:10"), end=pandas.Timestamp("2026-01-31 00:01"))
    assert read_trace(stamped) == [Interval("ann", 10, 60), Interval("bob", 10, 60)]
    with pytest.raises(DataError, match=r"^trace: the data frame has no column end; its columns are client, start"):
        read_trace(frame.drop(columns="end"))


def test_a_trace_that_covers_few_clients_is_noted(tmp_path: Path) -> None:
    from fedlatest.experiments.experiment import FederationBuilder
    from fedlatest.experiments.mnist import mnist

    path = tmp_path / "trace.csv"
    path.write_text("client,start,end\n0,0,1\n3,0,1\n")
    [experiment] = mnist.experiments([f"trace={path}", "availability=trace", "num_clients=20"])
    builder = FederationBuilder(load_digits())
    builder.check(experiment.values)
    assert [note.split(": ")[1] for note in builder.notes] == [
        "covers 2 of 20 clients; the other 18 are never available; use num_clients=2 or devices=repeat if that is not "
        "intended"
    ]
