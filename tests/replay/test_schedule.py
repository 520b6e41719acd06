"""Who would have been asked and answered: exact for the job's own algorithm, on jobs with many faults."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedlatest
from fedlatest.algorithms import ALGORITHMS, Algorithm
from fedlatest.algorithms.base import Cohort, RoundFacts
from fedlatest.algorithms.fedavg import select_uniformly
from fedlatest.errors import LedgerError
from fedlatest.experiments import RECIPES
from fedlatest.flower import SecureAggregation
from fedlatest.ledger.database import Database
from fedlatest.ledger.durations import OUTCOMES
from fedlatest.replay import RecordedFleet, make_schedule, plan_replay, read_recorded_fleet
from fedlatest.replay.agreement import agreement
from fedlatest.replay.recorded_outcomes import outcomes_of, task_durations
from fedlatest.replay.schedule import depends_on_server
from tests.replay.recorded_job import RecordedJob

ROUNDS = 30
OWN = {
    "fedlaavg": fedlatest.fedlaavg(weighting="update", empty_round="hold"),
    "weighted": fedlatest.fedlaavg(weighting="update", empty_round="hold", selection="weighted"),
    "fedavg": fedlatest.fedavg(weighting="none"),
}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> RecordedFleet:
    """Return the record of a job with FedLaAvg and many lost replies."""
    return read_recorded_fleet(RecordedJob(tmp_path_factory.mktemp("job"), chances={"lost": 0.2}).run(ROUNDS))


def schedule_of(fleet: RecordedFleet, algorithm: Algorithm, *, seed: int = 0) -> tuple[float, float]:
    """Return the shares of rounds in which a replay asks the same clients, and in which the same answer."""
    schedule = make_schedule(algorithm, fleet, outcomes_of(fleet, seed=seed))
    found = agreement(fleet, schedule.asked, schedule.answered)
    return found.asked, found.answered


@pytest.mark.parametrize("name", OWN)
def test_own_algorithm_repeats_every_round(name: str, tmp_path: Path) -> None:
    """Clients decline, go offline, lose replies, answer late and join later; the server crashes once in a round."""
    job = RecordedJob(tmp_path / "job", algorithm=OWN[name])
    job.run_rounds(10)
    job.crash()
    fleet = read_recorded_fleet(job.run(ROUNDS - 10))
    outcomes = Counter(OUTCOMES[number] for number in fleet.tasks.outcome)
    assert min(outcomes[kind] for kind in ("accepted", "late", "declined", "missed")) >= 2
    assert max(len(each.times) for each in fleet.rounds) >= 2, "no client was replaced"
    schedule = make_schedule(OWN[name], fleet, outcomes_of(fleet, seed=0))
    assert agreement(fleet, schedule.asked, schedule.answered) == (1.0, 1.0, 1.0, ROUNDS)
    lengths = np.where(schedule.waited_for, schedule.seconds, 0.0).max(axis=1)
    assert lengths == pytest.approx(fleet.lengths, abs=0.002)


def test_other_algorithm_or_seed_asks_others(fleet: RecordedFleet) -> None:
    """The agreement can fail: FedAvg on the record of FedLaAvg, and the job's algorithm with another seed."""
    assert schedule_of(fleet, OWN["fedlaavg"]) == (1.0, 1.0)
    assert max(schedule_of(fleet, OWN["fedavg"])) < 0.95
    other_seed = replace(fleet, config=replace(fleet.config, seed=99))
    assert max(schedule_of(other_seed, OWN["fedlaavg"])) < 0.95


def test_clients_that_did_not_answer_do_not_answer_in_the_replay(fleet: RecordedFleet) -> None:
    """Also under another algorithm: what is recorded for a client and a round holds whoever asks it."""
    outcomes = outcomes_of(fleet, seed=3)
    for name in ("missed", "declined", "late"):
        chosen = fleet.tasks.have(name)
        assert chosen.any()
        assert outcomes.fails[fleet.task_rounds[chosen], fleet.tasks.client[chosen]].all()
    schedule = make_schedule(OWN["fedavg"], fleet, outcomes)
    in_time = schedule.answered & schedule.asked
    assert not (in_time & fleet.asked & ~fleet.took_part).any()
    assert (schedule.asked.sum(axis=1) >= 1).any()
    assert not (schedule.asked & ~(fleet.candidates | fleet.asked)).any()


