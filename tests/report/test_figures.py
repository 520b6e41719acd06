"""Figures of training curves: colours, published curves and file formats."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedlatest.errors import RunFolderError
from fedlatest.report import Line, PublishedCurve, RunRecord, draw_curves, draw_panels, label_runs, read_runs
from fedlatest.report.figures import OTHER_STYLES, STYLES, algorithm_styles, variant
from fedlatest.report.run_summaries import virtual_time
from fedlatest.runs import Row, RunFolder
from tests.report.recorded_runs import write_curve, write_run


def count_colours(path: Path) -> dict[tuple[int, ...], int]:
    """Return the number of pixels of each colour."""
    pixels = np.asarray(Image.open(path).convert("RGB")).reshape(-1, 3)
    values, counts = np.unique(pixels, axis=0, return_counts=True)
    return {tuple(value.tolist()): int(count) for value, count in zip(values, counts, strict=True)}


def test_figure_shows_curves_and_bands(tmp_path: Path) -> None:
    """The figure contains FedLaAvg's blue and FedAvg's orange as lines, and a pale blue as a band over seeds."""
    write_curve(tmp_path / "a", {0: [0.1, 0.5, 0.9], 1: [0.1, 0.3, 0.5]})
    write_curve(tmp_path / "b", {0: [0.1, 0.8, 0.2]}, "fedavg")
    path = draw_curves(read_runs([tmp_path]), tmp_path / "figures/curves.png", title="two runs")
    pixels = np.asarray(Image.open(path).convert("RGB")).reshape(-1, 3)
    for colour in ((0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00), (204, 227, 240)):
        assert (np.abs(pixels.astype(int) - colour).max(axis=1) <= 2).sum() > 50


def test_panels_show_each_algorithm_in_its_colour(runs: dict[str, RunRecord], tmp_path: Path) -> None:
    """FedLaAvg is blue and FedAvg orange; a published curve of FedLaAvg is pale blue."""
    lines = [Line("a", runs["fedlaavg"]), Line("b", runs["fedavg"])]
    plain = count_colours(draw_panels({"x": lines, "y": lines}, "test_accuracy", tmp_path / "plain.png"))
    assert plain[0x00, 0x72, 0xB2] > 100
    assert plain[0xD5, 0x5E, 0x00] > 40
    middle = runs["fedlaavg"].late_accuracy
    curve = PublishedCurve(np.arange(0, 21, 5), np.full(5, 0.5), np.full(5, middle))
    behind = [Line("a", runs["fedlaavg"], curve), lines[1]]
    with_published = count_colours(draw_panels({"x": behind, "y": lines}, "test_accuracy", tmp_path / "published.png"))
    pale = tuple(round(0.35 * part + 0.65 * 255) for part in (0x00, 0x72, 0xB2))
    near = [count for colour, count in with_published.items() if np.abs(np.subtract(colour, pale)).max() <= 2]
    assert sum(near) > 50


def test_algorithms_without_an_own_colour_get_distinct_styles_of_the_palette() -> None:
    """The order of the names does not matter, and a style depends on the other names only if two checksums collide."""
    names = ["fedlaavg", "scaffold", "fedawe", "fedau", "amplified_fedavg", "mifa", "fedvarp"]
    styles = algorithm_styles(names)
    assert styles == algorithm_styles(reversed(names))
    assert styles["fedlaavg"] == STYLES["fedlaavg"]
    assert len(set(styles.values())) == len(names)
    assert set(styles.values()) <= {STYLES["fedlaavg"], *OTHER_STYLES}
    for name in names:
        assert algorithm_styles([name])[name] == styles[name]


def test_more_algorithms_than_styles() -> None:
    names = [f"algorithm {i}" for i in range(len(OTHER_STYLES) + 3)]
    assert set(algorithm_styles(names).values()) == set(OTHER_STYLES)


def test_styles_do_not_depend_on_the_process() -> None:
    code = "from fedlatest.report.figures import algorithm_styles; print(algorithm_styles(['mine'])['mine'])"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == str(algorithm_styles(["mine"])["mine"])


def test_figure_as_pdf(tmp_path: Path) -> None:
    write_curve(tmp_path / "a", {0: [0.1, 0.5, 0.9]})
    assert draw_curves(read_runs([tmp_path]), tmp_path / "curves.pdf").read_bytes().startswith(b"%PDF")


def test_unknown_file_format(tmp_path: Path) -> None:
    write_curve(tmp_path / "a", {0: [0.1, 0.5]})
    with pytest.raises(RunFolderError, match="could not be written"):
        draw_curves(read_runs([tmp_path]), tmp_path / "figure.nonsense")


def test_runs_of_one_algorithm_are_labelled_by_what_differs(tmp_path: Path) -> None:
    """By values, or by the folder if the values are the same; further runs have other shades and dashes."""
    for step in (0.1, 0.2):
        write_run(tmp_path / f"s{step}", learning_rate=step)
    write_run(tmp_path / "twice" / "a", "fedavg", learning_rate=0.1)
    write_run(tmp_path / "again" / "a", "fedavg", learning_rate=0.1)
    write_run(tmp_path / "z", "naive").mark_diverged("NaN", round=3)
    runs = read_runs([tmp_path / name for name in ("s0.1", "s0.2", "twice", "again", "z")])
    assert label_runs(runs) == [
        "FedLaAvg (learning_rate=0.1)", "FedLaAvg (learning_rate=0.2)", "FedAvg (twice/a)", "FedAvg (again/a)",
        "Naive (diverged by round 3)",
    ]  # fmt: skip
    variants = [variant(STYLES["fedlaavg"], number) for number in range(8)]
    assert len(set(variants)) == 8
    assert len({colour for colour, _ in variants}) >= 7
    draw_curves(runs, tmp_path / "figure.png")


def test_curves_over_virtual_time(tmp_path: Path) -> None:
    """A run with a virtual time of 30 s per round; one without cannot be drawn over time."""
    folder = RunFolder(tmp_path / "timed")
    folder.begin({"config": {"algorithm": {"name": "fedbuff"}}, "seeds": [0], "data": {}}, resume=False, force=False)
    folder.record([Row(0, round, 0.0, 1.0, 0.5, 1.0, 0.1 * round, time=30.0 * round) for round in range(5)])
    runs = read_runs([tmp_path])
    assert virtual_time(runs[0]) is not None
    assert draw_curves(runs, tmp_path / "time.pdf", over="time").read_bytes().startswith(b"%PDF")
    write_run(tmp_path / "untimed", "fedavg")
    with pytest.raises(RunFolderError, match=r"untimed: has no virtual time"):
        draw_curves(read_runs([tmp_path]), tmp_path / "time.pdf", over="time")
