"""The command line as a user meets it: real processes, their output and exit codes."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedlatest import load_digits, load_model, read_trace, write_trace
from fedlatest.availability import bernoulli
from fedlatest.runs import RunFolder

FAST = ("--set", "num_clients=20", "--set", "local_steps=2", "--rounds", "12")


def fedlatest(*arguments: str, cwd: Path, data: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "FEDLATEST_DATA"}
    if data:
        environment["FEDLATEST_DATA"] = str(data)
    return subprocess.run(
        [sys.executable, "-m", "fedlatest", *arguments],
        cwd=cwd, env=environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


def test_quickstart_end_to_end(tmp_path: Path) -> None:
    """Four runs (by force into nothing, as `make demo`), a table, a figure; not overwritten, resumed, plotted."""
    done = fedlatest("run", "quickstart", *FAST, "--out", "q", "--force", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"FedLaAvg +0\.\d{4} +0\.\d{4} +0\.\d{4} +\d+", done.stdout)
    assert re.search(r"figure: q/figure\.png", done.stdout)
    assert (tmp_path / "q/figure.png").read_bytes().startswith(b"\x89PNG")
    for name in ("fedlaavg", "fedavg", "fedprox", "sequential"):
        assert RunFolder(tmp_path / "q" / name).finished
        assert (tmp_path / "q" / name / "figure.png").is_file()
    assert load_model(tmp_path / "q/fedlaavg").predict(load_digits().test_features).shape == (359,)

    again = fedlatest("run", "quickstart", *FAST, "--out", "q", cwd=tmp_path)
    assert again.returncode == 1
    assert "holds a finished run; add --resume" in again.stderr
    assert "Traceback" not in again.stderr

    resumed = fedlatest("run", "quickstart", *FAST, "--out", "q", "--resume", cwd=tmp_path)
    assert resumed.returncode == 0
    assert resumed.stdout == done.stdout

    drawn = fedlatest("plot", "q", "--out", "all.pdf", cwd=tmp_path)
    assert drawn.returncode == 0
    assert (tmp_path / "all.pdf").read_bytes().startswith(b"%PDF")


def test_interrupt_and_resume(tmp_path: Path) -> None:
    """Ctrl-C in the middle: exit 130, the work so far is kept, --resume goes on to the end."""
    arguments = ["run", "quickstart", *FAST[:-1], "100000", "--set", "evaluate_every=50", "--out", "q"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fedlatest", *arguments], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    metrics = tmp_path / "q/fedlaavg/metrics.csv"
    deadline = time.monotonic() + 120
    while not (metrics.is_file() and len(metrics.read_text().splitlines()) > 4):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert "--resume" in stderr
    folder = RunFolder(tmp_path / "q/fedlaavg")
    assert not folder.finished
    assert (folder / "checkpoint.safetensors").is_file()
    other = fedlatest(*arguments, "--set", "period=31", "--resume", cwd=tmp_path)
    assert other.returncode == 1
    assert "period was 30, now 31" in other.stderr


def test_trace_from_the_command_line(tmp_path: Path) -> None:
    """A recorded pattern replayed: the numbers available are those of the pattern that was written."""
    pattern = bernoulli([0.3] * 20)
    write_trace(tmp_path / "trace.csv", pattern, horizon=12, seed=5)
    assert read_trace(tmp_path / "trace.csv")
    done = fedlatest(
        "run", "quickstart", *FAST, "--out", "q", "--set", "availability=trace", "--set", "trace=trace.csv",
        "--set", "evaluate_every=1", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = RunFolder(tmp_path / "q/fedavg").metrics().rows
    assert [row.num_available for row in rows[1:]] == pattern.table(12, seed=5).sum(axis=1).tolist()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("run", "quikstart"), 1, "recipe quikstart: unknown; choose one of quickstart, mnist"),
        (("run", "quickstart", "--set", "perod=3"), 1, "perod: unknown key; did you mean period?"),
        (("run", "quickstart", "--set", "period=0"), 1, "period=0"),
        (("run", "quickstart", "--set", "participation=2"), 1, "participation=2.0"),
        (("run", "quickstart", "--rounds", "0"), 1, "rounds=0"),
        (("run", "quickstart", "--seed", "1", "--seeds", "2"), 1, "--seed, --seeds"),
        (("run", "quickstart", "--seeds", "0"), 1, "--seeds 0"),
        (("run", "quickstart", "--device", "tpu"), 1, "--device tpu: choose cpu or gpu"),
        (("run", "quickstart", "--resume", "--force"), 1, "--resume, --force"),
        (("run", "quickstart", "--sed", "1"), 2, "No such option"),
        (("run", "mnist", "--data", "nowhere"), 1, "data=nowhere: no such folder"),
        (("plot", "nowhere"), 1, "nowhere: holds no run"),
    ],
)
def test_mistakes_are_one_or_two_lines(tmp_path: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    done = fedlatest(*arguments, cwd=tmp_path)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("manifest.json"))


def test_list_names_everything(tmp_path: Path) -> None:
    done = fedlatest("list", cwd=tmp_path)
    for name in ("quickstart", "mnist", "fedlaavg", "sequential", "diurnal", "markov", "lifetime", "trace", "mu=1.0"):
        assert name in done.stdout
    assert fedlatest("--version", cwd=tmp_path).stdout.startswith("fedlatest 0.")


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a short quickstart was run, to be copied."""
    folder = tmp_path_factory.mktemp("quickstart")
    assert fedlatest("run", "quickstart", *FAST, "--out", "q", cwd=folder).returncode == 0
    return folder


def test_forced_recipe_can_be_resumed_after_a_cut(quickstart: Path, tmp_path: Path) -> None:
    """--force removes all runs of the recipe before the first, so a cut leaves nothing old behind."""
    shutil.copytree(quickstart, tmp_path, dirs_exist_ok=True)
    for name in ("fedavg", "sequential"):
        RunFolder(tmp_path / "q" / name).clear()  # as if cut: some runs are missing
    other = ("run", "quickstart", *FAST, "--set", "period=7", "--out", "q")
    assert fedlatest(*other, "--resume", cwd=tmp_path).returncode == 1
    assert fedlatest(*other, "--force", cwd=tmp_path).returncode == 0
    periods = {RunFolder(tmp_path / "q" / n).manifest["config"]["recipe"]["period"] for n in ("fedlaavg", "sequential")}
    assert periods == {7}


def test_force_with_nonsense_removes_nothing(quickstart: Path, tmp_path: Path) -> None:
    shutil.copytree(quickstart, tmp_path, dirs_exist_ok=True)
    for nonsense in (("--seed", "-1"), ("--set", "batch_size=0"), ("--set", "evaluate_every=0")):
        done = fedlatest("run", "quickstart", *FAST, "--out", "q", "--force", *nonsense, cwd=tmp_path)
        assert done.returncode == 1
    for name in ("fedlaavg", "fedavg", "fedprox", "sequential"):
        assert RunFolder(tmp_path / "q" / name).finished
