"""Records about clients that are computed from a table [rounds, clients]."""

import tracemalloc

import numpy as np
import pytest

from fedlatest.runs.clients import assumption_of_table, clients_of_table, join, pack_table


@pytest.mark.parametrize(
    ("rounds_available", "smallest_e"),
    [
        ([[0, 1, 2, 3]], 1),  # never absent
        ([[0, 3]], 3),  # absent in rounds 1 and 2
        ([[3]], 4),  # absent in rounds 0 to 2
        ([[0]], 4),  # absent in rounds 1 to 3
        ([[0, 1, 2, 3], [1]], 3),  # the second client is absent in rounds 2 and 3
    ],
)
def test_smallest_e_is_the_longest_absence_plus_one(rounds_available: list[list[int]], smallest_e: int) -> None:
    table = np.zeros((4, len(rounds_available)), bool)
    for client, rounds in enumerate(rounds_available):
        table[rounds, client] = True
    facts = assumption_of_table(table)
    assert facts == {
        "smallest_e": smallest_e, "assumption_holds": True, "num_never_available": 0, "never_available": [],
    }  # fmt: skip


def test_a_client_that_is_never_available_breaks_the_assumption() -> None:
    """Of 12 such clients the first 10 are listed."""
    table = np.zeros((3, 13), bool)
    table[:, 4] = True
    facts = assumption_of_table(table)
    assert facts["smallest_e"] is None
    assert facts["assumption_holds"] is False
    assert facts["num_never_available"] == 12
    assert facts["never_available"] == [0, 1, 2, 3, 5, 6, 7, 8, 9, 10]


def test_picture_of_a_small_table_is_exact() -> None:
    """One cell per client and round: 255 if available, 0 if not; rows are clients."""
    table = np.array([[True, False], [True, True], [False, True]])
    clients = clients_of_table(table)
    assert clients.available.tolist() == [[255, 255, 0], [0, 255, 255]]
    assert clients.row_edges.tolist() == [0, 1, 2]
    assert clients.column_edges.tolist() == [0, 1, 2, 3]
    assert clients.order.tolist() == [0, 1]


def test_picture_of_a_large_table_holds_shares() -> None:
    """240 clients in 120 rows, 800 rounds in 400 columns: a cell is 2 x 2 pairs, of which half are available."""
    table = np.zeros((800, 240), bool)
    table[:, ::2] = True
    clients = clients_of_table(table)
    assert clients.available.shape == (120, 400)
    assert (clients.available == round(255 / 2)).all()


def test_cohorts_of_a_table() -> None:
    first, second = (np.array(rows, bool) for rows in ([[1, 0, 1], [0, 0, 0]], [[0, 1, 0]]))
    cohorts = join([pack_table(first), pack_table(second)])
    assert [cohorts.cohort(seed=0, round=round).tolist() for round in range(3)] == [[0, 2], [], [1]]


def test_cohorts_of_a_large_table_need_little_memory() -> None:
    """5000 rounds of 10,000 clients are a table of 50 MB; with positions of 8 bytes they took 16 times as much."""
    table = np.zeros((1000, 2000), bool)
    table[:, :5] = True
    tracemalloc.start()
    try:
        cohorts = pack_table(table)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < table.nbytes
    assert cohorts.cohort(seed=0, round=999).tolist() == [0, 1, 2, 3, 4]
