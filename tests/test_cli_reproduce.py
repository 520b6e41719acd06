"""`fedlatest reproduce` and `fedlatest report` on a small data set in MNIST's file format."""

import csv
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedlatest.runs import RunFolder
from tests.command_line import fedlatest, fedlatest_here, next_command

LONG_COMMAND = ("reproduce", "mnist", "--figure", "chart", "--rounds", "1000", "--out", "o")
PUBLISHED = """algorithm,setting,round,train_loss,test_accuracy
FedLaAvg,E100_alpha0.1,0,2.3,0.1
FedLaAvg,E100_alpha0.1,20,1.0,0.6
"""


@pytest.mark.slow
def test_reproduce_two_figures(small_mnist: Path, tmp_path: Path) -> None:
    """Creates runs, figures, claims and a page; a second call runs nothing; another number of rounds is rejected."""
    (tmp_path / "published.csv").write_text(PUBLISHED)
    command = ("reproduce", "mnist", "--figure", "clients", "--figure", "illustration", "--rounds", "40", "--out", "o")
    done = fedlatest(*command, "--published", "published.csv", cwd=tmp_path, data=small_mnist)
    assert done.returncode == 0, done.stderr
    assert "4 of 4 runs were executed now" in done.stdout
    assert next_command(done) == ["watch", "o"]
    assert re.search(r"fedlaavg-num_clients=600: done \(\d/4 runs\)", done.stderr)
    for name in ("clients.png", "clients.pdf", "illustration.png", "illustration.pdf"):
        assert (tmp_path / "o/figures" / name).stat().st_size > 5000
    assert "claims: none could be judged" in done.stdout  # the claims need 4000 rounds
    with (tmp_path / "o/claims.csv").open() as file:
        assert list(csv.DictReader(file)) == []
    page = (tmp_path / "o/report.html").read_text()
    assert '"published":{"rounds":[0,20]' in page

    again = fedlatest_here(*command, cwd=tmp_path)  # needs no data, because nothing is run
    assert again.returncode == 0, again.stderr
    assert "0 of 4 runs were executed now" in again.stdout

    (tmp_path / "o/fedlaavg-digits=3/clients.npz").unlink()
    without = fedlatest_here(*command, cwd=tmp_path)  # a figure that cannot be drawn does not stop the command
    assert without.returncode == 0
    assert "illustration: not drawn (" in without.stderr

    inside = fedlatest_here(*command[:-1], "o/fedlaavg", cwd=tmp_path)
    assert inside.returncode == 1
    assert "is itself a run" in inside.stderr

    other = fedlatest_here(*command[:-4], "--rounds", "20", "--out", "o", cwd=tmp_path, data=small_mnist)
    assert other.returncode == 1
    assert "rounds was 40, now 20" in other.stderr

    report = fedlatest_here("report", "o", "--out", "page.html", "--title", "Mine & <yours>", cwd=tmp_path)
    assert report.returncode == 0, report.stderr
    assert "report: page.html (" in report.stdout
    assert "<title>Mine &amp; &lt;yours&gt;</title>" in (tmp_path / "page.html").read_text()


@pytest.mark.slow
def test_interrupt_and_continue(small_mnist: Path, tmp_path: Path) -> None:
    """SIGINT to the process group, as a terminal sends it: exit code 130, checkpoints, no process left; then finish."""
    process = start_long_reproduction(small_mnist, tmp_path)
    first = tmp_path / "o/fedlaavg-digits=3/metrics.csv"
    deadline = time.monotonic() + 120
    while not (first.is_file() and len(first.read_text().splitlines()) > 4) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "run the same command again to continue" in errors
    assert "Traceback" not in errors
    assert process_group_ended(process.pid)
    assert RunFolder(tmp_path / "o/fedlaavg-digits=3").rounds_done > 0

    done = fedlatest(*LONG_COMMAND, "--data", str(small_mnist), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert RunFolder(tmp_path / "o/fedlaavg-digits=3").finished


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc to detect the start of the workers")
@pytest.mark.slow
def test_interrupt_while_workers_start(small_mnist: Path, tmp_path: Path) -> None:
    """SIGINT before a worker can ignore it: exit code 130, no traceback, no process left."""
    process = start_long_reproduction(small_mnist, tmp_path)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    deadline = time.monotonic() + 120
    while len(children.read_text().split()) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert process_group_ended(process.pid)


def start_long_reproduction(small_mnist: Path, cwd: Path) -> subprocess.Popen[str]:
    """Start a long reproduction in a new process group, as a terminal does."""
    return subprocess.Popen(
        [sys.executable, "-m", "fedlatest", *LONG_COMMAND, "--data", str(small_mnist)],
        cwd=cwd, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def process_group_ended(group: int) -> bool:
    """Return whether no process of a group is left within 10 s after its leader has ended."""
    for _ in range(100):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "mnits"], "mnits: unknown; did you mean mnist?"),
        (["reproduce", "mnist", "--figure", "clint"], "--figure clint: unknown; did you mean clients?"),
        (["reproduce", "mnist", "--seeds", "0"], "--seeds 0: must be at least 1"),
        (["reproduce", "mnist", "--workers", "0"], "--workers 0: must be at least 1"),
        (["reproduce", "mnist", "--published", "no.csv"], "published=no.csv: cannot be read"),
        (["reproduce", "mnist", "--device", "tpu"], "--device tpu: choose cpu or gpu"),
        (["reproduce", "mnist", "--rounds", "0"], "--rounds 0: must be at least 1"),
        (["reproduce", "mnist", "--data", "nowhere"], "nowhere"),
        (["report", "nowhere"], "nowhere: holds no run"),
        (["report", ".", "--out", "page.pdf"], "holds no run"),
    ],
)
def test_invalid_arguments_give_a_short_error(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = fedlatest_here(*arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert message in done.stderr
    assert len(done.stderr.splitlines()) <= 2
