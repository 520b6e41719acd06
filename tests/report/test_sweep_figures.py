"""The figure of a sweep: what it joins by lines, and that its intervals are named."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from fedlatest.report import sweep_figures
from fedlatest.report.sweep_figures import SweepPoint, draw_sweep


@pytest.mark.parametrize(
    ("values", "style"), [(("0.01", "0.1", "1"), "-"), (("fedavg", "fedprox", "scaffold"), "None")]
)
def test_only_numbers_are_joined(
    values: tuple[str, ...], style: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []

    def look(figure: Figure, path: Path) -> Path:
        found.extend(str(line.get_linestyle()) for line in figure.axes[0].lines if line.get_marker() == "o")
        found.append(figure.axes[0].get_ylabel())
        return path

    monkeypatch.setattr(sweep_figures, "save", look)
    points = [SweepPoint(("key",), (value,), 3, 0.5, 0.1, 0.2, 4.0, "fedavg", "") for value in values]
    draw_sweep(points, ["key"], tmp_path / "figure.png")
    assert found == [style, "late test accuracy\n(± 95% interval over 3 seeds)"]
