"""Runs read from their folders, and numbers that summarise hand-sized curves."""

import math
from pathlib import Path

import numpy as np
import pytest

from fedlatest.errors import RunFolderError
from fedlatest.report import read_runs
from fedlatest.report.run_records import arrives_below, cycle, stays_above
from tests.report.recorded_runs import write_curve, write_run

ROUNDS = np.array([0, 20, 40, 60])


def test_numbers_of_a_run(tmp_path: Path) -> None:
    """The last quarter of 40 rounds contains one evaluation (40), the last quarter of 80 rounds two (70 and 80)."""
    write_curve(tmp_path / "short", {0: [0.1, 0.2, 0.3, 0.9, 0.5], 1: [0.1, 0.2, 0.3, 0.9, 0.7]})
    write_curve(tmp_path / "long", {0: [0, 0, 0, 0, 0, 0, 0.9, 0.5, 0.75]})
    long, short = read_runs([tmp_path])
    assert short.final_accuracy == pytest.approx(0.6)
    assert math.isnan(short.swing)  # undefined for one evaluation
    assert long.swing == pytest.approx(0.25)
    assert long.late_accuracy == pytest.approx(0.625)
    assert long.title == "FedLaAvg"


def test_the_manifest_determines_the_title(tmp_path: Path) -> None:
    """An older run has no title: a table or else the algorithm's name provides it."""
    write_run(tmp_path / "a", "fedprox", title="FedProx with a new title")
    write_run(tmp_path / "b", "fedprox")
    write_run(tmp_path / "c", "scaffold", title="SCAFFOLD")
    write_run(tmp_path / "d", "mine")
    assert [run.title for run in read_runs([tmp_path])] == ["FedProx with a new title", "FedProx", "SCAFFOLD", "mine"]


def test_errors_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="holds no run"):
        read_runs([tmp_path])
    write_curve(tmp_path / "a", {0: [0.1, 0.5]})
    (tmp_path / "a/manifest.json").write_text("{")
    with pytest.raises(RunFolderError, match=r"manifest\.json: cannot be read"):
        read_runs([tmp_path])
    (tmp_path / "a/manifest.json").write_text('{"schema": 99}')
    with pytest.raises(RunFolderError, match="schema 99"):
        read_runs([tmp_path])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.1, 0.95, 0.95, 0.95], 20),
        ([0.1, 0.95, 0.89, 0.90], 60),  # below the level once more; the level itself counts as above
        ([0.95, 0.95, 0.95, 0.95], 0),
        ([0.95, 0.95, 0.95, 0.89], math.inf),
        ([0.95, math.nan, 0.95, 0.95], 40),
        ([0.95, 0.95, 0.95, math.nan], math.inf),
    ],
)
def test_stays_above(values: list[float], expected: float) -> None:
    assert stays_above(ROUNDS, np.array(values), 0.9) == expected


def test_stays_above_until_a_time() -> None:
    times, values = np.array([0.0, 10.0, 40.0, 70.0]), np.array([0.0, 0.6, 0.9, 0.8])
    assert stays_above(times, values, 0.85, 100) == math.inf
    assert stays_above(times, values, 0.85, 69) == 40
    assert stays_above(times, values, 0.85, 39) == math.inf
    assert stays_above(times, values, 0.7, 100) == 40
    assert stays_above(times, values, 0.0, 100) == 0


def test_arrives_below() -> None:
    """The first time counts, even if the loss rises again."""
    losses = np.array([2.0, 0.5, 0.9, 0.4])
    assert arrives_below(ROUNDS, losses, 0.5) == 20
    assert arrives_below(ROUNDS, losses, 0.45) == 60
    assert arrives_below(ROUNDS, losses, 0.1) == math.inf


@pytest.mark.parametrize("length", [100, 200, 400])
def test_cycle_of_a_sawtooth_with_a_trend(length: int) -> None:
    rounds = np.arange(2020, 4020, 20)
    sawtooth = (rounds % length) / length
    assert cycle(rounds, sawtooth - 0.0005 * rounds) == pytest.approx(length, rel=0.1)


def test_curves_without_a_cycle() -> None:
    assert math.isnan(cycle(ROUNDS, np.zeros(4)))
    assert math.isnan(cycle(np.array([0, 20, 50, 60]), np.array([0.0, 1, 0, 1])))  # not evenly spaced
    assert math.isnan(cycle(ROUNDS[:2], np.array([0.0, 1])))
