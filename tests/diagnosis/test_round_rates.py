"""Rounds per day, against closed forms and against a loop over events."""

import numpy as np
import pytest

from fedlatest.diagnosis import Fleet, RoundRate, fleet_of_spells
from fedlatest.diagnosis.round_rates import round_rates
from tests.diagnosis.fleets import fleet

SECONDS = 6 * 3600.0


def always(delays: list[float]) -> Fleet:
    """Return clients that are available for ten days, with delays in seconds."""
    return fleet(np.ones((240, len(delays)), bool), round_seconds=3600, delays=np.array(delays))


def one(found: Fleet, cohort_size: int, deadline: float | None) -> RoundRate:
    [rate] = round_rates(found, cohort_sizes=[cohort_size], deadlines=[deadline])
    return rate


def test_all_clients_in_the_cohort() -> None:
    """The slowest of the clients determines the length of a round, or the deadline does."""
    rate = one(always([10, 20, 60]), 3, None)
    assert (rate.rounds_per_day, rate.seconds, rate.num_excluded) == pytest.approx((1440, 60, 0), rel=1e-3)
    assert rate.answers == pytest.approx(1, abs=0.01)
    limited = one(always([10, 20, 60]), 3, 30)
    assert limited.rounds_per_day == pytest.approx(2880, rel=1e-3)
    assert limited.answers == pytest.approx(2 / 3, abs=0.01)
    assert limited.num_excluded == 1


def test_random_cohorts_of_one() -> None:
    """The mean length of a round is the mean delay: 86,400 / 20 rounds per day."""
    assert one(always([10, 30]), 1, None).rounds_per_day == pytest.approx(4320, rel=0.02)


def test_too_few_clients() -> None:
    rate = one(always([10, 20]), 2, None)
    assert rate.possible == 1
    part = fleet(np.tile([[True, True], [True, False]], (12, 1)), round_seconds=3600, delays=np.array([36.0, 36.0]))
    half = one(part, 2, None)
    assert half.possible == pytest.approx(0.5, abs=0.01)
    assert half.rounds_per_day == pytest.approx(1200, rel=0.02)
    assert one(part, 2, 5).answers == 0


def simulate(spells: list[tuple[int, float, float]], delays: list[float], size: int, deadline: float) -> float:
    """Return the rounds in a day by a loop over rounds, with a client that leaves being noticed at that moment."""
    rng, now, rounds = np.random.default_rng(5), 0.0, 0
    while now < SECONDS:
        stays = {client: end - now for client, start, end in spells if start <= now < end}
        if len(stays) < size:
            now += 1
            continue
        cohort = rng.permutation(sorted(stays))[:size]
        now += min(max(min(stays[client], delays[client]) for client in cohort), deadline)
        rounds += 1
    return rounds * 86400 / SECONDS


@pytest.mark.parametrize(("size", "deadline"), [(2, 100.0), (4, 100.0), (4, 9.0)])
def test_rounds_agree_with_a_loop_over_events(size: int, deadline: float) -> None:
    rng = np.random.default_rng(2)
    delays = rng.integers(2, 30, 12).astype(float).tolist()
    spells = []
    for client in range(12):
        time = float(rng.integers(0, 600))
        while time < SECONDS:
            end = time + float(rng.integers(200, 2000))
            spells.append((client, time, min(end, SECONDS)))
            time = end + float(rng.integers(100, 3000))
    clients, starts, ends = (np.array(column) for column in zip(*spells, strict=True))
    made = fleet_of_spells(
        clients, starts, ends, names=[str(client) for client in range(12)], source="", unit=1, round_length=60
    )
    found = one(Fleet(**{**vars(made), "delays": np.array(delays)}), size, deadline)
    assert found.rounds_per_day == pytest.approx(simulate(spells, delays, size, deadline), rel=0.06)
