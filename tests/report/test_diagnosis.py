"""The diagnosis in the report: the view of a run's availability, and the figure and the page of a diagnosis."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from fedlatest.diagnosis import Training, diagnose, fedavg_weights
from fedlatest.errors import ConfigError
from fedlatest.report import read_runs, write_page
from fedlatest.report.diagnosis_figure import diagnosis_figure_source, draw_diagnosis
from fedlatest.report.diagnosis_page import write_diagnosis_page
from fedlatest.report.run_diagnosis import run_availability
from fedlatest.runs.clients import clients_of_table
from tests.diagnosis.fleets import by_day_and_night, fleet, halves, random_fleet
from tests.report.recorded_runs import finish, write_run


def test_the_view_of_a_small_run_is_exact() -> None:
    """With one client per row and one round per column, it is the distance of the weights of the clients."""
    table = random_fleet([0.1, 0.4, 0.6, 0.9], rounds=100)
    found = run_availability(clients_of_table(table))
    assert found is not None
    weights = fedavg_weights(table, np.full(4, 0.25))
    assert found.client_distance == pytest.approx(np.abs(weights - 0.25).sum() / 2)
    assert (found.fewest, found.most) == (table.sum(axis=1).min(), table.sum(axis=1).max())
    assert found.mean_share == pytest.approx(table.mean())
    assert (found.label_distance, found.label_swing) == (None, None)


def test_the_view_of_a_run_with_labels() -> None:
    """One half of the clients in the first half of the rounds: fair over all, the other label in every eighth."""
    record = clients_of_table(by_day_and_night(day=400, days=1))
    labels = np.array([int(label) for label in halves()], np.int32)
    found = run_availability(record._replace(labels=labels, sizes=np.full(40, 7)))
    assert found is not None
    assert found.label_distance == pytest.approx(0)
    assert found.label_swing == pytest.approx(0.5)
    larger = run_availability(record._replace(labels=labels, sizes=np.where(labels == 0, 30, 10)))
    assert larger is not None
    assert larger.label_distance == pytest.approx(0)
    assert larger.label_swing == pytest.approx((0.25 + 0.75) / 2)


def test_nobody_was_available() -> None:
    assert run_availability(clients_of_table(np.zeros((3, 2), bool))) is None


def test_the_page_of_runs_has_one_row_for_each_availability(tmp_path: Path) -> None:
    for name, algorithm in (("a", "fedlaavg"), ("b", "fedavg")):
        finish(write_run(tmp_path / name, algorithm))
    page = write_page(read_runs([tmp_path]), tmp_path / "page.html").read_text()
    section = page.partition('<div id="diagnosis">')[2].partition("</section>")[0]
    assert section.count('<th scope="row">') == 1
    assert "FedLaAvg and FedAvg" in section
    assert "What the availability does to FedAvg" in section


def test_pages_and_figures_of_all_kinds_of_fleets(tmp_path: Path) -> None:
    """With and without times, a cycle, delays, labels; the heat map has its rows, and texts are escaped."""
    known = {"delays": np.full(40, 5.0), "labels": ["<b>" if label == "0" else "c" for label in halves()]}
    full = fleet(by_day_and_night(), round_seconds=1800, sizes=np.arange(1.0, 41), **known)
    fleets = [
        full,
        dataclasses.replace(full, delays=None, labels=[str(client) for client in range(40)]),
        fleet(random_fleet(np.linspace(0, 0.9, 12))),
        fleet(np.ones((100, 3), bool)),
    ]
    for number, each in enumerate(fleets):
        found = diagnose(each, Training(cohort_size=3))
        path = draw_diagnosis(found, tmp_path / f"{number}.png")
        assert path.stat().st_size > 10_000
        page = write_diagnosis_page(found, tmp_path / f"{number}.html").read_text()
        assert diagnosis_figure_source(found, dark=True) in page
        assert "<b>c" not in page
    text = (tmp_path / "0.html").read_text()
    assert "&lt;b&gt;" in text
    assert "Rounds per day" in text
    assert len(found.pictures.rows) == 3
    with pytest.raises(ConfigError, match=r"ends in \.html"):
        write_diagnosis_page(found, tmp_path / "page.txt")
