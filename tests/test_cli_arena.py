"""`arena` and `sweep`: real, short comparisons on the bundled digits."""

import csv
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from fedlatest.report.leaderboard import Leaderboard
from fedlatest.runs import Row, RunFolder
from tests.command_line import Done, fedlatest_here, next_command

SMALL = ("--set", "num_clients=20", "--set", "local_steps=2", "--rounds", "20")
ARENA = (
    "arena", *SMALL, "--algorithms", "fedavg,inverse_probability:rates=known",
    "--availability", "always,labels:low=0.2", "--trials", "4", "--seeds", "2", "--workers", "1",
)  # fmt: skip
PAIRS = [
    f"{case}--{method}"
    for case in ("always", "labels-low=0.2")
    for method in ("fedavg", "inverse_probability-rates=known")
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """A finished arena in the folder `a`; tests use a copy or only read."""
    folder = tmp_path_factory.mktemp("arena")
    return folder, fedlatest_here(*ARENA, "--out", "a", cwd=folder)


def test_an_arena_end_to_end(finished: tuple[Path, Done]) -> None:
    """4 trials for each of 4 pairs, and 4 final runs on two fresh seeds with the best trial's step sizes."""
    folder, done = finished
    assert done.returncode == 0, done.stderr
    assert "20 of 20 runs were executed now" in done.stdout
    assert "the test over seeds needs at least 3 seeds" in " ".join(done.stdout.split())
    assert "not significantly different from it" not in " ".join(done.stdout.split())
    root = folder / "a"
    assert sorted(path.name for path in (root / "final").iterdir()) == sorted(PAIRS)
    assert len(list((root / "search").iterdir())) == 16
    board = Leaderboard(root)
    for trial in (trial for trial in board.trials if trial.best):
        entry = board.entry(trial.case, trial.method)
        others = [each.score for each in board.trials if each[:2] == trial[:2]]
        assert trial.score == max(others)
        assert entry.learning_rate == trial.learning_rate
        assert RunFolder(entry.run.path).manifest["seeds"] == [0, 1]
    with (root / "leaderboard.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4
    for row in rows:
        run = board.entry(row["case"], row["method"]).run
        assert float(row["accuracy"]) == pytest.approx(run.late_accuracy, abs=1e-6)
        assert float(row["client_step"]) == run.recipe["learning_rate"]
    # 20 rounds of at most K = 2 clients with 650 numbers of 4 bytes
    assert 0 < float(rows[0]["mb_up"]) <= 20 * 2 * 650 * 4 / 1e6 * 1.01
    assert "| FedAvg |" in (root / "leaderboard.md").read_text()
    assert (root / "ranks.png").read_bytes().startswith(b"\x89PNG")
    assert 'id="leaderboard"' in (root / "report.html").read_text()
    best = board.by_rank[0].partition("-")[0]
    assert next_command(done) == ["list", "algorithms", best]
    assert fedlatest_here(*next_command(done), cwd=folder).returncode == 0


def test_a_finished_arena_runs_nothing_again_and_one_that_lost_a_run_repeats_it(
    finished: tuple[Path, Done], tmp_path: Path
) -> None:
    shutil.copytree(finished[0] / "a", tmp_path / "a")
    again = fedlatest_here(*ARENA, "--out", "a", cwd=tmp_path)
    assert "0 of 20 runs were executed now" in again.stdout
    before = (tmp_path / "a/leaderboard.csv").read_text()
    shutil.rmtree(tmp_path / "a/final/always--fedavg")
    repeated = fedlatest_here(*ARENA, "--out", "a", cwd=tmp_path)
    assert "1 of 20 runs were executed now" in repeated.stdout
    assert (tmp_path / "a/leaderboard.csv").read_text() == before


def test_runs_on_changed_files_are_not_compared(finished: tuple[Path, Done], tmp_path: Path) -> None:
    """The manifest of one final run names another availability than those of the others."""
    shutil.copytree(finished[0] / "a", tmp_path / "a")
    path = tmp_path / "a/final/always--fedavg/manifest.json"
    manifest = json.loads(path.read_text())
    manifest["data"]["availability"] = "other"
    path.write_text(json.dumps(manifest))
    done = fedlatest_here("report", "a", cwd=tmp_path)
    assert done.returncode == 1
    assert "was run on other data or another availability" in done.stderr


def test_the_target_is_kept(finished: tuple[Path, Done], tmp_path: Path) -> None:
    shutil.copytree(finished[0] / "a", tmp_path / "a")
    assert fedlatest_here(*ARENA, "--out", "a", "--target", "0.3", cwd=tmp_path).returncode == 0
    assert {board.target for board in Leaderboard(tmp_path / "a").boards} == {0.3}


def test_the_report_command_knows_an_arena(finished: tuple[Path, Done], tmp_path: Path) -> None:
    done = fedlatest_here("report", str(finished[0] / "a"), "--out", "page.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Arena: quickstart" in (tmp_path / "page.html").read_text()


def test_a_method_that_always_diverges_is_a_result(tmp_path: Path) -> None:
    """The pull overflows within ten local steps; the arena ends normally and ranks the method last."""
    done = fedlatest_here(
        "arena", "--set", "num_clients=20", "--rounds", "20", "--algorithms", "fedavg,fedprox:mu=1e10",
        "--availability", "always", "--trials", "1", "--seeds", "1", "--workers", "1", "--out", "a", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    board = Leaderboard(tmp_path / "a")
    assert [entry.method for entry in board.boards[0].entries] == ["fedavg", "fedprox-mu=1e10"]
    assert board.boards[0].entries[1].diverged
    assert "diverged" in done.stdout
    assert "diverged" in (tmp_path / "a/leaderboard.md").read_text()
    assert json.loads((tmp_path / "a/arena.json").read_text())["search"][1]["score"] is None


IN_TIME = (
    "arena", "--set", "num_clients=20", "--set", "participation=0.2", "--set", "local_steps=2", "--set", "period=10",
    "--availability", "diurnal-time", "--algorithms", "fedavg,fedavg:answers=3,fedlaavg_async", "--hours", "1",
    "--trials", "4", "--seeds", "2", "--workers", "1", "--target", "0.5",
)  # fmt: skip


@pytest.fixture(scope="module")
def in_time(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """A finished arena in time in the folder `a`; tests use a copy or only read."""
    folder = tmp_path_factory.mktemp("in-time")
    return folder, fedlatest_here(*IN_TIME, "--out", "a", cwd=folder)


def test_an_arena_in_time_end_to_end(in_time: tuple[Path, Done]) -> None:
    """All runs end after an hour, evaluated about equally often; four of 20 clients are asked or at work."""
    folder, done = in_time
    assert done.returncode == 0, done.stderr
    assert "virtual hours to the target accuracy" in done.stdout
    [board] = Leaderboard(folder / "a").boards
    assert (board.until, board.target) == (3600, 0.5)
    for entry in board.entries:
        times = entry.run.metrics.column("time")
        assert (times[:, -1] >= 3600).all()
        assert 60 < (times[0] < 3600).sum() < 240
        assert entry.timed is not None
        assert not entry.timed.ends_early
    found = {entry.method: entry for entry in board.entries}
    limited, asynchronous = found["fedavg-answers=3"].timed, found["fedlaavg_async"].timed
    assert limited is not None
    assert asynchronous is not None
    assert limited.dropped == pytest.approx(0.25, abs=0.02)
    assert asynchronous.dropped == 0
    assert 0 < asynchronous.failed < 0.1
    with (folder / "a/leaderboard.csv").open() as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    # An upload has 650 numbers of 4 bytes.
    uploads = [float(each[-1].uploads or 0) for each in _by_seed(found["fedavg"].run.metrics.rows)]
    assert float(rows["fedavg"]["mb_up"]) == pytest.approx(sum(uploads) / 2 * 2600 / 1e6, rel=0.05)
    assert rows["fedavg"]["hours"] == "1"
    assert "| FedLaAvg, asynchronous |" in (folder / "a/leaderboard.md").read_text()
    assert (folder / "a/time-diurnal-time.png").read_bytes().startswith(b"\x89PNG")
    page = (folder / "a/report.html").read_text()
    assert "over virtual time and over bytes" in page
    assert '"axes":["seconds","megabytes","time"],"x":"time"' in page


def _by_seed(rows: Sequence[Row]) -> list[list[Row]]:
    return [[row for row in rows if row.seed == seed] for seed in (0, 1)]


def test_an_arena_in_time_runs_nothing_again(in_time: tuple[Path, Done], tmp_path: Path) -> None:
    """The number of rounds between evaluations is found again."""
    shutil.copytree(in_time[0] / "a", tmp_path / "a")
    before = (tmp_path / "a/leaderboard.csv").read_text()
    again = fedlatest_here(*IN_TIME, "--out", "a", cwd=tmp_path)
    assert "0 of 15 runs were executed now" in again.stdout
    assert (tmp_path / "a/leaderboard.csv").read_text() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--algorithms", "fedavgg"), "did you mean fedavg"),
        (("--hours", "2"), "--hours 2: no case that is compared is in time; use --rounds"),
        (("--hours", "-1", "--availability", "diurnal-time"), "--hours -1: must be above 0"),
        (("--availability", "always", "--algorithms", "fedbuff"), "fedbuff: is asynchronous and needs a case"),
        (("--availability", "phones-time"), "traces"),
        (("--availability", "diurnal-time", "--algorithms", "fedavg:answers=20"), "answers=20: only 10 clients"),
        (("--availability", "diurnal-time", "--algorithms", "ace", "--set", "deadline=30"), "--set deadline=30: "),
        (("--algorithms", "fedavg:mu=1"), "with a key of fedavg; choose one of weighting, server_step, "),
        (("--algorithms", "fedprox:m=1"), "with a key of fedprox; did you mean mu?"),
        (("--availability", "dirnal"), "availability dirnal: unknown; did you mean diurnal?"),
        (("--availability", "phonestime"), "did you mean phones-time?"),
        (("--algorithms", "fedavg,fedavg"), "is given twice"),
        (("--availability", "moon"), "availability moon: unknown; `fedlatest list cases` lists the names"),
        (("--dataset", "imagenet"), "recipe imagenet: unknown"),
        (("--trials", "0"), "--trials 0: must be at least 1"),
        (("--target", "95"), "--target 95.0: must be an accuracy"),
        (("--algorithms", "fedavg", "--set", "mu=1"), "no method and no case that is compared has this key"),
        (("--set", "availability=windows"), "use --availability to choose what is compared"),
        (("--set", "algorithm=fedavg"), "use --algorithms to choose what is compared"),
        (("--availability", "bernoulli:rate=1.5"), "rate=1.5"),
        (("--seeds", "3"), "holds an arena with another configuration"),
    ],
)
def test_wrong_options_are_explained(
    finished: tuple[Path, Done], arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    out = ("--out", str(finished[0] / "a")) if "--seeds" in arguments else ("--out", "new")
    done = fedlatest_here("arena", *arguments, *out, cwd=tmp_path)
    assert done.returncode == 1
    assert message in done.stderr


def test_a_sweep_end_to_end(tmp_path: Path) -> None:
    """mu applies to fedprox only, so that there are three runs and not four."""
    arguments = (
        "sweep", "quickstart", *SMALL, "--over", "algorithm=fedavg,fedprox", "--over", "mu=0.1,1", "--seeds", "2",
        "--workers", "1", "--out", "s",
    )  # fmt: skip
    done = fedlatest_here(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with (tmp_path / "s/sweep.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["algorithm"], row["mu"]) for row in rows] == [("fedavg", ""), ("fedprox", "0.1"), ("fedprox", "1.0")]
    assert all(0 < float(row["late_accuracy"]) < 1 for row in rows)
    assert all(float(row["late_accuracy_ci95_half_width"]) > 0 for row in rows)
    assert {row["seeds"] for row in rows} == {"2"}
    assert "± 95% interval over 2 seeds" in done.stdout
    assert (tmp_path / "s/figure.png").is_file()
    assert "<title>s</title>" in (tmp_path / "s/report.html").read_text()
    assert next_command(done) == ["watch", "s"]
    again = fedlatest_here(*arguments, cwd=tmp_path)
    assert "0 of 3 runs were executed now" in again.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--over", "period"), "--over period: expected KEY=V1,V2"),
        (("--over", "period=1", "--over", "period=2"), "the key was given before"),
        (("--over", "period=1,2", "--set", "period=3"), "is also given with --over"),
        (("--over", "mu=0.1"), "mu=0.1: no algorithm and no availability model of this sweep has this key"),
        (("--over", "algorithm=fedavgg"), "did you mean fedavg"),
    ],
)
def test_wrong_sweeps_are_explained(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    done = fedlatest_here("sweep", "quickstart", *arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert message in done.stderr
