"""The Sentiment140 figures as data: they contain the experiments that the paper shows."""

from pathlib import Path

import numpy as np

from fedlatest import RunFolder, diurnal, fedlaavg, simulate
from fedlatest.report import read_runs
from fedlatest.reproduction.papers import REPRODUCTIONS, draw, experiments_for
from fedlatest.reproduction.sentiment140_figures import (
    FIGURES,
    availability,
    clients,
    participation,
    sentiment140_experiment,
    sleep,
)
from fedlatest.runs.clients import save_clients
from tests.problems import MODEL, small_federation

SENTIMENT140 = REPRODUCTIONS["sentiment140"]


def test_five_settings_with_seven_curves_each() -> None:
    """Sequential SGD has no days, but its data depend on alpha."""
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


def test_numbers_of_clients_and_participation_rates() -> None:
    assert [experiment.values["num_clients"] for experiment in clients().experiments] == [200, 600, 1000]
    shares = participation().experiments
    assert [(each.values["participation"], each.values["availability"]) for each in shares] == [
        (0.1, "sleep"), (0.2, "sleep"), (1.0, "always"),
    ]  # fmt: skip


def test_names_contain_what_differs_from_the_default() -> None:
    assert sentiment140_experiment("").name == sentiment140_experiment("rounds_per_day=120 alpha=0").name == "fedlaavg"
    assert (
        sentiment140_experiment("local_steps=1 rounds_per_day=24 alpha=0.5").name
        == "fedlaavg-local_steps=1-rounds_per_day=24-alpha=0.5"
    )
    assert sentiment140_experiment("algorithm=fedprox").values["mu"] == 0.01


def test_experiments_are_unique_and_the_longest_comes_first() -> None:
    """30 of six algorithms in five settings, 3 of sequential SGD, 2 with fewer clients, 2 with larger cohorts."""
    names = [experiment.name for experiment in experiments_for(SENTIMENT140.select_figures([]), rounds=40)]
    assert len(names) == len(set(names)) == 37
    assert names[:2] == ["fedlaavg-participation=1.0", "fedlaavg-participation=0.2"]
    assert names[-1].startswith(("fedsgd", "fedlaavg-local_steps=1"))


def test_select_figures() -> None:
    assert [figure.name for figure in SENTIMENT140.select_figures([])] == list(FIGURES)


def test_the_sleep_figure_is_drawn_from_a_run(tmp_path: Path) -> None:
    federation = small_federation(8, seed=1)
    pattern = diurnal(np.arange(8) < 3, period=4)
    simulate(
        federation, MODEL, fedlaavg(), pattern, rounds=5, cohort_size=3, num_local_steps=2, batch_size=3,
        evaluate_every=5, out=tmp_path / "run",
    )  # fmt: skip
    saved = RunFolder(tmp_path / "run").clients()
    assert saved is not None
    times = saved._replace(sent=np.ones((8, 96), np.uint16), window=np.full((8, 2), 8, np.float32))
    save_clients(tmp_path / "run/clients.npz", times)
    [record] = read_runs([tmp_path / "run"])
    drawn = draw(sleep(), {"fedlaavg": record}, tmp_path, {})
    assert [path.name for path in drawn] == ["sleep.png", "sleep.pdf"]
    assert all(path.stat().st_size > 5000 for path in drawn)
