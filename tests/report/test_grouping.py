"""Settings, names and line styles of runs."""

from pathlib import Path

from fedlatest.report import read_runs
from fedlatest.report.findings import what_was_run
from fedlatest.report.grouping import find_settings, line_styles, name_in_page, name_runs
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
    assert labels == ["lr=0.1", "lr=0.2"]


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


def test_labels_are_short_and_distinct(tmp_path: Path) -> None:
    """A label has the values that differ: texts without their keys, and no key that only one of the settings has."""
    write_run(tmp_path / "a", availability="diurnal", period=4, rounds_of_day=1)
    write_run(tmp_path / "b", availability="markov", period=4)
    write_run(tmp_path / "c", availability="markov", period=8)
    labels = [setting.label for setting in find_settings(read_runs([tmp_path]))]
    assert sorted(labels) == ["diurnal, period=4", "markov, period=4", "markov, period=8"]


def test_names_among_all_runs(tmp_path: Path) -> None:
    """With one algorithm a run is named by its setting, with several by both; a pooled run belongs to all settings."""
    for period in (4, 8):
        write_run(tmp_path / f"a-{period}", period=period)
    runs = read_runs([tmp_path])
    settings = find_settings(runs)
    assert name_in_page(runs, settings, name_runs(runs, settings)) == ["period=4", "period=8"]
    write_run(tmp_path / "b-4", "fedavg", period=4)
    write_run(tmp_path / "pooled", "sequential", period=4)
    runs = read_runs([tmp_path])
    settings = find_settings(runs)
    names = name_in_page(runs, settings, name_runs(runs, settings))
    assert names == ["FedLaAvg · period=4", "FedLaAvg · period=8", "FedAvg · period=4", "Sequential SGD"]


def test_runs_of_one_algorithm_are_named_by_all_values_if_needed(tmp_path: Path) -> None:
    """Pooled runs share the setting of a federated run; their learning rates are no values of the algorithm."""
    write_run(tmp_path / "a", learning_rate=0.1)
    for rate in (0.1, 0.2):
        write_run(tmp_path / f"pooled-{rate}", "sequential", learning_rate=rate)
    runs = read_runs([tmp_path])
    names = name_runs(runs, find_settings(runs))
    assert names == ["FedLaAvg", "Sequential SGD (lr=0.1)", "Sequential SGD (lr=0.2)"]
