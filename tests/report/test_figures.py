"""Tables and figures from run folders, without anything that trains."""

import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import fedlatest.report
from fedlatest.errors import RunFolderError
from fedlatest.report import draw_curves, read_runs
from fedlatest.runs import Row, RunFolder


def write_run(path: Path, accuracies: dict[int, list[float]], algorithm: str = "fedlaavg") -> None:
    """A finished run whose test accuracy at rounds 0, 10, 20, ... is given per seed."""
    manifest = {"config": {"algorithm": {"name": algorithm}}, "seeds": list(accuracies), "data": {}}
    folder = RunFolder(path)
    folder.begin(manifest, resume=False, force=False)
    for seed, values in accuracies.items():
        folder.record([Row(seed, 10 * i, 0.0, 1.0 / (i + 1), 0.5, 1.0, value) for i, value in enumerate(values)])


def test_numbers_of_a_run(tmp_path: Path) -> None:
    """Rounds 0 .. 40; the last quarter is rounds above 30, that is 40 alone; above 0.75 * 80 = 60 are 70 and 80."""
    write_run(tmp_path / "short", {0: [0.1, 0.2, 0.3, 0.9, 0.5], 1: [0.1, 0.2, 0.3, 0.9, 0.7]})
    write_run(tmp_path / "long", {0: [0, 0, 0, 0, 0, 0, 0.9, 0.5, 0.75]})
    long, short = read_runs([tmp_path])
    assert short.final_accuracy == pytest.approx(0.6)
    assert math.isnan(short.swing)  # one evaluation does not swing
    assert long.swing == pytest.approx(0.25)
    assert long.late_accuracy == pytest.approx(0.625)
    assert long.title == "FedLaAvg"


def test_figure_shows_curves_and_bands(tmp_path: Path) -> None:
    """The figure is a picture in which FedLaAvg's blue and FedAvg's orange both occur, as lines and as a pale band."""
    write_run(tmp_path / "a", {0: [0.1, 0.5, 0.9], 1: [0.1, 0.3, 0.5]})
    write_run(tmp_path / "b", {0: [0.1, 0.8, 0.2]}, "fedavg")
    path = draw_curves(read_runs([tmp_path]), tmp_path / "figures/curves.png", title="two runs")
    pixels = np.asarray(Image.open(path).convert("RGB")).reshape(-1, 3)
    for colour in ((0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00), (204, 227, 240)):
        assert (np.abs(pixels.astype(int) - colour).max(axis=1) <= 2).sum() > 50


def test_figure_as_pdf(tmp_path: Path) -> None:
    write_run(tmp_path / "a", {0: [0.1, 0.5, 0.9]})
    assert draw_curves(read_runs([tmp_path]), tmp_path / "curves.pdf").read_bytes().startswith(b"%PDF")


def test_clear_errors(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="holds no run"):
        read_runs([tmp_path])
    write_run(tmp_path / "a", {0: [0.1, 0.5]})
    with pytest.raises(RunFolderError, match="could not be written"):
        draw_curves(read_runs([tmp_path]), tmp_path / "figure.nonsense")
    (tmp_path / "a/manifest.json").write_text("{")
    with pytest.raises(RunFolderError, match=r"manifest\.json: cannot be read"):
        read_runs([tmp_path])
    (tmp_path / "a/manifest.json").write_text('{"schema": 99}')
    with pytest.raises(RunFolderError, match="schema 99"):
        read_runs([tmp_path])


def test_report_imports_nothing_that_trains() -> None:
    package = Path(fedlatest.report.__file__).parent
    source = "".join(path.read_text() for path in package.glob("*.py"))
    assert "fedlatest.runs" in source
    for trainer in ("fedlatest.simulation", "fedlatest.algorithms", "fedlatest.experiments"):
        assert trainer not in source
