"""The table of the diagnosis of the arena's cases: what it reads from the leaderboards, and that the docs show it."""

import pytest
from benchmarks.diagnosis_cases import HEAD, LEADERBOARDS, behind

from fedlatest.experiments.arena_choices import CASES


def test_points_behind_the_best_method() -> None:
    points = behind(LEADERBOARDS.read_text(encoding="utf-8"))
    assert list(points) == list(CASES)
    assert points["always"] == pytest.approx(0.7)
    assert points["departures"] == pytest.approx(28.9)


def test_the_docs_have_a_row_for_every_case() -> None:
    text = LEADERBOARDS.with_name("diagnose.md").read_text(encoding="utf-8")
    assert f"| {' | '.join(HEAD)} |" in text
    points = behind(LEADERBOARDS.read_text(encoding="utf-8"))
    for case in CASES:
        assert f"| `{case}` | {points[case]:.1f} |" in text
