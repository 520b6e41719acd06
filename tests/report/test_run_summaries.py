"""Numbers of a run per seed, and the values in which runs differ."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlatest.report import RunRecord, read_runs, write_page
from fedlatest.report.page_data import axes
from fedlatest.report.run_summaries import megabytes, run_values, summarise, varying_keys, virtual_time
from fedlatest.runs import Metrics, Row
from tests.report.recorded_runs import FOUR_ROUNDS, cohorts, data_of, finish, write_run


def with_costs(run: RunRecord, **costs: int) -> RunRecord:
    return run._replace(manifest={**run.manifest, "costs": costs})


def test_numbers_of_two_seeds(tmp_path: Path) -> None:
    """Accuracies at rounds 0, 2 and 4 are 0, 0.2 and 0.4, 0.01 more for seed 1; the last quarter has one evaluation."""
    finish(write_run(tmp_path / "a", seeds=2), cohorts(*[[[0, 1], [1], [3], [0, 2]]] * 2))
    [run] = read_runs([tmp_path])
    found = summarise(run, None)
    assert found["late_accuracy"] == pytest.approx([0.4, 0.41])
    assert found["final_accuracy"] == pytest.approx([0.4, 0.41])
    assert found["final_train_loss"] == pytest.approx([0.4, 0.4])
    assert found["seconds"].tolist() == [1.5, 1.5]
    assert np.isnan([*found["swing"], *found["megabytes"]]).all()


def test_megabytes_are_counted_from_the_cohorts(tmp_path: Path) -> None:
    """Cohorts of 2, 1, 1 and 2 clients and 1 MB per participation: 3 MB after two rounds, 6 MB after four."""
    finish(write_run(tmp_path / "a"))
    [run] = read_runs([tmp_path])
    assert megabytes(run, FOUR_ROUNDS) is None
    priced = with_costs(run, up=400_000, down=600_000)
    traffic = megabytes(priced, FOUR_ROUNDS)
    assert traffic is not None
    assert traffic.tolist() == [[0, 3, 6]]
    assert megabytes(priced, None) is None
    assert axes(priced, FOUR_ROUNDS) == {"seconds": [0.1, 0.1, 0.1], "megabytes": [0, 3, 6], "time": None}


def test_virtual_time_is_an_axis_if_it_is_recorded(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    [run] = read_runs([tmp_path])
    assert virtual_time(run) is None
    rows = [
        Row(seed, round, 0.1, 1.0, 0.5, 1.0, 0.5, time=3.0 * round + seed, downloads=4 * round, uploads=3 * round)
        for seed in (0, 1)
        for round in (0, 2)
    ]
    timed = run._replace(metrics=Metrics(rows))
    assert axes(timed, None)["time"] == [0.5, 6.5]
    assert axes(timed, None)["megabytes"] is None
    # Eight clients received 1 MB each, and six sent 2 MB each.
    assert axes(with_costs(timed, up=2_000_000, down=1_000_000), None)["megabytes"] == [0, 20]


def test_values_that_differ(tmp_path: Path) -> None:
    """A key that only some runs have does not differ; nested values and intervals of evaluation are not compared."""
    write_run(tmp_path / "a", period=4, evaluate_every=1)
    write_run(tmp_path / "b", "fedprox", period=8, evaluate_every=2, mu=1.0)
    values = [run_values(run) for run in read_runs([tmp_path])]
    assert values[0] == {"algorithm": "FedLaAvg", "data": "hand", "period": 4}
    assert varying_keys(values) == ["algorithm", "period"]


def test_the_page_has_values_numbers_and_axes(tmp_path: Path) -> None:
    """Identifiers are paths below the common folder; the table has mean and interval and a value to sort by.

    The interval of 0.40 and 0.41 is 12.706 * 0.0070711 / sqrt(2) = 0.0635 on either side.
    """
    for name, period in (("x", 4), ("y", 8)):
        finish(write_run(tmp_path / name / "run", seeds=2, period=period), cohorts(*[[[0], [1], [3], [0]]] * 2))
    page = write_page(read_runs([tmp_path / "x", tmp_path / "y"]), tmp_path / "page.html")
    data, text = data_of(page), page.read_text()
    assert data["keys"] == ["period"]
    assert data["axes"] == ["seconds"]
    assert [(run["id"], run["full"], run["values"]) for run in data["runs"]] == [
        ("x/run", "period=4", {"period": 4}),
        ("y/run", "period=8", {"period": 8}),
    ]
    assert data["runs"][0]["summary"]["late_accuracy"] == [0.4, 0.41]
    cells = re.findall(r'<td class="number" data-value="0.405" data-interval="([\d.]+)" title="([^"]+)">([^<]+)<', text)
    assert cells[0] == ("0.0635310237", "± 95% interval over 2 seeds", "0.4050 ± 0.0635")
    assert "Numbers are means over seeds ± 95% interval over 2 seeds (Student&#x27;s t)." in text


def test_one_seed_has_no_interval(tmp_path: Path) -> None:
    finish(write_run(tmp_path / "a"))
    text = write_page(read_runs([tmp_path]), tmp_path / "page.html").read_text()
    assert '<td class="number" data-value="0.4">0.4000</td>' in text
    assert "Each run has one seed, so there is no ±." in text


def test_foreign_text_in_values_is_escaped(tmp_path: Path) -> None:
    """Names of keys, values and folders are text of others; they appear as text."""
    evil = "<img src=x onerror=alert(1)>"
    for name in ("a", evil):
        foreign: dict[str, Any] = {evil: name}
        finish(write_run(tmp_path / name, **foreign))
    text = write_page(read_runs([tmp_path]), tmp_path / "page.html").read_text()
    assert "<img" not in text
    assert evil.replace("<", "&lt;").replace(">", "&gt;") in text
