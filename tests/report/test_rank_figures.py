"""The critical-difference diagram: names that do not overlap, lines to them, and bars of groups."""

import math
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from fedlatest.report.rank_figures import Diagram, draw_mean_ranks
from fedlatest.report.statistics import Ranking

CLOSE = [1.0] * 9 + [1.1, 1.1, 1.15, 12.0, 12.01, 12.02, 12.03, *[24.5] * 9]  # 25 methods in three clusters


def diagram(mean: list[float], difference: float = 12.0) -> tuple[Diagram, Figure]:
    titles = [f"A method with a long name, variant {i}" for i in range(len(mean))]
    ranking = Ranking(np.zeros((10, len(mean))), np.array(mean), 0.01, difference)
    drawn = Diagram(titles, ["fedavg"] * len(mean), ranking)
    with drawn.canvas() as figure:
        drawn.draw(figure)
    return drawn, figure


@pytest.mark.parametrize("mean", [CLOSE, CLOSE[::-1], [1.5, 1.5], list(np.linspace(1, 3, 25)), [13.0] * 25])
def test_texts_do_not_overlap_and_are_inside_the_figure(mean: list[float]) -> None:
    """All texts: the names, the numbers of the axis and the title."""
    _, figure = diagram(mean)
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) > len(mean)
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[i + 1 :])
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1


def test_names_are_in_the_order_of_the_ranks_and_lines_lead_from_the_ranks_to_them() -> None:
    """The axis from 1 to 4 has the length of four lines between names: 0.84 inches, so rank 2 is 0.28 below its top."""
    drawn, figure = diagram([4.0, 1.0, 2.0], math.nan)
    axes = figure.axes[0]
    assert [text.get_text()[:3] for text in axes.texts if "method" in text.get_text()] == ["1.0", "2.0", "4.0"]
    starts = [float(line.get_ydata()[0]) for line in axes.lines if line.get_zorder() == 3]  # type: ignore[index, arg-type]
    assert np.array(starts) - starts[0] == pytest.approx([0, 0.28, 0.84])
    assert drawn.groups == []


def test_bars_connect_groups() -> None:
    """With a critical difference of 1.2, the ranks 1 and 2 do not differ, 2 and 3 neither, but 1 and 3 do."""
    _, figure = diagram([1.0, 2.0, 3.0], 1.2)
    lines = [np.ptp(line.get_ydata()) for line in figure.axes[0].lines if line.get_color() == "#999999"]
    assert lines == pytest.approx([0.42, 0.42])  # one of two parts of an axis of 0.84 inches


def test_a_figure_is_written(tmp_path: Path) -> None:
    ranking = Ranking(np.zeros((3, 2)), np.array([1.5, 1.2]), 0.5, 1.1)
    path = draw_mean_ranks(["FedAvg", "FedLaAvg"], ["fedavg", "fedlaavg"], ranking, tmp_path / "ranks.png")
    with Image.open(path) as image:
        assert image.width > 200
