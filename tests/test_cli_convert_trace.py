"""The command `convert-trace`: from a published trace to a simulation that replays it."""

import json
import pickle
from pathlib import Path

import pytest

from fedlatest import Interval, RunFolder, read_trace, trace
from tests.command_line import fedlatest_here, next_command

PHONES = {
    index: {"duration": 5, "active": [10 * index], "inactive": [10 * index + 5], "finish_time": 100, "model": "a"}
    for index in range(4)
}


def values(text: str) -> dict[str, str]:
    """The printed table."""
    rows = (line.rsplit(None, 1) for line in text.splitlines() if not line.startswith(("trace:", "next:")))
    return {name.strip(): value for name, value in rows}


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.parquet"])
def test_a_fedscale_trace(tmp_path: Path, name: str) -> None:
    """Four clients for 5 s each, of 35 s until the last end; the longest absences are 30, 20, 20 and 30 s."""
    (tmp_path / "client_behave_trace").write_bytes(pickle.dumps(PHONES))
    done = fedlatest_here("convert-trace", "client_behave_trace", "--out", name, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert values(done.stdout) == {
        "clients": "4", "never available": "0", "intervals": "4", "length": "35", "mean availability": "14.3%",
        "longest absence": "30", "longest absence, median over clients": "25",
    }  # fmt: skip
    assert f"trace: {name}" in done.stdout
    assert next_command(done) == ["diagnose", name]
    assert fedlatest_here(*next_command(done), cwd=tmp_path).returncode == 0
    assert read_trace(tmp_path / name) == [Interval(index, 10 * index, 10 * index + 5) for index in range(4)]


def test_a_flash_trace_with_a_malformed_device(tmp_path: Path) -> None:
    good = "2020-02-01 00:00:01\twifi\n2020-02-01 00:00:02\tscreen_lock\n2020-02-01 00:00:03\tbattery_charged_on\n"
    devices = {"a": {"messages": good + "2020-02-01 00:00:09\t3g"}, "b": {"messages": "yesterday"}}
    (tmp_path / "states.txt").write_text(json.dumps(devices))
    done = fedlatest_here("convert-trace", "states.txt", "--format", "flash", "--out", "a.csv", cwd=tmp_path)
    assert "1 devices have malformed lines and count as never available; first: b:" in done.stderr
    assert values(done.stdout)["never available"] == "1"
    assert (tmp_path / "a.csv").read_text() == "client,start,end\n0,3.0,9.0\n"


def test_errors_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "a.pkl").write_bytes(pickle.dumps({1: print}))
    done = fedlatest_here("convert-trace", "a.pkl", "--out", "a.csv", cwd=tmp_path)
    assert done.returncode == 1
    assert "error: a.pkl: refused, because it contains the pickle instruction STACK_GLOBAL" in done.stderr
    done = fedlatest_here("convert-trace", "a.pkl", "--out", "a.txt", cwd=tmp_path)
    assert "error: --out a.txt: the name must end in .csv, .csv.gz or .parquet" in done.stderr
    done = fedlatest_here("convert-trace", "a.pkl", "--out", "a.csv", "--format", "xml", cwd=tmp_path)
    assert done.returncode == 2
    assert list(tmp_path.iterdir()) == [tmp_path / "a.pkl"]


def test_a_converted_trace_is_replayed_with_more_clients(small_mnist: Path, tmp_path: Path) -> None:
    """Twenty clients from four phones; the file is found in FEDLATEST_DATA/traces."""
    (tmp_path / "client_behave_trace").write_bytes(pickle.dumps(PHONES))
    (tmp_path / "traces").mkdir()
    done = fedlatest_here("convert-trace", "client_behave_trace", "--out", "traces/phones.csv.gz", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    settings = (
        "num_clients=20", "availability=trace", "trace=phones.csv.gz", "devices=repeat", "day_length=12",
        "round_length=3", "wrap=true", "evaluate_every=1",
    )  # fmt: skip
    done = fedlatest_here(
        "run", "mnist", "--data", str(small_mnist), "--rounds", "12", "--out", "q",
        *(part for key in settings for part in ("--set", key)), cwd=tmp_path, data=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    model = trace(
        read_trace(tmp_path / "traces" / "phones.csv.gz"),
        num_clients=20, devices="repeat", day_length=12, round_length=3, wrap=True,
    )  # fmt: skip
    rows = RunFolder(tmp_path / "q").metrics().rows
    assert [row.num_available for row in rows[1:]] == model.table(12).sum(axis=1).tolist()
