"""The paper's Sentiment140 figures as data: the right experiments under the right names."""

from pathlib import Path

import numpy as np

from fedlatest import RunFolder, diurnal, fedlaavg, simulate
from fedlatest.report import read_runs
from fedlatest.reproduction.papers import REPRODUCTIONS, draw, experiments_of
from fedlatest.reproduction.sentiment140_figures import FIGURES, availability, clients, participation, run, sleep
from fedlatest.runs.clients import save_clients
from tests.problems import MODEL, small_federation

SENTIMENT140 = REPRODUCTIONS["sentiment140"]


def test_five_settings_and_seven_lines_each() -> None:
    """Sequential SGD knows no days, but its data change with alpha."""
    figure = availability()
    assert [panel.title for panel in figure.panels] == [
        "E = 120, alpha = 0.25",
        "E = 120, alpha = 0.5",
        "E = 24, alpha = 0",
        "E = 120, alpha = 0",
        "E = 240, alpha = 0",
    ]
    for panel in figure.panels:
        assert len(panel.curves) == 7
        for curve in panel.curves:
            [experiment] = curve.candidates
            values = experiment.values
            period = "" if values["algorithm"] == "sequential" else f"E = {values['rounds_per_day']}, "
            assert panel.title.endswith(f"{period}alpha = {values['alpha']:g}")
    sequential = {each.name for each in figure.experiments if each.values["algorithm"] == "sequential"}
    assert sequential == {"sequential", "sequential-alpha=0.25", "sequential-alpha=0.5"}


def test_sweeps() -> None:
    assert [experiment.values["num_clients"] for experiment in clients().experiments] == [200, 600, 1000]
    shares = participation().experiments
    assert [(each.values["participation"], each.values["availability"]) for each in shares] == [
        (0.1, "sleep"), (0.2, "sleep"), (1.0, "always"),
    ]  # fmt: skip


def test_names_say_what_differs_from_the_default() -> None:
    assert run("").name == run("rounds_per_day=120 alpha=0").name == "fedlaavg"
    assert run("local_steps=1 rounds_per_day=24 alpha=0.5").name == "fedlaavg-local_steps=1-rounds_per_day=24-alpha=0.5"
    assert run("algorithm=fedprox").values["mu"] == 0.01


def test_a_run_shared_by_figures_is_run_once_and_the_longest_first() -> None:
    """30 of six algorithms in five settings, 3 of sequential SGD, 2 with fewer clients, 2 with more participants."""
    names = [experiment.name for experiment in experiments_of(SENTIMENT140.chosen([]), rounds=40)]
    assert len(names) == len(set(names)) == 37
    assert names[:2] == ["fedlaavg-participation=1.0", "fedlaavg-participation=0.2"]
    assert names[-1].startswith(("fedsgd", "fedlaavg-local_steps=1"))


def test_figures_by_name() -> None:
    assert [figure.name for figure in SENTIMENT140.chosen([])] == list(FIGURES)


def test_sleep_is_drawn_from_the_clients_of_a_run(tmp_path: Path) -> None:
    federation = small_federation(8, seed=1)
    pattern = diurnal(np.arange(8) < 3, period=4)
    simulate(
        federation, MODEL, fedlaavg(), pattern, rounds=5, cohort_size=3, num_local_steps=2, batch_size=3,
        evaluate_every=5, out=tmp_path / "run",
    )  # fmt: skip
    noted = RunFolder(tmp_path / "run").clients()
    assert noted is not None
    times = noted._replace(sent=np.ones((8, 96), np.uint16), window=np.full((8, 2), 8, np.float32))
    save_clients(tmp_path / "run/clients.npz", times)
    [record] = read_runs([tmp_path / "run"])
    drawn = draw(sleep(), {"fedlaavg": record}, tmp_path, {})
    assert [path.name for path in drawn] == ["sleep.png", "sleep.pdf"]
    assert all(path.stat().st_size > 5000 for path in drawn)
