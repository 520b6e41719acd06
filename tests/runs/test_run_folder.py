"""The files of a run folder: which are removed by --force, and which configurations may be resumed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlatest.errors import RunFolderError
from fedlatest.runs import Participation, Row, RunFolder

TWO_ROUNDS = Participation(np.array([0, 1], np.uint8), np.array([[0, 1, 2]]))


def manifest(**algorithm: Any) -> dict[str, Any]:
    return {"config": {"rounds": 2, "algorithm": {"name": "fedavg", **algorithm}}, "seeds": [0], "data": {}}


def test_force_removes_the_files_of_the_old_run_and_no_others(tmp_path: Path) -> None:
    """Figures that `fedlatest run` draws belong to the run; a file of the user does not."""
    folder = RunFolder(tmp_path)
    folder.begin(manifest(), resume=False, force=False)
    for name in ("figure.png", "sleep.png", "labels.csv", "notes.txt"):
        (tmp_path / name).write_text("old")
    with pytest.raises(RunFolderError, match="an unfinished run; add --resume to continue it or --force"):
        folder.begin(manifest(), resume=False, force=False)
    folder.begin(manifest(), resume=False, force=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["manifest.json", "metrics.csv", "notes.txt"]


def test_the_title_of_an_algorithm_does_not_identify_a_run(tmp_path: Path) -> None:
    """Runs of older versions have no title and can be resumed; a changed value of the algorithm is still an error."""
    folder = RunFolder(tmp_path)
    folder.begin(manifest(mu=1), resume=False, force=False)
    assert folder.begin(manifest(mu=1, title="FedAvg"), resume=True, force=False)
    with pytest.raises(RunFolderError, match=r"another configuration \(mu was 1, now 2\)"):
        folder.begin(manifest(mu=2, title="FedAvg"), resume=True, force=False)


def test_both_writers_leave_the_same_files(tmp_path: Path) -> None:
    """The writer of simulations and the writer of deployments differ only in the metadata of the model."""
    row, params = Row(0, 0, 0.5, 1.0, 0.5, 1.0, 0.5), {"w": np.ones((1, 2), np.float32)}
    simulated, deployed = RunFolder(tmp_path / "a"), RunFolder(tmp_path / "b")
    simulated.begin(manifest(), resume=False, force=False)
    simulated.record([row])
    simulated.note_cohorts(TWO_ROUNDS)
    simulated.finish(params, round=2, facts={"seconds": 0.5})
    deployed.rewrite(manifest(), [row])
    assert deployed.manifest["status"] == "running"
    about = {"config": json.dumps(manifest()["config"])}
    deployed.save_results(params, TWO_ROUNDS, {**manifest(), "seconds": 0.5}, about_model=about)
    for name in ("manifest.json", "metrics.csv", "model.safetensors"):
        assert (deployed / name).read_bytes() == (simulated / name).read_bytes()
    for folder in (simulated, deployed):
        assert folder.finished
        assert folder.participation().cohort(seed=0, round=1).tolist() == [1]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == sorted(
        path.name for path in (tmp_path / "b").iterdir()
    )


@pytest.mark.parametrize("package", ["runs", "report"])
def test_package_is_imported_without_jax(package: str) -> None:
    code = f"import sys, fedlatest.{package}; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