def test_durations_of_clients_that_were_not_asked_are_their_own(tmp_path: Path) -> None:
    job = RecordedJob(tmp_path / "job", chances={"declined": 0, "lost": 0, "slow": 0})
    fleet = read_recorded_fleet(job.run(ROUNDS))
    outcomes = outcomes_of(fleet, seed=0)
    again, other = outcomes_of(fleet, seed=0), outcomes_of(fleet, seed=1)
    np.testing.assert_array_equal(outcomes.seconds, again.seconds)
    assert (outcomes.seconds != other.seconds).any()
    own = task_durations(fleet).seconds
    first = np.array([each.times[0] - each.began if len(each.times) else 0.0 for each in fleet.rounds])
    free = fleet.reachable & ~fleet.asked
    assert free.sum() > 50
    last = np.where(fleet.asked, outcomes.seconds, 0.0).max(axis=1)
    np.testing.assert_allclose(last, np.where(fleet.asked.any(axis=1), fleet.lengths, 0.0), atol=0.002)
    for position, client in np.argwhere(free & ~outcomes.fails):
        drawn = outcomes.seconds[position, client] - first[position]
        assert np.isclose(own[client], drawn, atol=0.002).any()
    assert not (~outcomes.fails & ~fleet.reachable & ~fleet.asked).any()


def test_algorithms_that_select_by_the_state_of_the_server() -> None:
    found = {name for name, factory in ALGORITHMS.items() if depends_on_server(factory())}
    assert found == {"ca_fed", "f3ast", "flexible", "naive"}


@pytest.mark.parametrize("read", [lambda server: server["rates"], lambda server: server[0], jnp.sum])
def test_state_of_the_server_may_have_any_type(read: Callable[[Any], Any]) -> None:
    def select(server: Any, available: jax.Array, facts: RoundFacts) -> Cohort:
        return select_uniformly(server, available & (read(server) > 0), facts)

    assert depends_on_server(replace(OWN["fedavg"], select=select))
    assert not depends_on_server(OWN["fedavg"])


def test_job_of_an_earlier_version_has_no_record(tmp_path: Path) -> None:
    ledger = RecordedJob(tmp_path / "job").run(1)
    database = Database.open(ledger)
    database.execute("DELETE FROM tasks")
    database.close()
    with pytest.raises(LedgerError, match="records nobody who was asked to train; run some rounds"):
        read_recorded_fleet(ledger)


def test_record_that_starts_in_a_later_round(tmp_path: Path) -> None:
    """An earlier version ran the first ten rounds: who took part in them is known, who was asked is not."""
    ledger = RecordedJob(tmp_path / "job").run(ROUNDS)
    database = Database.open(ledger)
    database.execute("DELETE FROM tasks WHERE round < 10")
    database.close()
    fleet = read_recorded_fleet(ledger)
    assert (fleet.num_rounds, fleet.rounds[0].round) == (ROUNDS - 10, 10)
    asked, answered = schedule_of(fleet, OWN["fedlaavg"])
    assert asked == 1.0
    assert answered >= 1 - 3 / fleet.num_rounds  # a reply to a request of round 9 or earlier may have arrived late


@pytest.mark.parametrize(("missing", "first", "end"), [("10, 11, 17", 18, 30), ("5, 28, 29", 6, 28)])
def test_record_with_a_gap(tmp_path: Path, missing: str, first: int, end: int) -> None:
    """An earlier version ran some rounds in between or at the end: the last rounds without a gap are replayed."""
    ledger = RecordedJob(tmp_path / "job").run(ROUNDS)
    database = Database.open(ledger)
    database.execute(f"DELETE FROM tasks WHERE round IN ({missing})")
    database.close()
    fleet = read_recorded_fleet(ledger)
    assert [each.round for each in fleet.rounds] == list(range(first, end))
    assert {len(fleet.available), len(fleet.took_part), len(fleet.reachable)} == {end - first}
    asked, answered = schedule_of(fleet, OWN["fedlaavg"])
    assert asked == 1.0
    assert answered >= 1 - 3 / fleet.num_rounds  # a reply to a request of an earlier round may have arrived late
    recipe = RECIPES["digits"]
    plan = plan_replay(fleet, recipe.load(None), recipe.defaults, algorithms=["fedavg"])
    assert f"only rounds {first} .. {end - 1} of 30: an earlier version of fedlatest has run others" in plan.recorded


def test_secure_job(tmp_path: Path) -> None:
    """All clients of a session are asked at once; late uploads are refused; numbers of samples are not known."""
    chances = {"offline": 0.1, "slow": 0.03, "lost": 0.03, "declined": 0.05}
    secure = SecureAggregation(min_cohort=3)
    job = RecordedJob(tmp_path / "job", cohort_size=4, secure=secure, chances=chances, seed=0)
    fleet = read_recorded_fleet(job.run(20))
    assert fleet.tasks.have("collected").any(), "no session failed"
    assert np.isnan(fleet.tasks.training_seconds).all()
    assert not fleet.weights.any()
    schedule = make_schedule(job.strategy.algorithm, fleet, outcomes_of(fleet, seed=0))
    assert agreement(fleet, schedule.asked, schedule.answered).both == 1.0
    lengths = np.where(schedule.waited_for, schedule.seconds, 0.0).max(axis=1)
    assert lengths == pytest.approx(fleet.lengths, abs=0.002)  # with the time that unmasking takes
