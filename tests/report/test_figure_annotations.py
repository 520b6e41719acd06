"""What a figure of curves shows besides the curves: names at the ends of lines, shaded rounds, a dark variant."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fedlatest import alternating, bernoulli, diurnal
from fedlatest.report import RunRecord, draw_curves, read_runs
from fedlatest.report.figure_annotations import label_line_ends, second_group_rounds, shade_second_group, spread
from fedlatest.report.figures import canvas, for_dark_page
from fedlatest.runs.clients import ClientRecord, clients_of_table
from tests.report.recorded_runs import write_run
from tests.report.test_figures import count_colours

ONE_OF_FOUR = [True, False, False, False]


def test_shaded_rounds_are_those_of_the_second_group() -> None:
    """With E = 3, the second group is available in rounds 3-5 and 9; with t1 = 2, t2 = 4 in rounds 2-5 and 8-9."""
    assert second_group_rounds(clients_of_table(diurnal(ONE_OF_FOUR, period=3).table(10))) == [(3, 6), (9, 10)]
    assert second_group_rounds(clients_of_table(alternating(ONE_OF_FOUR, t1=2, t2=4).table(10))) == [(2, 6), (8, 10)]


def test_picture_with_fewer_columns_than_rounds() -> None:
    """1000 rounds are recorded in 400 columns, so that most blocks of 35 rounds end within a column."""
    found = second_group_rounds(clients_of_table(diurnal(ONE_OF_FOUR, period=35).table(1000)))
    assert len(found) == 14
    np.testing.assert_allclose(found, [(start, start + 35) for start in range(35, 1000, 70)], atol=3)


@pytest.mark.parametrize(
    "table",
    [
        np.ones((20, 4), bool),
        bernoulli(np.full(40, 0.5)).table(50, seed=1),
        diurnal(ONE_OF_FOUR, period=1).table(100),  # alternates too often
    ],
)
def test_nothing_is_shaded_without_two_groups(table: np.ndarray) -> None:
    assert second_group_rounds(clients_of_table(table)) == []


def two_groups(labels: list[int]) -> ClientRecord:
    """Return a record in which the first of four clients alternates with the others, two rounds each."""
    table = diurnal(ONE_OF_FOUR, period=2).table(6)
    return clients_of_table(table)._replace(labels=np.array(labels, np.int32))


def legend_of(path: Path, *records: ClientRecord | None) -> list[str]:
    """Return the legend's entries for runs with these records."""
    for number, record in enumerate(records):
        folder = write_run(path / f"run{number}")
        if record is not None:
            folder.describe(record)
    with canvas(4, 3) as figure:
        panels = [(axes, read_runs([path])) for axes in figure.subplots(1, 2)]
        return [str(patch.get_label()) for patch in shade_second_group(panels)]


def test_legend_names_the_groups_by_their_labels(tmp_path: Path) -> None:
    record = two_groups([0, 1, 2, 5])
    names = ["only clients with label 0 available", "only clients with labels 1-2, 5 available"]
    assert legend_of(tmp_path / "a", record, record, None) == names  # a pooled run has no record of clients
    other = ["only the first group of clients available", "only the other clients available"]
    assert legend_of(tmp_path / "b", two_groups([0, 0, 1, 2])) == other
    assert legend_of(tmp_path / "c", record, clients_of_table(diurnal(ONE_OF_FOUR, period=3).table(6))) == []


def test_panels_with_different_groups_share_a_legend_without_labels(tmp_path: Path) -> None:
    for name, labels in (("a", [0, 1, 2, 5]), ("b", [0, 1, 1, 1]), ("c", [])):
        write_run(tmp_path / name).describe(two_groups(labels) if labels else clients_of_table(np.ones((6, 4), bool)))
    with canvas(4, 3) as figure:
        panels = [(axes, read_runs([tmp_path / name])) for axes, name in zip(figure.subplots(1, 3), "abc", strict=True)]
        names = [str(patch.get_label()) for patch in shade_second_group(panels)]
        assert [len(axes.patches) for axes, _ in panels] == [1, 1, 0]
    assert names == ["only the first group of clients available", "only the other clients available"]


def test_figure_shades_the_rounds_of_the_second_group(runs: dict[str, RunRecord], tmp_path: Path) -> None:
    """The runs alternate between two groups every four rounds: 8 of 20 rounds are grey."""
    colours = count_colours(draw_curves([runs["fedlaavg"], runs["fedavg"]], tmp_path / "figure.png"))
    share = colours[235, 235, 235] / colours[255, 255, 255]
    assert 0.1 < share < 0.6


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.floats(0.01, 0.2))
def test_spread(wanted: list[float], gap: float) -> None:
    """Names keep their order and mean height, have the gap between them, and do not move without need."""
    found = spread(wanted, gap)
    order = np.argsort(wanted, kind="stable")
    assert (np.diff(found[order]) >= gap - 1e-9).all()
    assert np.isclose(found.mean(), np.mean(wanted))
    if (np.diff(np.sort(wanted)) >= gap).all():
        np.testing.assert_allclose(found, wanted, atol=1e-9)


def test_names_at_the_ends_of_lines() -> None:
    """Three lines that end at 0.5, one without a finite value, and one without a name."""
    with canvas(4, 3) as figure:
        axes = figure.subplots(1, 1, squeeze=False)[0, 0]
        for name in "abc":
            axes.plot([0, 1], [0.0, 0.5], label=name)
        axes.plot([0, 1], [np.nan, np.nan], label="d")
        axes.plot([0, 1], [0.0, 1.0])
        label_line_ends(axes)
        heights = {text.get_text(): text.get_position()[1] for text in axes.texts}
    assert list(heights) == list("abcd")
    assert np.diff(sorted(heights.values())).min() > 0.05


def test_fedavg_and_fedprox_are_both_visible_where_they_coincide(tmp_path: Path) -> None:
    """Their runs are equal: FedAvg's orange is drawn over a wider pink line."""
    write_run(tmp_path / "a", "fedavg")
    write_run(tmp_path / "b", "fedprox")
    colours = count_colours(draw_curves(read_runs([tmp_path]), tmp_path / "figure.png"))
    assert colours[0xD5, 0x5E, 0x00] > 200
    assert colours[0xCC, 0x79, 0xA7] > 200


def test_figure_for_a_dark_page(runs: dict[str, RunRecord], tmp_path: Path) -> None:
    """Transparent where the other is white; black is white, and FedLaAvg's blue a lighter blue."""
    light, dark = (draw_curves([runs["fedlaavg"]], tmp_path / name) for name in ("a.png", "a-dark.png"))
    pixels, inverted = np.asarray(Image.open(light)), np.asarray(Image.open(dark))
    assert (inverted[..., 3] == 0).sum() > 0.5 * (pixels[..., :3].min(axis=-1) == 255).sum()
    blue = (pixels[..., :3] == (0x00, 0x72, 0xB2)).all(axis=-1)
    assert blue.sum() > 100
    shown = inverted[blue][:, :3]
    assert (np.abs(shown.astype(int) - np.median(shown, axis=0)) <= 2).all(axis=1).mean() > 0.9
    np.testing.assert_allclose(np.median(shown, axis=0), (67, 181, 245), atol=3)
    grey = np.array([[[0.5, 0.5, 0.5, 0.3]]], np.float32)
    np.testing.assert_allclose(for_dark_page(grey), grey, atol=1e-6)
