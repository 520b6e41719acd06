"""The command `diagnose`: traces, jobs, files beside them, what it writes, and its errors."""

import contextlib
import gzip
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from fedlatest.cli.diagnose_input import _check_clients, read_fleet
from fedlatest.diagnosis import JobFacts, read_diagnosis
from fedlatest.errors import DataError
from fedlatest.experiments import RECIPES, FederationBuilder
from fedlatest.flower import Timeouts
from tests.command_line import Done, fedlatest, fedlatest_here, next_command
from tests.diagnosis.fleets import by_day_and_night, random_fleet
from tests.flower.small_job import SmallJob, lose


def write_trace(path: Path, table: npt.NDArray[np.bool_], *, round_seconds: int = 1800, names: str = "{}") -> None:
    """Write a table as a trace with one interval per available round."""
    rows = [
        f"{names.format(client)},{number * round_seconds},{(number + 1) * round_seconds}"
        for number, client in np.argwhere(table).tolist()
    ]
    path.write_text("\n".join(["client,start,end", *rows]) + "\n")


def check_next_run(done: Done, folder: Path) -> None:
    """Check that the experiments of the next command, `run quickstart`, can be built."""
    command, recipe, *options = next_command(done)
    assert (command, recipe) == ("run", "quickstart")
    builder = FederationBuilder(RECIPES[recipe].load(None))
    with contextlib.chdir(folder):
        for experiment in RECIPES[recipe].experiments(options[1::2]):
            experiment.spec(builder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a trace of 40 clients by day and night, their delays and their labels."""
    write_trace(tmp_path / "trace.csv", by_day_and_night() & random_fleet(np.full(40, 0.9)))
    delays = [f"{client},{5 + client},2" for client in range(40)]
    (tmp_path / "delays.csv").write_text("\n".join(["client,training_seconds,upload_seconds", *delays]) + "\n")
    clients = [f"{client},{'day' if client < 20 else 'night'},{10 + client}" for client in range(40)]
    (tmp_path / "clients.csv").write_text("\n".join(["client,label,num_samples", *clients]) + "\n")
    return tmp_path


def test_a_trace_with_everything(folder: Path) -> None:
    done = fedlatest_here(
        "diagnose", "trace.csv", "--round-length", "1800", "--delays", "delays.csv", "--clients", "clients.csv",
        "--learning-rate", "0.01", "--curvature", "1", "--cohort", "10", "--deadline", "33", "--out", "found",
        cwd=folder,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "480 rounds of 1800 s (10.0 days)" in done.stdout
    assert "algorithm    fedlaavg" in done.stdout
    assert "depends on the labels" in done.stdout
    assert "Confidence: high" in done.stdout
    found = read_diagnosis(folder / "found")
    assert found.known == ["labels", "sizes", "delays"]
    assert found.correlation.cycle_is_day
    assert {rate.deadline for rate in found.rates} == {27.0, 33.0, 43.0, 51.0}
    assert (folder / "found/diagnosis.png").read_bytes().startswith(b"\x89PNG")
    page = (folder / "found/report.html").read_text()
    assert "<b>fedlaavg</b>" in page
    assert "Weights of labels" in page
    assert "http" not in page.replace("http-equiv", "")
    check_next_run(done, folder)


def test_report_shows_a_diagnosis(folder: Path) -> None:
    fedlatest_here("diagnose", "trace.csv", "--out", "found", cwd=folder)
    done = fedlatest_here("report", "found", "--out", "again.html", "--title", "<Fleet>", cwd=folder)
    assert done.returncode == 0
    assert done.stdout.startswith("report: again.html (")
    page = (folder / "again.html").read_text()
    assert "&lt;Fleet&gt;" in page
    assert page.count("data:image/svg+xml") == 2
    done = fedlatest_here("report", "found", "--published", "x.csv", cwd=folder)
    assert "a diagnosis has no published histories" in done.stderr


def test_a_trace_that_counts_rounds(tmp_path: Path) -> None:
    table = random_fleet([0.5, 0.9, 0.2], rounds=60)
    table[-1] = True
    write_trace(tmp_path / "trace.csv", table, round_seconds=1, names="client-{}")
    done = fedlatest_here("diagnose", "trace.csv", cwd=tmp_path)
    assert done.returncode == 0
    assert ["record", "60", "rounds"] in [line.split() for line in done.stdout.splitlines()]
    assert "client-2" in done.stdout
    check_next_run(done, tmp_path)
    assert "How many rounds a day" not in done.stdout
    assert "give --delays" in done.stdout


def test_numbers_that_are_no_positions(tmp_path: Path) -> None:
    """Clients 7001 and 7003 are two clients; 1 and 3 are two of four, of which two are never available."""
    (tmp_path / "trace.csv").write_text("client,start,end\n7001,0,5\n7003,2,9\n")
    assert read_fleet(tmp_path / "trace.csv").names == ["7001", "7003"]
    (tmp_path / "trace.csv").write_text("client,start,end\n1,0,5\n3,2,9\n")
    fleet = read_fleet(tmp_path / "trace.csv")
    assert fleet.available.any(axis=0).tolist() == [False, True, False, True]


def test_a_job(tmp_path: Path) -> None:
    """Four rounds of three clients, of which c is online in the first one only, on a simulated clock."""
    job = SmallJob(tmp_path, cohort_size=2)
    for online in ("abc", "ab", "ab", "ab"):
        job.now += 5
        job.run_round(online)
    fleet = read_fleet(tmp_path / "job")
    assert fleet.available.shape == (4, 3)
    assert fleet.available[0].all()
    assert (fleet.names, fleet.unit) == (["a", "b", "c"], 1.0)
    assert fleet.delays is not None
    assert fleet.delays[:2].tolist() == [1.0, 1.0]  # a node replies at the next poll
    assert fleet.job == JobFacts(deadline=10.0, num_unanswered=0)
    done = fedlatest_here("diagnose", ".", cwd=tmp_path)  # the folder of the deployment
    assert done.returncode == 0
    assert "4 rounds of" in done.stdout
    assert "How many rounds a day are possible?" in done.stdout
    assert "--round-length" not in done.stdout
    assert next_command(done) == ["replay", "."]
    job.ledger.close()
    refused = fedlatest_here("diagnose", "job", "--round-length", "3", cwd=tmp_path)
    assert "a job has recorded its rounds and times" in refused.stderr


def test_clients_that_never_answer(tmp_path: Path) -> None:
    """The uploads of b are lost: its delay is unknown, and the deadline must not be shorter than that of the job."""
    job = SmallJob(tmp_path, timeouts=Timeouts(deadline=10, poll=1, late_reply=10))
    for _ in range(4):
        job.now += 5
        job.change_next_upload(lose, of="b")
        job.run_round("abc")
    job.ledger.close()
    fleet = read_fleet(tmp_path / "job")
    assert fleet.job == JobFacts(deadline=10.0, num_unanswered=1)
    assert fleet.delays is not None
    assert np.isnan(fleet.delays).tolist() == [False, True, False]
    assert fleet.sizes is not None
    assert fleet.sizes.tolist() == [2.0, 2.0, 2.0]  # that of b is the mean
    done = fedlatest_here("diagnose", "job", cwd=tmp_path)
    assert "1 of 3 clients have no recorded number of samples; the mean, 2, is used" in done.stderr
    assert "deadline     10 s" in done.stdout
    assert "1 client never answered with an accepted upload (the deadline of the job is 10 s)" in done.stdout
    (tmp_path / "delays.csv").write_text("client,training_seconds\na,1\nb,2\nc,3\n")
    known = read_fleet(tmp_path / "job", delays=tmp_path / "delays.csv")
    assert known.job == JobFacts(deadline=10.0, num_unanswered=0)


def test_names_are_compared_in_linear_time() -> None:
    """The list of names is gone through once, not once for each name in the file."""

    class Names(list[str]):
        times = 0

        def __iter__(self) -> Iterator[str]:
            self.times += 1
            return super().__iter__()

    names = Names(["a", "b", "c"])
    _check_clients(Path("delays.csv"), ["a", "b", "c"], names)
    assert names.times == 1


def test_a_job_without_rounds(tmp_path: Path) -> None:
    SmallJob(tmp_path).ledger.close()
    done = fedlatest_here("diagnose", "job", cwd=tmp_path)
    assert done.returncode == 1
    assert "the job has not finished any round yet" in done.stderr


def test_delays_of_a_trace_with_positions(tmp_path: Path) -> None:
    """`fedlatest trace JOB --delays FILE` writes positions into the trace and names into the delays, in one order."""
    write_trace(tmp_path / "trace.csv", random_fleet([0.5, 0.9], rounds=60))
    (tmp_path / "delays.csv").write_text("client,training_seconds\nann,3\nzoe,4\n")
    fleet = read_fleet(tmp_path / "trace.csv", delays=tmp_path / "delays.csv")
    assert fleet.delays is not None
    assert fleet.delays.tolist() == [3, 4]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.csv", None, "no such file"),
        ("text.csv", "some,words\n", "the first line must name the columns client, start, end"),
        ("empty.csv", "client,start,end\n", "contains no interval"),
        ("one.csv", "client,start,end\n0,1,2\n", "one client"),
    ],
)
def test_a_file_that_is_no_trace(tmp_path: Path, name: str, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    done = fedlatest_here("diagnose", name, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert message in done.stderr


@pytest.mark.parametrize(
    ("option", "content", "message"),
    [
        ("delays", "client,training_seconds\n0,1\n99,2\n", "names client '99', which the fleet does not have"),
        ("delays", "client,seconds\n0,1\n", "it must name client and at least one of"),
        ("clients", "client,label\n0,a\n", "does not name client '1' and 38 others"),
        ("clients", "client,colour\n0,a\n", "it must name client, and label, num_samples or both"),
        ("clients", "client,label\n0,a\n0,b\n", "names a client twice"),
    ],
)
def test_files_that_do_not_fit(folder: Path, option: str, content: str, message: str) -> None:
    (folder / "wrong.csv").write_text(content)
    done = fedlatest_here("diagnose", "trace.csv", f"--{option}", "wrong.csv", cwd=folder)
    assert (done.returncode, message in done.stderr) == (1, True), done.stderr


def test_sizes_must_be_numbers(folder: Path) -> None:
    rows = [f"{client},{'many' if client == 7 else 3}" for client in range(40)]
    (folder / "wrong.csv").write_text("\n".join(["client,num_samples", *rows]))
    with pytest.raises(DataError, match="num_samples of client 7 is 'many'"):
        read_fleet(folder / "trace.csv", clients=folder / "wrong.csv")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cohort", "41"], "cohort_size=41: must be in 1 .. 40"),
        (["--round-length", "0"], "round_length=0"),
        (["--local-steps", "0"], "num_local_steps=0"),
        (["--out", "trace.csv"], "is a file; name a folder"),
    ],
)
def test_options_out_of_range(folder: Path, arguments: list[str], message: str) -> None:
    done = fedlatest_here("diagnose", "trace.csv", *arguments, cwd=folder)
    assert (done.returncode, message in done.stderr) == (1, True), done.stderr


def test_a_folder_that_is_no_job(tmp_path: Path) -> None:
    assert "holds no job" in fedlatest_here("diagnose", ".", cwd=tmp_path).stderr


def test_compressed_traces_are_found_in_the_data_folder(folder: Path) -> None:
    (folder / "traces").mkdir()
    (folder / "traces/t.csv.gz").write_bytes(gzip.compress((folder / "trace.csv").read_bytes()))
    done = fedlatest("diagnose", "t.csv.gz", cwd=folder / "traces" / "..", data=folder)
    assert done.returncode == 0, done.stderr


def test_a_job_is_diagnosed_without_jax_and_flower(tmp_path: Path) -> None:
    job = SmallJob(tmp_path, cohort_size=2)
    job.run_round("abc")
    job.run_round("ab")
    job.ledger.close()
    script = (
        "import sys\nfrom fedlatest.cli import main\nsys.argv = ['fedlatest', 'diagnose', 'job', '--out', 'd']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\nprint(sorted({'jax', 'flwr'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
