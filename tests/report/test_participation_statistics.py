"""Statistics of cohorts, on hand-written cohorts and against their definition."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlatest.report import read_runs, write_page
from fedlatest.report.participation_statistics import (
    jain_index,
    participation_counts,
    participation_picture,
    staleness_counts,
)
from tests.report.recorded_runs import FOUR_CLIENTS, FOUR_ROUNDS, cohorts, data_of, finish, write_run


def test_staleness_by_hand() -> None:
    """Three clients and four rounds with the cohorts {0}, {0, 1}, {} and {1}. Staleness after the selection:

    client 0: 0 0 1 2; client 1: 1 0 1 0 (r + 1 = 1 in round 0); client 2, which never takes part: 1 2 3 4.
    0 occurs 4 times, 1 4 times, 2 twice, 3 and 4 once: 12 pairs of three clients and four rounds.
    """
    once = [[0], [0, 1], [], [1]]
    assert staleness_counts(cohorts(once), 3).tolist() == [4, 4, 2, 1, 1]
    assert staleness_counts(cohorts(once, once), 3).tolist() == [8, 8, 4, 2, 2]
    assert staleness_counts(cohorts([[0], [0]]), 1).tolist() == [2]


@given(st.lists(st.lists(st.integers(0, 4), unique=True).map(sorted), min_size=1, max_size=12))
def test_staleness_matches_the_definition(rounds: list[list[int]]) -> None:
    """Compare with r - R_i, computed for each client and round."""
    last, seen = [-1] * 5, []
    for round, clients in enumerate(rounds):
        for client in clients:
            last[client] = round
        seen += [round - before for before in last]
    assert staleness_counts(cohorts(rounds), 5).tolist() == np.bincount(seen).tolist()


def test_picture_by_hand() -> None:
    """Row 0 is clients 1 and 3, row 1 clients 0 and 2; a column is two rounds, so a cell has four pairs.

    Client 1 took part in rounds 0 and 1 (2/4), 3 in round 2 (1/4), 0 in round 0 (1/4), 0 and 2 in round 3 (2/4).
    """
    assert participation_picture(FOUR_ROUNDS, FOUR_CLIENTS).tolist() == [[0.5, 0.25], [0.25, 0.5]]
    # By time, rounds 0 to 2 take place in rounds 0 and 1 of the model, and round 3 after the picture.
    by_time = participation_picture(FOUR_ROUNDS, FOUR_CLIENTS, model_rounds=np.array([0, 0, 1, 9]))
    assert by_time.tolist() == [[0.75, 0.0], [0.25, 0.0]]


def test_shares_by_hand(tmp_path: Path) -> None:
    """Clients took part 2, 2, 1, 1 times of 6: 4/3, 4/3, 2/3, 2/3 of an equal share (1/4); Jain 36 / (4 * 10) = 0.9.

    Clients 1 and 3 have label 0 and 3 of the 6 participations, like clients 0 and 2, which have label 1.
    """
    assert participation_counts(FOUR_ROUNDS, 4).tolist() == [[2, 2, 1, 1]]
    assert jain_index(np.array([2, 2, 1, 1])) == pytest.approx(0.9)
    finish(write_run(tmp_path / "a"))
    [run] = data_of(write_page(read_runs([tmp_path]), tmp_path / "page.html"))["runs"]
    shown = run["participation"]
    assert shown["times_fair"] == [0.666667, 0.666667, 1.33333, 1.33333]
    assert shown["jain"] == 0.9
    assert shown["by_label"] == {"labels": [0, 1], "clients": [0.5, 0.5], "took_part": [0.5, 0.5]}
