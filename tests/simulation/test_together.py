"""Experiments that differ only in numbers run side by side in one program, with the results of single runs."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlatest import (
    Algorithm,
    Availability,
    ConfigError,
    DivergedError,
    Progress,
    Result,
    RunFolder,
    bernoulli,
    diurnal,
    fedadam,
    fedavg,
    fedprox,
    simulate,
)
from fedlatest.simulation import ExperimentSpec, simulate_together
from tests.problems import MODEL, small_federation

FEDERATION = small_federation(8, seed=1)
DAY = diurnal(np.arange(8) < 3, period=4)
NIGHT = diurnal(np.arange(8) < 5, period=2)


def spec(
    algorithm: Algorithm, availability: Availability = DAY, *, rate: float = 0.2, **changes: Any
) -> ExperimentSpec:
    values: dict[str, Any] = {
        "federation": FEDERATION, "model": MODEL, "algorithm": algorithm, "availability": availability,
        "cohort_size": 3, "num_local_steps": 2, "batch_size": 3, "learning_rate": rate,
        "rounds": 10, "evaluate_every": 5, "seeds": (0, 7),
    }  # fmt: skip
    return ExperimentSpec(**(values | changes))


@cache
def alone(spec: ExperimentSpec) -> Result:
    return simulate(
        spec.federation, spec.model, spec.algorithm, spec.availability, rounds=spec.rounds, cohort_size=3,
        num_local_steps=2, batch_size=3, learning_rate=spec.learning_rate, seeds=spec.seeds, evaluate_every=5,
    )  # fmt: skip


def losses(result: Result | DivergedError) -> Any:
    assert isinstance(result, Result)
    return result.metrics.column("train_loss")


SPECS = {
    "availability": [spec(fedprox(mu=0.5)), spec(fedprox(mu=0.5), NIGHT)],
    "number": [spec(fedprox(mu=0.1)), spec(fedprox(mu=2.0)), spec(fedprox(mu=0.0))],
    "server step": [spec(fedadam(server_step=0.01)), spec(fedadam(server_step=0.3))],
    "step size": [spec(fedavg(), rate=0.1), spec(fedavg(), rate=0.4)],
    "data": [
        spec(fedprox(mu=0.5)),
        spec(fedprox(mu=0.5), NIGHT, federation=small_federation(8, seed=2)),
        spec(fedprox(mu=0.5), NIGHT),
    ],
}


@pytest.mark.parametrize("side_by_side", [False, True])
@pytest.mark.parametrize("differing", SPECS)
def test_results_equal_those_of_single_runs(
    differing: str, side_by_side: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit-identical when trials take turns (CPU); equal to rounding when they are batched (accelerators)."""
    specs = SPECS[differing]
    expected = [losses(alone(spec)) for spec in specs]
    assert not np.allclose(expected[0], expected[1])
    monkeypatch.setattr("fedlatest.simulation.engine._side_by_side", lambda: side_by_side)
    for result, curve in zip(simulate_together(specs), expected, strict=True):
        if side_by_side:
            np.testing.assert_allclose(losses(result), curve, rtol=1e-4)
        else:
            np.testing.assert_array_equal(losses(result), curve)


@pytest.mark.parametrize(
    "other",
    [
        spec(fedavg(weighting="none")),
        spec(fedavg(), bernoulli(np.full(8, 0.5))),
        spec(fedavg(), num_local_steps=1),
        spec(fedavg(), diurnal(np.arange(7) < 3, period=4), federation=small_federation(7, seed=1)),
        spec(fedavg(), seeds=(0,)),
        spec(fedavg(), rounds=20),
        spec(fedprox(mu=0.0)),
        spec(replace(fedavg(), merge=lambda server, sums, facts: server)),
    ],
)
def test_different_programs_are_refused(other: ExperimentSpec) -> None:
    with pytest.raises(ConfigError, match="cannot share a compiled program"):
        simulate_together([spec(fedavg()), other])


def test_folders_equal_those_of_single_runs(tmp_path: Path) -> None:
    """The other experiments of a batch have no effect on a folder."""
    specs = SPECS["availability"]
    simulate_together(specs, [tmp_path / "day", tmp_path / "night"])
    simulate_together(specs[1:], [tmp_path / "alone"])
    night, lone = RunFolder(tmp_path / "night"), RunFolder(tmp_path / "alone")
    np.testing.assert_array_equal(night.metrics().column("test_loss"), lone.metrics().column("test_loss"))
    np.testing.assert_array_equal(night.participation().clients, lone.participation().clients)
    assert (night / "model.safetensors").read_bytes() == (lone / "model.safetensors").read_bytes()
    assert night.manifest["data"]["availability"] != RunFolder(tmp_path / "day").manifest["data"]["availability"]


def test_interrupted_runs_are_continued(tmp_path: Path) -> None:
    """One finished, one cut at round 5, one not begun: each ends like an uninterrupted run."""
    specs = SPECS["number"]
    folders = [tmp_path / name for name in "abc"]

    def cut(progress: Progress) -> None:
        if progress.round == 5:
            raise KeyboardInterrupt

    simulate_together(specs[:1], folders[:1])
    with pytest.raises(KeyboardInterrupt):
        simulate_together(specs[1:2], folders[1:2], on_progress=cut)
    assert [RunFolder(folder).rounds_done for folder in folders] == [0, 5, 0]
    for result, spec in zip(simulate_together(specs, folders, resume=True), specs, strict=True):
        np.testing.assert_array_equal(losses(result), losses(alone(spec)))


@pytest.mark.parametrize("side_by_side", [False, True])
def test_a_diverged_run_does_not_affect_the_others(
    side_by_side: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proximal coefficient of 1e38 diverges in the second local step; the other runs are not affected."""
    monkeypatch.setattr("fedlatest.simulation.engine._side_by_side", lambda: side_by_side)
    specs = [spec(fedprox(mu=1e38), rate=10.0), *SPECS["number"][:2]]
    folders = [tmp_path / "wild", tmp_path / "calm", tmp_path / "steady"]
    wild, *others = simulate_together(specs, folders)
    assert isinstance(wild, DivergedError)
    for other, lone in zip(others, specs[1:], strict=True):
        np.testing.assert_allclose(losses(other), losses(alone(lone)), rtol=1e-4)
    manifest = RunFolder(folders[0]).manifest
    assert manifest["status"] == "diverged"
    assert {"smallest_e", "assumption_holds", "largest_staleness"} <= set(manifest["availability"])
    assert RunFolder(folders[1]).finished
    assert RunFolder(folders[2]).finished
    again, *_ = simulate_together(specs, folders, resume=True)
    assert str(again) == str(wild)
    with pytest.raises(DivergedError, match="not finite"):
        alone(specs[0])


def test_each_spec_has_its_own_folder(tmp_path: Path) -> None:
    specs = SPECS["availability"]
    for outs in ([tmp_path / "a"], [tmp_path / "a", tmp_path / "a"]):
        with pytest.raises(ConfigError, match="outs: 2 specs need as many folders"):
            simulate_together(specs, outs)
    assert simulate_together([]) == []
