"""Recommendations for synthetic fleets for which the right answer is known, and the diagnosis as a file."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlatest import ConfigError, DataError
from fedlatest.diagnosis import Diagnosis, JobFacts, Training, diagnose, read_diagnosis, write_diagnosis
from fedlatest.diagnosis.resonance import resonance_facts
from fedlatest.theory.stability import round_robin_threshold
from tests.diagnosis.fleets import DAY, by_day_and_night, fleet, halves, random_fleet


def algorithm(found: Diagnosis) -> str:
    return found.recommendation.choice("algorithm")


def reason(found: Diagnosis, topic: str = "algorithm") -> str:
    return next(advice.reason for advice in found.recommendation.advice if advice.topic == topic)


def test_always_available() -> None:
    """FedAvg's weights are fair; FedLaAvg can resonate, because it visits the clients in turn."""
    found = diagnose(fleet(np.ones((300, 100), bool)))
    assert algorithm(found) == "fedavg"
    assert found.recommendation.confidence == "high"
    assert found.recommendation.warnings == []
    assert found.resonance is not None
    assert found.resonance.verdict == "possible"
    assert found.resonance.stable_gain == pytest.approx(round_robin_threshold(10), abs=0.02)
    assert not found.resonance.fresh_swings
    assert (found.availability.smallest_e, found.staleness_bound, found.cohort_size) == (1, 9, 10)


def test_equal_clients_that_differ_by_chance() -> None:
    """Independent draws with equal rates: 7% of the weight is at wrong clients in an eighth of the record."""
    found = diagnose(fleet(random_fleet(np.full(100, 0.3))))
    assert found.bias.window_variation > 0.07
    assert (algorithm(found), found.recommendation.confidence) == ("fedavg", "high")
    assert f"(by chance {found.bias.window_chance:.1%})" in reason(found)
    short = diagnose(fleet(random_fleet(np.full(100, 0.05), rounds=100)))
    assert (algorithm(short), short.recommendation.confidence) == ("fedavg", "moderate")
    assert "chance alone shifts" in short.recommendation.confidence_reason
    biased = diagnose(fleet(random_fleet(np.where(np.arange(100) < 50, 0.2, 0.4))))
    assert algorithm(biased) == "fedlaavg_fresh"


def test_labels_by_day_and_by_night() -> None:
    """As Example 1 with many clients: remembered updates; with a small gain FedLaAvg does not resonate."""
    night = fleet(by_day_and_night(), labels=halves())
    careful = diagnose(night, Training(cohort_size=10, learning_rate=0.01, curvature=1.0))
    assert algorithm(careful) == "fedlaavg"
    assert "depends on the labels" in reason(careful)
    assert careful.resonance is not None
    assert careful.resonance.verdict == "no"
    assert (careful.correlation.cycle, careful.recommendation.confidence) == (DAY, "high")


def test_a_step_that_resonates() -> None:
    """Four of 40 clients, all of them available often: a cycle of ten rounds, as with all available."""
    rates = np.where(np.arange(40) < 20, 1.0, 0.6)
    table = random_fleet(rates, rounds=600)
    known: dict[str, Any] = {"labels": halves()}
    large = diagnose(fleet(table, **known), Training(cohort_size=4, learning_rate=1.0, curvature=0.9))
    assert large.resonance is not None
    assert (large.resonance.verdict, algorithm(large)) == ("yes", "fedlaavg_fresh")
    assert "would resonate" in reason(large)
    small = diagnose(fleet(table, **known), Training(cohort_size=4, learning_rate=0.01, curvature=0.9))
    assert small.resonance is not None
    assert (small.resonance.verdict, algorithm(small)) == ("no", "fedlaavg")
    unknown = diagnose(fleet(table, **known), Training(cohort_size=4))
    assert unknown.resonance is not None
    assert (unknown.resonance.verdict, algorithm(unknown)) == ("possible", "fedlaavg_fresh")
    stable = small.recommendation.choice("step")
    assert stable == f"below {small.resonance.stable_gain / 0.9:.3g}"


def test_availability_that_does_not_depend_on_the_labels() -> None:
    """Half of the clients are rare, but the labels are in turn."""
    rates = np.where(np.arange(60) < 30, 0.9, 0.2)
    found = diagnose(fleet(random_fleet(rates), labels=["0", "1"] * 30))
    assert found.bias.total_variation > 0.2
    assert algorithm(found) == "fedavg"
    assert "does not depend on the labels" in reason(found)
    unknown = diagnose(fleet(random_fleet(rates)))
    assert algorithm(unknown) == "fedlaavg_fresh"
    assert unknown.recommendation.confidence == "moderate"


def test_clients_that_leave_or_never_come() -> None:
    """A label leaves: FedAvg forgets it. Its remembered updates stay, which is no resonance."""
    table = random_fleet(np.full(60, 0.5), rounds=600)
    table[150:, 40:] = False
    table[:, 59] = False
    found = diagnose(fleet(table, labels=["0"] * 40 + ["1"] * 20), Training(cohort_size=30))
    assert (found.availability.num_left, found.availability.num_never) == (19, 1)
    assert algorithm(found).startswith("fedlaavg")
    assert found.resonance is not None
    assert not found.resonance.swings
    text = " ".join(found.recommendation.warnings)
    assert "1 of 60 clients were never available (59)" in text
    assert "19 clients were not available in the second half" in text


