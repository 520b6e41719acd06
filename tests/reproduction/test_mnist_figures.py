"""The MNIST figures as data: they contain the experiments that the paper shows."""

import pytest

from fedlatest import ConfigError
from fedlatest.reproduction.mnist_figures import (
    FIGURES,
    availability,
    clients,
    mnist_experiment,
    participation,
    published,
)
from fedlatest.reproduction.papers import REPRODUCTIONS, experiments_for

MNIST = REPRODUCTIONS["mnist"]


def test_five_settings_with_seven_curves_each() -> None:
    figure = availability()
    assert [panel.title for panel in figure.panels] == [
        "E = 100, D = 3", "E = 100, D = 5", "E = 50, D = 1", "E = 100, D = 1", "E = 200, D = 1",
    ]  # fmt: skip
    for panel in figure.panels:
        assert len(panel.curves) == 7
        for curve in panel.curves:
            [experiment] = curve.candidates
            if experiment.values["algorithm"] != "sequential":
                title = f"E = {experiment.values['period']}, D = {experiment.values['digits']}"
                assert title == panel.title


def test_the_figure_over_the_published_curves_needs_seven_runs_of_the_others() -> None:
    figure = published()
    assert [curve.label for curve in figure.panels[0].curves] == ["FedAvg", "Naive", "FedLaAvg", "Sequential SGD"]
    names = {experiment.name for experiment in figure.experiments}
    assert len(names) == 7  # sequential SGD is the same in both panels
    assert names < {experiment.name for experiment in availability().experiments}


def test_numbers_of_clients_and_participation_rates() -> None:
    assert [experiment.values["num_clients"] for experiment in clients().experiments] == [200, 600, 1000]
    shares = participation().experiments
    assert [(each.values["participation"], each.values["availability"]) for each in shares] == [
        (0.05, "diurnal"), (0.1, "diurnal"), (1.0, "always"),
    ]  # fmt: skip


def test_names_contain_what_differs_from_the_default() -> None:
    assert mnist_experiment("").name == mnist_experiment("period=100 digits=1").name == "fedlaavg"
    assert mnist_experiment("algorithm=fedavg digits=5").name == "fedavg-digits=5"
    assert mnist_experiment("local_steps=1 period=50 digits=1").name == "fedlaavg-local_steps=1-period=50"
    assert mnist_experiment("algorithm=fedadam server_step=0.01").name == "fedadam-server_step=0.01"


def test_experiments_are_unique_and_the_longest_comes_first() -> None:
    experiments = experiments_for(MNIST.select_figures([]), rounds=40)
    names = [experiment.name for experiment in experiments]
    assert len(names) == len(set(names)) == 47
    assert names[0] == "fedlaavg-participation=1.0"  # ten times the cohort
    assert {experiment.values["rounds"] for experiment in experiments} == {40}
    assert names[-1].startswith(("fedsgd", "fedlaavg-local_steps=1"))


def test_select_figures() -> None:
    assert [figure.name for figure in MNIST.select_figures([])] == list(FIGURES)
    assert [figure.name for figure in MNIST.select_figures(["chart"])] == ["chart"]
    with pytest.raises(ConfigError, match=r"--figure chat: unknown; did you mean chart\?"):
        MNIST.select_figures(["chat"])
