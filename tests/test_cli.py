"""The command line: output, exit codes and imports; in a new process where that matters."""

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
from fedlatest.experiments import RECIPES
from fedlatest.reproduction.papers import REPRODUCTIONS
from fedlatest.runs import RunFolder
from tests.command_line import Done, fedlatest, fedlatest_here, next_command

FAST = ("--set", "num_clients=20", "--set", "local_steps=2", "--rounds", "25")


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """The folder and output of a short quickstart, run with --force as `make demo` does; tests use a copy.

    The tests that use it stand next to each other, so that one pytest worker gets them all.
    """
    folder = tmp_path_factory.mktemp("quickstart")
    return folder, fedlatest("run", "quickstart", *FAST, "--out", "q", "--force", cwd=folder)


@pytest.fixture
def after_quickstart(quickstart: tuple[Path, Done], tmp_path: Path) -> Path:
    """A copy of the folder in which the quickstart was run."""
    shutil.copytree(quickstart[0], tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_quickstart_end_to_end(quickstart: tuple[Path, Done], after_quickstart: Path) -> None:
    """Four runs, a table and a figure; a second call is rejected, --resume changes nothing, `plot` draws them."""
    folder, done = after_quickstart, quickstart[1]
    assert done.returncode == 0, done.stderr
    assert re.search(r"FedLaAvg +0\.\d{4} +0\.\d{4} +0\.\d{4} +\d+", done.stdout)
    assert re.search(r"figure: q/figure\.png", done.stdout)
    assert (folder / "q/figure.png").read_bytes().startswith(b"\x89PNG")
    for name in ("fedlaavg", "fedavg", "fedprox", "sequential"):
        assert RunFolder(folder / "q" / name).finished
        assert (folder / "q" / name / "figure.png").is_file()
    assert load_model(folder / "q/fedlaavg").predict(load_digits().test_features).shape == (359,)

    again = fedlatest_here("run", "quickstart", *FAST, "--out", "q", cwd=folder)
    assert again.returncode == 1
    assert "holds a finished run; add --resume" in again.stderr

    resumed = fedlatest_here("run", "quickstart", *FAST, "--out", "q", "--resume", cwd=folder)
    assert resumed.returncode == 0
    assert resumed.stdout == done.stdout

    drawn = fedlatest_here("plot", "q", "--out", "all.pdf", cwd=folder)
    assert drawn.returncode == 0
    assert (folder / "all.pdf").read_bytes().startswith(b"%PDF")


def test_the_next_command_runs_in_a_folder_with_a_space(quickstart: tuple[Path, Done], after_quickstart: Path) -> None:
    assert next_command(quickstart[1]) == ["report", "q"]
    (after_quickstart / "q").rename(after_quickstart / "my run's")
    drawn = fedlatest_here("plot", "my run's", cwd=after_quickstart)
    done = fedlatest_here(*next_command(drawn), cwd=after_quickstart)
    assert done.returncode == 0, done.stderr
    assert (after_quickstart / "report.html").is_file()


@pytest.mark.slow
def test_forced_recipe_can_be_resumed_after_an_interruption(after_quickstart: Path) -> None:
    """--force removes all runs of the recipe before the first one starts, so no old run is left to conflict."""
    for name in ("fedavg", "sequential"):
        RunFolder(after_quickstart / "q" / name).clear()  # as after an interruption: some runs are missing
    other = ("run", "quickstart", *FAST, "--set", "period=7", "--out", "q")
    assert fedlatest_here(*other, "--resume", cwd=after_quickstart).returncode == 1
    assert fedlatest_here(*other, "--force", cwd=after_quickstart).returncode == 0
    for name in ("fedlaavg", "sequential"):
        assert RunFolder(after_quickstart / "q" / name).manifest["config"]["recipe"]["period"] == 7


def test_force_with_invalid_values_removes_nothing(after_quickstart: Path) -> None:
    for invalid in (("--seed", "-1"), ("--set", "batch_size=0"), ("--set", "evaluate_every=0")):
        done = fedlatest_here("run", "quickstart", *FAST, "--out", "q", "--force", *invalid, cwd=after_quickstart)
        assert done.returncode == 1
    for name in ("fedlaavg", "fedavg", "fedprox", "sequential"):
        assert RunFolder(after_quickstart / "q" / name).finished


def test_interrupt_and_resume(tmp_path: Path) -> None:
    """Ctrl-C during a run: exit code 130 and a checkpoint; --resume with another setting is rejected."""
    arguments = ["run", "quickstart", *FAST[:-1], "100000", "--out", "q"]
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
    other = fedlatest_here(*arguments, "--set", "period=31", "--resume", cwd=tmp_path)
    assert other.returncode == 1
    assert "period was 30, now 31" in other.stderr


def test_trace_from_the_command_line(small_mnist: Path, tmp_path: Path) -> None:
    """A run that replays a trace has the numbers of available clients of the pattern that was written."""
    pattern = bernoulli([0.3] * 20)
    write_trace(tmp_path / "trace.csv", pattern, horizon=12, seed=5)
    assert read_trace(tmp_path / "trace.csv")
    settings = ("num_clients=20", "availability=trace", "trace=trace.csv", "evaluate_every=1")
    done = fedlatest_here(
        "run", "mnist", "--rounds", "12", "--out", "q", *(part for key in settings for part in ("--set", key)),
        cwd=tmp_path, data=small_mnist,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = RunFolder(tmp_path / "q").metrics().rows
    assert [row.num_available for row in rows[1:]] == pattern.table(12, seed=5).sum(axis=1).tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "quickstart", "--set", "perod=3"), "perod: unknown key; did you mean period?"),
        (("run", "quickstart", "--set", "lr=0.1"), "lr: unknown key; did you mean learning_rate?\n"),
        (("run", "quickstart", "--set", "K=5"), "K: unknown key; did you mean participation or num_clients?\n"),
        (("run", "quickstart", "--set", "xyz=5"), "xyz: unknown key; `fedlatest list keys` lists the names\n"),
        (("run", "quickstart", "--set", "seed=5"), "seed: is not a key; use the option --seed or --seeds\n"),
        (("run", "digits", "--set", "algorithm=FedAvg"), "algorithm=FedAvg: unknown; did you mean fedavg?\n"),
        (("run", "digits", "--set", "availability=x"), "availability=x: unknown; `fedlatest list availability` lists"),
        (("run", "digits", "--set", "partition=dirichelt"), "partition=dirichelt: unknown; did you mean dirichlet?\n"),
        (("run", "digits", "--set", "model=MLP"), "model=MLP: unknown; did you mean mlp?\n"),
        (("sweep", "digits", "--over", "lr=1,2"), "lr: unknown key; did you mean learning_rate?\n"),
        (("reproduce", "mnst"), "mnst: unknown; did you mean mnist?\n"),
        (("reproduce", "mnist", "--figure", "client"), "--figure client: unknown; did you mean clients?\n"),
        (("run", "quickstart", "--set", "period=0"), "period=0"),
        (("run", "quickstart", "--set", "participation=2"), "participation=2.0"),
        (("run", "quickstart", "--rounds", "0"), "rounds=0"),
        (("run", "quickstart", "--seed", "1", "--seeds", "2"), "--seed, --seeds"),
        (("run", "quickstart", "--seeds", "0"), "--seeds 0"),
        (("run", "quickstart", "--device", "tpu"), "--device tpu: choose cpu or gpu"),
        (("run", "quickstart", "--resume", "--force"), "--resume, --force"),
        (("run", "quickstart", "--data", "d"), "data=d: this recipe uses bundled data; omit --data"),
        (("run", "mnist", "--data", "nowhere"), "data=nowhere: no such folder"),
        (("plot", "nowhere"), "nowhere: holds no run"),
    ],
)
def test_user_errors_are_printed_without_a_traceback(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    done = fedlatest_here(*arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert message in done.stderr
    assert not list(tmp_path.rglob("manifest.json"))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("run", "quickstrt"), 1, "recipe quickstrt: unknown; did you mean quickstart?\n"),
        (("run", "quickstart", "--sed", "1"), 2, "No such option"),
    ],
)
def test_exit_codes_of_a_process(tmp_path: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    done = fedlatest(*arguments, cwd=tmp_path)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_divergence_does_not_stop_the_other_runs_of_a_recipe(tmp_path: Path) -> None:
    """Only FedProx has `mu`; it is the third of four runs. The output is a pipe, so progress is printed as lines."""
    done = fedlatest(
        "run", "quickstart", "--rounds", "4", "--set", "mu=1e30", "--set", "num_clients=20", "--seeds", "2",
        "--out", "q", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1
    assert "error: fedprox: " in done.stderr
    finished = sorted(path.parent.name for path in (tmp_path / "q").glob("*/model.safetensors"))
    assert finished == ["fedavg", "fedlaavg", "sequential"]
    assert re.search(r"FedProx \(diverged by round 4\) +diverged", done.stdout), done.stdout
    assert re.search(r"FedAvg +0\.\d{4} ± 0\.\d{4}", done.stdout), done.stdout
    assert "mean ± 95% interval over 2 seeds" in done.stdout
    assert re.search(r"^fedavg: compiling\nfedavg: round 4/4, test accuracy 0\.\d{4}$", done.stderr, re.MULTILINE)
    drawn = fedlatest_here("plot", "q", cwd=tmp_path)
    assert "diverged" in drawn.stdout


def test_the_digits_recipe_runs_any_algorithm(tmp_path: Path) -> None:
    done = fedlatest_here(
        "run", "digits", "--rounds", "4", "--set", "algorithm=mifa", "--set", "num_clients=20",
        "--set", "num_local_steps=2", "--out", "d", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert RunFolder(tmp_path / "d").manifest["config"]["recipe"]["local_steps"] == 2


def test_help_names_recipes_and_figures(tmp_path: Path) -> None:
    text = " ".join(fedlatest_here("run", "--help", cwd=tmp_path).stdout.split())
    assert all(name in text for name in RECIPES)
    text = " ".join(fedlatest_here("reproduce", "--help", cwd=tmp_path).stdout.split())
    assert all(name in text for each in REPRODUCTIONS.values() for name in each.figures)
    assert "--install-completion" in fedlatest_here("--help", cwd=tmp_path).stdout


def test_the_version_is_printed(tmp_path: Path) -> None:
    assert fedlatest_here("--version", cwd=tmp_path).stdout.startswith("fedlatest 0.")


HELP = """
import sys
from fedlatest.cli import main
for arguments in {arguments!r}:
    sys.argv = ["fedlatest", *arguments]
    try:
        main()
    except SystemExit as end:
        assert not end.code
print("imported:", *(name for name in ("jax", "flwr", "matplotlib", "sklearn") if name in sys.modules))
"""


def test_help_starts_without_heavy_packages() -> None:
    """A command imports JAX, Flower and matplotlib when it runs; --help and --version need none of them."""
    names = ("run", "list", "plot", "reproduce", "report", "advise", "explain", "deploy", "audit", "convert-trace")
    commands = [[], *([name] for name in names)]
    code = HELP.format(arguments=[["--version"], *([*command, "--help"] for command in commands)])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.count("Usage:") == len(commands)
    assert done.stdout.splitlines()[-1] == "imported:"
