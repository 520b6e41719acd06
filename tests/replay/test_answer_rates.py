"""Clients that a replay asks and the job did not ask fail as often as those that the job asked."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fedlatest
from fedlatest.experiments import RECIPES
from fedlatest.ledger.durations import OUTCOMES
from fedlatest.replay import RecordedFleet, make_schedule, plan_replay, read_recorded_fleet
from fedlatest.replay.recorded_outcomes import outcomes_of
from fedlatest.simulation import simulate_spec
from tests.replay.recorded_job import RecordedJob

LOST = 0.4


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> RecordedFleet:
    """Return the record of a job in which uploads are lost at random."""
    chances = {"declined": 0, "slow": 0, "lost": LOST, "offline": 0}
    folder: Path = tmp_path_factory.mktemp("job")
    return read_recorded_fleet(RecordedJob(folder, num_clients=16, cohort_size=4, chances=chances).run(120))


def test_another_algorithm_gets_as_many_answers(fleet: RecordedFleet) -> None:
    recorded = fleet.took_part.sum() / fleet.asked.sum()
    assert recorded == pytest.approx(1 - LOST, abs=0.05)
    fedavg, rates = fedlatest.fedavg(weighting="none"), []
    for seed in range(3):
        schedule = make_schedule(fedavg, fleet, outcomes_of(fleet, seed=seed))
        assert (schedule.asked & ~fleet.asked).sum() > 100
        rates.append(schedule.answered.sum() / schedule.asked.sum())
    assert np.mean(rates) == pytest.approx(recorded, abs=0.03)


def test_missed_reply_lasts_until_the_deadline(fleet: RecordedFleet) -> None:
    outcomes = outcomes_of(fleet, seed=0)
    lost = fleet.reachable & ~fleet.asked & outcomes.fails
    assert lost.sum() > 100
    deadline = np.array([each.deadline for each in fleet.rounds])[:, None]
    assert (outcomes.seconds >= deadline)[lost].all()


def test_client_that_never_answered_does_not_answer(fleet: RecordedFleet) -> None:
    tasks, own = fleet.tasks, fleet.tasks.client == 3
    missed = tasks._replace(
        answered=np.where(own, np.nan, tasks.answered),
        outcome=np.where(own, OUTCOMES.index("missed"), tasks.outcome).astype(np.uint8),
    )
    outcomes = outcomes_of(replace(fleet, tasks=missed), seed=0)
    assert outcomes.fails[:, 3].all()
    assert not outcomes.fails[:, 4].all()


def test_client_without_a_task_behaves_like_any_client(fleet: RecordedFleet) -> None:
    outcomes = outcomes_of(replace(fleet, tasks=fleet.tasks.where(fleet.tasks.client != 3)), seed=0)
    assert outcomes.fails[fleet.reachable[:, 3], 3].mean() == pytest.approx(LOST, abs=0.12)


def test_clients_that_went_offline_are_not_counted_twice(fleet: RecordedFleet) -> None:
    """A fifth of the clients that could be asked has gone at the end: this explains a part of the missed replies."""
    could_be_asked = fleet.candidates & ~fleet.asked
    gone = could_be_asked & (np.random.default_rng(0).random(could_be_asked.shape) < 0.2)
    outcomes = outcomes_of(replace(fleet, reachable=fleet.reachable & ~gone), seed=0)
    assert outcomes.fails[could_be_asked].mean() == pytest.approx(fleet.tasks.have("missed").mean(), abs=0.03)


def test_asynchronous_algorithm_gets_as_many_answers(fleet: RecordedFleet) -> None:
    recipe = RECIPES["digits"]
    plan = plan_replay(fleet, recipe.load(None), recipe.defaults, algorithms=["fedbuff:buffer=4"])
    metrics = simulate_spec(plan.runs[0].spec).metrics
    asked, merged = (metrics.column(name)[0, -1] for name in ("downloads", "merged"))
    assert asked > 300
    assert merged / asked == pytest.approx(1 - LOST, abs=0.05)
