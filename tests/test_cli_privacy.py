"""Differential privacy on the command line: `advise --epsilon`, and the keys of an experiment."""

import json
from pathlib import Path

import pytest

from tests.command_line import fedlatest_here

NUMBERS = ["--clients", "5000", "--cohort", "50", "--rounds", "500", "--parameters", "10000", "--clip-norm", "1"]


def test_advice_from_numbers(tmp_path: Path) -> None:
    """FedLaAvg: 1.753, for epsilon 2 and delta 5000^-1.1, times sqrt(500); in the model, times sqrt(500) / 5000."""
    done = fedlatest_here("advise", "--epsilon", "2", *NUMBERS, cwd=tmp_path)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["FedLaAvg", "39.2", "0.175", "0.0351", "small"] in lines
    assert ["FedAvg", "3.92", "1.75", "0.351", "noticeable"] in lines
    assert ["rounds", "between", "participations", "100", "N", "/", "K"] in lines
    assert "FedLaAvg has the least noise in the last model" in done.stdout


def test_advice_from_a_recipe(tmp_path: Path) -> None:
    done = fedlatest_here("advise", "digits", "--epsilon", "1", "--rounds", "50", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "median norm of first updates" in done.stdout
    assert "The clip norm was measured on the data" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epsilon", "2", "--clients", "9"], "--rounds, --parameters, --clip-norm: needed with --epsilon"),
        (["--epsilon", "0", *NUMBERS], "epsilon=0.0: must be above 0"),
        (["--epsilon", "2", "--delta", "0.1", *NUMBERS], "--delta 0.1: must be below 1 / (number of clients)"),
        (["--epsilon", "2", "--e", "9", *NUMBERS], "--e: is not used with --epsilon"),
        (["--delta", "0.1"], "--delta: is about differential privacy; add --epsilon"),
        (["digits", "--epsilon", "2", "--clients", "9"], "--clients: is set by the recipe digits"),
        (["--epsilon", "2", "--set", "rounds=9", *NUMBERS], "--set, --data: need a recipe"),
        (["--epsilon", "2", *NUMBERS, "--cohort", "6000"], "--cohort 6000: choose 1 .. 5000"),
    ],
)
def test_advice_that_cannot_be_given(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = fedlatest_here("advise", *arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert message in " ".join(done.stderr.split())


@pytest.mark.parametrize("epsilon", ["8", "inf"])
def test_a_private_run(epsilon: str, tmp_path: Path) -> None:
    keys = ["weighting=none", f"epsilon={epsilon}", "clip_norm=0.5", "min_separation=2"]
    settings = [part for key in keys for part in ("--set", key)]
    done = fedlatest_here("run", "digits", "--rounds", "4", *settings, "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    manifest = json.loads((tmp_path / "run/manifest.json").read_text(), parse_constant=refuse)
    assert manifest["config"]["privacy"]["epsilon"] == (8.0 if epsilon == "8" else None)
    assert manifest["config"]["privacy"]["min_separation"] == 2
    assert manifest["noise_plan"]["mechanism"] == "total"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["epsilon=8"], "epsilon: differential privacy needs clip_norm; add --set clip_norm=..."),
        (["min_separation=8"], "min_separation: differential privacy needs epsilon; add --set epsilon=..."),
        (["epsilon=8", "clip_norm=1"], "privacy: weighting=loss uses the clients' numbers of samples"),
        (["epsilon=strong", "clip_norm=1"], "epsilon=strong: choose one of inf, or give a number"),
    ],
)
def test_keys_that_do_not_fit(keys: list[str], message: str, tmp_path: Path) -> None:
    settings = [part for key in keys for part in ("--set", key)]
    done = fedlatest_here("run", "digits", "--rounds", "4", *settings, "--out", "run", cwd=tmp_path)
    assert done.returncode == 1
    assert message in " ".join(done.stderr.split())
