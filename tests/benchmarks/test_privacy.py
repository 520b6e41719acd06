"""The cases of the benchmark of differential privacy, its table and its figure."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks.privacy import CHOSEN, EPSILONS, LIMITS, METHODS, SETTINGS, Case, draw, print_table

from fedlatest.experiments.experiment import privacy_of
from fedlatest.privacy import plan_noise

CASES = [Case(*key, privacy, epsilon) for key, privacy in CHOSEN.items() for epsilon in EPSILONS]


def test_every_case_has_a_plan() -> None:
    assert set(CHOSEN) == {(num, method) for num in SETTINGS for method in METHODS}
    assert len({case.name for case in CASES}) == len(CASES)
    for case in CASES:
        values = case.experiment.values
        privacy = privacy_of(values, case.num_clients)
        assert privacy is not None
        plan = plan_noise(privacy, "fresh" if "fedavg" in METHODS[case.method] else "remembered")
        assert plan.epsilon == pytest.approx(float(case.epsilon))
        assert plan.rounds == values["rounds"]


def test_limits_allow_what_the_availability_allows() -> None:
    """Each group of clients is available in every second block of 100 rounds: half of all rounds."""
    for num, limits in LIMITS.items():
        rounds = int(SETTINGS[num].split()[0].removeprefix("rounds="))
        for text in limits:
            separation, most = (int(part.partition("=")[2]) for part in text.split())
            assert most >= rounds / 2 / separation


def test_table_and_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = {case: np.array([0.5, 0.6]) for case in CASES}
    print_table(found)
    assert "| 1000 | FedLaAvg | 55.0 ± 63.5 |" in capsys.readouterr().out
    assert draw(found, tmp_path / "figure.png").stat().st_size > 1000
