"""The paper's figures as data: what they show is what the paper shows."""

import pytest

from fedlatest import ConfigError
from fedlatest.reproduction.mnist_figures import FIGURES, availability, clients, participation, run
from fedlatest.reproduction.papers import REPRODUCTIONS, experiments_of

MNIST = REPRODUCTIONS["mnist"]


def test_five_settings_and_seven_lines_each() -> None:
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


def test_sweeps() -> None:
    assert [experiment.values["num_clients"] for experiment in clients().experiments] == [200, 600, 1000]
    shares = participation().experiments
    assert [(each.values["participation"], each.values["availability"]) for each in shares] == [
        (0.05, "diurnal"), (0.1, "diurnal"), (1.0, "always"),
    ]  # fmt: skip


def test_names_say_what_differs_from_the_default() -> None:
    assert run("").name == run("period=100 digits=1").name == "fedlaavg"
    assert run("algorithm=fedavg digits=5").name == "fedavg-digits=5"
    assert run("local_steps=1 period=50 digits=1").name == "fedlaavg-local_steps=1-period=50"
    assert run("algorithm=fedadam server_step=0.01").name == "fedadam-server_step=0.01"


def test_a_run_shared_by_figures_is_run_once_and_the_longest_first() -> None:
    experiments = experiments_of(MNIST.chosen([]), rounds=40)
    names = [experiment.name for experiment in experiments]
    assert len(names) == len(set(names)) == 47
    assert names[0] == "fedlaavg-participation=1.0"  # ten times the participants
    assert {experiment.values["rounds"] for experiment in experiments} == {40}
    assert names[-1].startswith(("fedsgd", "fedlaavg-local_steps=1"))


def test_figures_by_name() -> None:
    assert [figure.name for figure in MNIST.chosen([])] == list(FIGURES)
    assert [figure.name for figure in MNIST.chosen(["chart"])] == ["chart"]
    with pytest.raises(ConfigError, match="--figure chat: unknown; choose one of availability, chart"):
        MNIST.chosen(["chat"])