def test_nights_without_anyone() -> None:
    """1000 clients, all of them available for 20 hours a day: nothing prevents cohorts of a tenth."""
    by_day = np.arange(7 * 48) % 48 < 40
    found = diagnose(fleet(np.tile(by_day[:, None], 1000), round_seconds=1800))
    assert found.cohort_size == 100
    assert (found.availability.usually_available, found.availability.empty_share) == pytest.approx((1000, 1 / 6))
    assert "Nobody is available in 17% of the rounds" in " ".join(found.recommendation.warnings)
    assert "rounds in which somebody is available" in reason(found, "cohort size")


def test_deadlines() -> None:
    """With one very slow client the deadline excludes it; with similar ones it excludes nobody."""
    table = random_fleet(np.full(50, 0.9))
    similar = diagnose(fleet(table, round_seconds=1800, delays=np.linspace(10, 20, 50)))
    assert similar.recommendation.choice("deadline") == "22 s"
    assert "no client is excluded" in reason(similar, "deadline")
    outlier = diagnose(fleet(table, round_seconds=1800, delays=np.r_[np.linspace(10, 20, 49), 5000.0]))
    assert outlier.recommendation.choice("deadline") == "20 s"
    assert "always too slow for it and never count: 1" in reason(outlier, "deadline")
    assert diagnose(fleet(table)).recommendation.choice("deadline") == "unknown"
    at_once = diagnose(fleet(table, round_seconds=1800, delays=np.zeros(50)))
    assert at_once.recommendation.choice("deadline") == "1 s"
    partly = diagnose(fleet(table, round_seconds=1800, delays=np.r_[np.linspace(10, 20, 47), [np.nan] * 3]))
    assert "the delays of 3 clients are unknown" in reason(partly, "deadline")
    assert "excluded" not in reason(partly, "deadline")


def test_the_deadline_of_a_job_is_not_shortened_if_clients_never_answered() -> None:
    """Without delays of the clients that never answered, a shorter deadline may exclude more of them."""
    table = random_fleet(np.full(50, 0.9))
    delays = np.r_[np.linspace(2, 3, 46), 40.0, [np.nan] * 3]
    made = fleet(table, round_seconds=1800, delays=delays, job=JobFacts(deadline=60.0, num_unanswered=2))
    found = diagnose(made)
    assert found.recommendation.choice("deadline") == "60 s"
    assert "2 clients never answered with an accepted upload (the deadline of the job is 60 s)" in reason(
        found, "deadline"
    )
    assert any("2 clients never answered" in warning for warning in found.recommendation.warnings)
    assert not any("--round-length" in each for each in found.recommendation.assumptions)
    all_answered = diagnose(dataclasses.replace(made, delays=np.full(50, 3.0), job=JobFacts(60.0, 0)))
    assert all_answered.recommendation.choice("deadline") == "4 s"
    assert "median delay of every client over its accepted uploads" in reason(all_answered, "deadline")
    assert not any("never answered" in warning for warning in all_answered.recommendation.warnings)


def test_a_cohort_that_is_never_available() -> None:
    table = random_fleet(np.full(50, 0.3))
    known: dict[str, Any] = {"round_seconds": 1800, "delays": np.full(50, 5.0)}
    large = diagnose(fleet(table, **known), Training(cohort_size=45))
    assert "A cohort of 45 clients is never available: at most" in " ".join(large.recommendation.warnings)
    assert "no round with a full cohort is possible" in reason(large, "deadline")
    often = diagnose(fleet(table, **known), Training(cohort_size=15))
    assert "A cohort of 15 clients is often not available" in " ".join(often.recommendation.warnings)
    assert diagnose(fleet(table, **known)).recommendation.warnings == []


def test_the_resonance_of_many_clients_is_not_computed() -> None:
    table = np.ones((16, 200_000), bool)
    assert resonance_facts(fleet(table), cohort_size=10) is None
    table[1::2, :100_000] = False
    assert "the fleet is too large to compute" in reason(diagnose(fleet(table)), "step")


def test_a_diagnosis_is_read_as_it_was_written(tmp_path: Path) -> None:
    rates = np.linspace(0.1, 0.9, 30)
    known: dict[str, Any] = {"labels": ["a", "b", "c"] * 10, "sizes": np.arange(1.0, 31), "delays": np.full(30, 5.0)}
    table = random_fleet(rates)
    for found in (diagnose(fleet(table)), diagnose(fleet(table, round_seconds=1800, **known))):
        write_diagnosis(found, tmp_path)
        assert read_diagnosis(tmp_path) == found
    content = json.loads((tmp_path / "diagnosis.json").read_text())
    assert content["known"] == ["labels", "sizes", "delays"]
    content["format"] = 99
    (tmp_path / "diagnosis.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"format 99; run `fedlatest diagnose` again"):
        read_diagnosis(tmp_path)
    (tmp_path / "diagnosis.json").write_text('{"format": 1}')
    with pytest.raises(DataError, match="cannot be read as a diagnosis"):
        read_diagnosis(tmp_path)


@pytest.mark.parametrize(
    "training",
    [Training(cohort_size=0), Training(cohort_size=99), Training(num_local_steps=0), Training(learning_rate=-1.0),
     Training(curvature=float("nan")), Training(deadline=0.0)],
)  # fmt: skip
def test_numbers_out_of_range(training: Training) -> None:
    with pytest.raises(ConfigError):
        diagnose(fleet(np.ones((10, 4), bool)), training)
