"""The output and the error messages of `fedlatest explain` and `fedlatest advise`."""

import re
from pathlib import Path

import pytest

from fedlatest import load_digits
from fedlatest.experiments import RECIPES
from tests.command_line import fedlatest, fedlatest_here


def test_explain_example1(tmp_path: Path) -> None:
    """Four rounds of client 1, then one of client 2: tables, sentences and a figure."""
    done = fedlatest("explain", "example1", "--t1", "4", "--t2", "1", "--learning-rate", "0.05", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"FedAvg +0\.\d+ +0\.\d+ +\d\.\de[-+]\d+ +-0\.2\d+", done.stdout)
    assert re.search(r"FedLaAvg +0\.5000000 +0\.5000000", done.stdout)
    assert "Simulation and formulas agree to 1e-06." in done.stdout
    assert re.search(r"M_R = (\d+) of R = \1 rounds", done.stdout)
    assert (tmp_path / "example1.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_explain_rate(tmp_path: Path) -> None:
    """Nine settings, all below the bound; the fitted exponents are printed beside the promised ones."""
    done = fedlatest("explain", "rate", "--seeds", "2", "--out", "rate.pdf", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "9 of 9 settings stay below Theorem 3's bound for all 2 seeds." in done.stdout
    assert re.search(r"Fitted: N\^\(-0\.2\d\d, .* and T\^\(-0\.(49|50)\d, ", done.stdout)
    assert (tmp_path / "rate.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("explain", "example1", "--learning-rate", "0.6"), "learning_rate=0.6: Theorem 1 is for steps above 0"),
        (("explain", "example1", "--t2", "0"), "t2=0: must be at least 1; otherwise client 2 is never available"),
        (("explain", "rate", "--kind", "cubic"), "--kind cubic: choose one of logcosh, quadratic"),
        (
            ("advise", "--clients", "9", "--cohort", "3", "--rounds", "9", "--smoothness", "1"),
            "E is unknown: Assumption 4",
        ),
        (("advise", "--clients", "9", "--cohort", "3", "--rounds", "9", "--e", "2"), "L is unknown: give --smoothness"),
        (("advise", "--cohort", "3", "--rounds", "9", "--e", "2", "--smoothness", "1"), "--clients: is missing"),
        (("advise", "quickstart", "--clients", "9"), "--clients: is set by the recipe quickstart"),
        (("advise", "mnist", "--set", "algorithm=fedavg"), "algorithm=fedavg: the theorems are about fedlaavg"),
        (("advise", "nothing"), "recipe nothing: unknown"),
        (("advise", "--trace", "t.csv", "--e", "5"), "--e, --trace: give E or a trace to measure it from, not both"),
        (("advise", "--trace", "t.csv", "--round-length", "0"), "--round-length 0: must be a finite number above 0"),
        (("advise", "--e", "5", "--learning-rate", "nan"), "--learning-rate nan: must be a finite number above 0"),
        (("advise", "--e", "5", "--local-steps", "0"), "--local-steps 0: must be at least 1"),
        (("explain", "stability"), "give a recipe, or a --trace without a recipe"),
        (("explain", "stability", "quickstart", "--cohort", "3"), "--cohort: is set by the recipe quickstart"),
        (("explain", "stability", "quickstart", "--over", "period"), "--over period: expected KEY=V1,V2,..."),
        (("explain", "stability", "quickstart", "--over", "peroid=3"), "peroid: unknown key; did you mean period?"),
        (("explain", "stability", "quickstart", "--rounds", "9"), "--rounds 9: must be at least 100"),
        (("explain", "stability", "quickstart", "--curvature", "0"), "--curvature 0: must be a finite number above 0"),
        (("explain", "stability", "--trace", "t.csv", "--set", "a=1"), "--set, --over, --data, --model: need a recipe"),
        (("explain", "stability", "--trace", "t.csv", "--curvature", "2"), "--curvature: the gain also needs the step"),
        (("explain", "example1", "--out", "x.txt"), "--out x.txt: the name of a figure must end in .png or .pdf"),
    ],
)
def test_invalid_options_are_rejected(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    done = fedlatest_here(*arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert message in done.stderr
    assert not list(tmp_path.iterdir())


def test_advise_for_a_recipe(tmp_path: Path) -> None:
    """E is measured; L, G, sigma and B are estimated and reported as estimates."""
    done = fedlatest("advise", "quickstart", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r" E +31 +measured", done.stdout)
    assert re.search(r"staleness bound +I +309 ", done.stdout)
    assert "Estimated: L (by power iteration on differences of gradients), G, sigma, B (the mean loss" in done.stdout
    assert re.search(r"smoothness +L +\S+ +estimated", done.stdout)
    assert "There are too few rounds" in done.stdout
    assert re.search(
        r"Oldest-first selection visits the rarest client every \d+ rounds; with fresh=average", done.stdout
    )


def test_explain_stability_of_a_recipe(tmp_path: Path) -> None:
    """Blocks of 2 and of 30 rounds, one row per method; a given curvature decides the verdict.

    Ten local steps of 0.05 with curvature 2 have a gain of 1 - 0.9^10 = 0.651.
    """
    done = fedlatest_here(
        "explain", "stability", "quickstart", "--over", "period=2,30", "--rounds", "600", "--curvature", "2",
        "--out", "stability.pdf", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = re.findall(
        r"^(2|30)? +FedLaAvg +(\d\.\d+) +(\d\.\d+) +(\d+\.\d) +- +\d+\.\d +(stable|unstable)", done.stdout, re.M
    )
    assert [row[0] for row in rows] == ["2", "30"]
    for _, gain, curvature, _, verdict in rows:
        assert verdict == ("stable" if float(gain) > 0.651 else "unstable")
        assert float(curvature) == pytest.approx((1 - (1 - float(gain)) ** 0.1) / 0.05, rel=0.05)
    assert rows[0][3] != rows[1][3], "the period of the swing depends on the availability"
    assert "gain 0.651, for the largest curvature of the objective, 2 (given)" in done.stdout
    assert (tmp_path / "stability.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.slow
def test_explain_stability_at_a_trained_model(tmp_path: Path) -> None:
    """The softmax becomes more certain during training, so that the curvature falls below that of the initial model."""
    experiment = RECIPES["quickstart"].experiments(["rounds=300", "evaluate_every=300"])[0]
    experiment.run(load_digits(), out=tmp_path / "run")
    command = ("explain", "stability", "quickstart", "--rounds", "100")
    found = []
    for options in ((), ("--model", "run")):
        done = fedlatest_here(*command, *options, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        source = "estimated at the final model of the run" if options else "at the initial model"
        [shown] = re.findall(rf"largest curvature of the objective, (\S+) \({source}\)", done.stdout)
        found.append(float(shown))
    assert 0 < found[1] < 0.95 * found[0]


def test_explain_stability_of_a_trace(tmp_path: Path) -> None:
    """Six clients that are always available, one per round: 2 * 6 sin^2(pi / 12) = 0.804, and swings of 12 rounds."""
    (tmp_path / "trace.csv").write_text("client,start,end\n" + "".join(f"{name},0,10\n" for name in "abcdef"))
    done = fedlatest_here(
        "explain", "stability", "--trace", "trace.csv", "--cohort", "1", "--rounds", "1000", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"trace.csv +FedLaAvg +0\.80 +- +1[12]\.\d +- +2\.5 +-", done.stdout)
    assert "Your gain is unknown: give --learning-rate and --curvature." in done.stdout
    assert (tmp_path / "stability.png").read_bytes().startswith(b"\x89PNG")


def test_advise_for_a_trace(tmp_path: Path) -> None:
    """Client a is unavailable in rounds 3 .. 8, b in 0 .. 3 and 9 .. 11; so E is 6 + 1.

    A third client, which the trace does not contain, is named in the error message.
    """
    (tmp_path / "trace.csv").write_text("client,start,end\na,0,3\nb,4,9\na,9,12\n")
    command = ("advise", "--trace", "trace.csv", "--cohort", "1", "--smoothness", "2")
    done = fedlatest_here(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r" E +7 +measured", done.stdout)
    longer = fedlatest_here(
        *command, "--rounds", "100", cwd=tmp_path
    )  # the trace is repeated: b is unavailable in 9 .. 15
    assert re.search(r" E +8 +measured, repeated", longer.stdout)
    failed = fedlatest_here(*command, "--clients", "3", cwd=tmp_path)
    assert failed.returncode == 1
    assert "trace trace.csv: Assumption 4 fails, client 2 is never available in 12 rounds" in failed.stderr


def test_equal_means_are_checked(tmp_path: Path) -> None:
    """FedLaAvg oscillates with a step of 0.04 and blocks of 100 rounds, whatever the means are."""
    command = ("explain", "example1", "--e1", "5", "--e2", "5", "--t1", "100", "--t2", "100")
    done = fedlatest_here(*command, "--learning-rate", "0.04", cwd=tmp_path)
    assert "FedLaAvg has not converged: the step 0.04 is too large for blocks of 100 rounds" in done.stdout
    done = fedlatest_here(*command, "--learning-rate", "0.004", cwd=tmp_path)
    assert "all formulas give the optimum, 5." in done.stdout
    assert "Simulation and formulas agree" in done.stdout


def test_extreme_numbers_are_refused(tmp_path: Path) -> None:
    numbers = ("--clients", "1", "--cohort", "1", "--e", "1", "--rounds", "9", "--smoothness", "1", "--noise", "1")
    for command, message in (
        (("explain", "example1", "--t1", "200000", "--t2", "100000"), "t1 + t2 may be at most 131,072"),
        (("explain", "example1", "--e1", "1e300"), "e1=1e+300: must be a number from -1e+09 to 1e+09"),
        (("advise", *numbers, "--distance", "1", "--gradient", "1e300"), "gradient=1e+300: must be a number from 0"),
    ):
        done = fedlatest_here(*command, cwd=tmp_path)
        assert done.returncode == 1
        assert message in done.stderr
