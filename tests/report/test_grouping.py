"""Settings, names and line styles of runs."""

from pathlib import Path

from fedlatest.report import read_runs
from fedlatest.report.findings import what_was_run
from fedlatest.report.grouping import find_settings, line_styles, name_runs
from tests.report.recorded_runs import write_run


def test_settings_and_names(tmp_path: Path) -> None:
    """Two periods, one of them with FedLaAvg of 1 and of 10 steps; the pooled run belongs to both settings."""
    for period in (100, 20):
        write_run(tmp_path / f"long-{period}", period=period, digits=1, local_steps=10)
        write_run(tmp_path / f"avg-{period}", "fedavg", period=period, digits=1)
    write_run(tmp_path / "one", period=100, digits=1, local_steps=1, num_local_steps=1)
    write_run(tmp_path / "pooled", "sequential", period=5)
    runs = read_runs([tmp_path])
    settings = find_settings(runs)
    names, lines = name_runs(runs, settings), line_styles(runs, settings)
    assert [setting.label for setting in settings] == ["period=20", "period=100"]
    assert [[names[i] for i in setting.runs] for setting in settings] == [
        ["FedLaAvg", "FedAvg", "Sequential SGD"],
        ["FedLaAvg (10 steps)", "FedLaAvg (1 step)", "FedAvg", "Sequential SGD"],
    ]
    ten, one = (lines[i] for i in settings[1].runs[:2])
    assert (ten.light, ten.dash) == ("#0072b2", "")
    assert one.light != ten.light
    assert one.dash
    assert lines[-1].dark != "#000000"
    assert "in 2 settings on hand: 4 clients, 4 rounds, 1 seed each." in what_was_run(runs, settings)


def test_learning_rates(tmp_path: Path) -> None:
    """One learning rate per algorithm belongs to the algorithm; several for one algorithm are several settings."""
    write_run(tmp_path / "a", learning_rate=0.1)
    write_run(tmp_path / "b", "fedavg", learning_rate=0.2)
    assert [setting.label for setting in find_settings(read_runs([tmp_path]))] == [""]
    write_run(tmp_path / "c", "fedavg", learning_rate=0.1)
    labels = [setting.label for setting in find_settings(read_runs([tmp_path]))]
    assert labels == ["learning_rate=0.1", "learning_rate=0.2"]


def test_a_title_is_not_a_value_of_the_algorithm(tmp_path: Path) -> None:
    """A run with a title and an older one without are named by their folders, and belong to the same setting."""
    write_run(tmp_path / "new", title="FedLaAvg")
    write_run(tmp_path / "old")
    runs = read_runs([tmp_path])
    settings = find_settings(runs)
    assert len(settings) == 1
    assert name_runs(runs, settings) == ["FedLaAvg (new)", "FedLaAvg (old)"]


def test_algorithms_that_the_report_does_not_know(tmp_path: Path) -> None:
    """They follow the known ones, sorted by title, and have distinct lines."""
    for name, title in (("scaffold", "SCAFFOLD"), ("fedawe", "FedAWE"), ("fedavg", "FedAvg")):
        write_run(tmp_path / name, name, title=title)
    runs = read_runs([tmp_path])
    [setting] = settings = find_settings(runs)
    assert [runs[i].title for i in setting.runs] == ["FedAvg", "FedAWE", "SCAFFOLD"]
    assert len(set(line_styles(runs, settings))) == 3
