"""A private job in one process: which noise is in the model, what is recorded, and what is refused."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlatest.algorithms import fedavg, fedlaavg, fedvarp
from fedlatest.errors import BudgetError, ConfigError, LedgerError
from fedlatest.flower import ClientResult, FedLaAvg, LocalGrid, SecureAggregation, Timeouts, client_app, to_record
from fedlatest.flower.private_sums import noise_of_round, standard_normals
from fedlatest.ledger.backup import back_up, restore
from fedlatest.ledger.durations import read_tasks
from fedlatest.privacy import NoisePlan, Privacy
from tests.flower.small_job import INITIAL, SmallJob, towards

UNIT = 2.0**-24


def guarantee(**changes: Any) -> Privacy:
    return Privacy(**{"epsilon": 5.0, "delta": 1e-3, "clip_norm": 1.0, "rounds": 6, **changes})


def job_with(folder: Path, privacy: Privacy | None = None, **options: Any) -> SmallJob:
    return SmallJob(folder, privacy=privacy or guarantee(), **options)


def steps(job: SmallJob, num: int) -> tuple[list[Any], list[Any]]:
    """Run rounds; return how the model moved in each of them, and the exact sum after each of them."""
    moves, totals = [], []
    for _ in range(num):
        before = job.loop.model["w"].copy()
        job.run_round()
        moves.append(job.loop.model["w"] - before)
        totals.append(job.ledger.total * UNIT)
    return moves, totals


def noise(job: SmallJob, num: int) -> list[Any]:
    """Return the noise of the first rounds, computed from the seeds in the ledger, in units rounded by hand."""
    assert job.ledger.noise_plan is not None
    plan = NoisePlan.from_dict(job.ledger.noise_plan)
    seeds = [seed for (seed,) in job.ledger.database.rows("SELECT noise_seed FROM rounds ORDER BY round")]
    normals = [standard_normals(seed, 3) for seed in seeds]
    coefficients = (1.0,) if plan.mechanism == "total" else plan.coefficients
    return [
        np.rint(plan.stddev * sum(a * normals[r - j] for j, a in enumerate(coefficients) if j <= r) / UNIT) * UNIT
        for r in range(num)
    ]


def test_model_moves_by_the_noisy_total(tmp_path: Path) -> None:
    """x = x + (total + noise) / N, where the total in the ledger is exact and the noise is that of the stored seeds."""
    job = job_with(tmp_path)
    moves, totals = steps(job, 3)
    for move, total, added in zip(moves, totals, noise(job, 3), strict=True):
        assert np.linalg.norm(added) > 0.1
        np.testing.assert_allclose(move, (total + added) / 3, rtol=1e-4, atol=1e-5)
    assert job.audit().holds
    assert all(np.linalg.norm(total) <= 3 for total in totals)  # three clients with a norm of 1


@pytest.mark.parametrize("mechanism", ["independent", "correlated"])
def test_fresh_updates_get_the_noise_of_the_plan_also_over_a_restart(tmp_path: Path, mechanism: Any) -> None:
    """One client per round: x = x + clipped update + noise, where the noise of the plan continues after a restart."""
    privacy = guarantee(mechanism=mechanism, rounds=30, min_separation=3, max_participations=2)
    job = job_with(tmp_path, privacy, algorithm=fedavg(weighting="none"), cohort_size=1)
    assert job.ledger.noise_plan is not None
    plan = NoisePlan.from_dict(job.ledger.noise_plan)
    assert (len(plan.coefficients) > 1) == (mechanism == "correlated")
    models, cohorts = [np.zeros(3)], []
    for _ in range(3):
        cohorts += job.run_round("abc").accepted
        models.append(job.loop.model["w"].astype(np.float64))
        job.ledger.close()
        job.reopen()
    assert sorted(cohorts) == ["a", "b", "c"]
    for round, added in enumerate(noise(job, 3)):
        before, goal = models[round], "abc".index(cohorts[round]) + 1
        np.testing.assert_allclose(models[round + 1] - before, _clipped((goal - before) / 2) + added, atol=1e-4)


def _clipped(update: Any) -> Any:
    return update / max(1.0, float(np.linalg.norm(update)))


def test_noise_has_the_standard_deviation_of_the_plan(tmp_path: Path) -> None:
    job = job_with(tmp_path)
    assert job.ledger.noise_plan is not None
    plan = NoisePlan.from_dict(job.ledger.noise_plan)
    drawn = np.array([noise_of_round(plan, job.ledger, f"{seed:x}") for seed in range(1000)]) * UNIT
    assert abs(drawn.std() / plan.stddev - 1) < 0.05
    assert abs(drawn.mean()) < 4 * plan.stddev / math.sqrt(drawn.size)


def test_job_runs_to_its_last_round_and_no_further(tmp_path: Path) -> None:
    strategy = FedLaAvg(
        job=tmp_path / "job",
        cohort_size=2,
        privacy=guarantee(rounds=2, epsilon=5),
        timeouts=Timeouts(deadline=5, poll=0.01),
    )
    grid = LocalGrid()
    for number, name in enumerate("ab"):
        grid.add(client_app(towards(number + 1)), {"state-dir": str(tmp_path / name), "name": name})
    with pytest.raises(ConfigError, match="num_rounds=3: the privacy budget of the job is for 2 rounds"):
        strategy.start(grid, to_record(INITIAL), num_rounds=3)
    result = strategy.start(grid, to_record(INITIAL), num_rounds=2)
    same = FedLaAvg(job=tmp_path / "job", cohort_size=2, privacy=guarantee(rounds=2, epsilon=5.0))
    assert same.config.hash == strategy.config.hash
    assert all(not metrics for metrics in result.train_metrics_clientapp.values())
    other = FedLaAvg(job=tmp_path / "job", cohort_size=2, privacy=guarantee(rounds=9))
    with pytest.raises(LedgerError, match="the privacy settings of a job cannot change"):
        other.start(grid, to_record(INITIAL), num_rounds=3)


def test_round_beyond_the_budget_is_refused_before_anyone_is_asked(tmp_path: Path) -> None:
    job = job_with(tmp_path, guarantee(rounds=1))
    job.run_round()
    with pytest.raises(BudgetError, match="the privacy budget is spent: 1 rounds were released, 1 are allowed"):
        job.run_round()
    assert [event["round"] for event in job.events("round")] == [0]


def test_round_without_participations_left_is_refused(tmp_path: Path) -> None:
    job = job_with(tmp_path, guarantee(max_participations=1))
    job.run_round()
    with pytest.raises(BudgetError, match="each of the 3 clients has taken part in 1 rounds, which is the maximum"):
        job.run_round()


def test_clients_are_selected_with_the_least_separation(tmp_path: Path) -> None:
    job = job_with(tmp_path, guarantee(min_separation=3), cohort_size=1)
    cohorts = [job.run_round().accepted for _ in range(6)]
    assert sorted(client for cohort in cohorts[:3] for client in cohort) == ["a", "b", "c"]
    assert cohorts[:3] == cohorts[3:]


def test_metrics_are_recorded_only_if_the_job_allows_it(tmp_path: Path) -> None:
    job = job_with(tmp_path / "private")
    assert job.run_round().metrics == {}
    assert [event["train_loss"] for event in job.events("merged")] == [None]
    job = job_with(tmp_path / "shared", share_metrics=True)
    assert job.run_round().metrics == {"train_loss": 1.0}


@pytest.mark.parametrize("kind", ["private", "secure"])
def test_server_records_nothing_that_the_job_does_not_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Clients that send metrics and training seconds all the same, because they take the job for another one."""
    options: Any = {"privacy": guarantee()} if kind == "private" else {"secure": SecureAggregation(min_cohort=3)}
    job = SmallJob(tmp_path, clients="abc", cohort_size=3, **options)
    monkeypatch.setattr("fedlatest.ledger.client.shares_metrics", lambda *settings: True)
    assert job.run_round().metrics == {}
    tasks = read_tasks(job.ledger.database)
    assert tasks.have("accepted").tolist() == [True] * 3
    assert np.isnan(tasks.training_seconds).all()


def test_repeated_round_after_a_restore_has_other_noise_and_counts(tmp_path: Path) -> None:
    job = job_with(tmp_path)
    ledger = tmp_path / "job/ledger.sqlite"
    job.run_round()
    back_up(ledger, tmp_path / "copy")
    job.run_round()
    first = job.ledger.noise_seed(1)
    job.ledger.close()
    restore(ledger, tmp_path / "copy")
    job.reopen()
    job.run_round()
    assert (job.ledger.round, job.ledger.releases) == (2, 3)
    assert job.ledger.noise_seed(1) not in (None, first)


def test_new_epoch_and_goodbye_do_not_reset_the_releases(tmp_path: Path) -> None:
    job = job_with(tmp_path)
    job.run_round()
    job.ledger.resync()
    assert job.store("a").leave(job.ledger.job)
    job.reopen()
    job.run_round()
    assert (job.ledger.releases, job.member("b").participations) == (2, 2)
    assert job.audit().holds


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algorithm": fedlaavg(weighting="update", empty_round="hold")}, "weighting='update' uses the clients'"),
        ({"algorithm": fedvarp(weighting="none")}, "fedvarp .* uses the round's differences"),
        ({"algorithm": fedlaavg(weighting="none", fresh="cohort")}, "uses the round's differences beside the total"),
        ({"clip_norm": 2.0}, "clip_norm=2.0: the privacy settings have their own"),
        (
            {"evaluate_nodes_every": 2},
            "evaluate_nodes_every=2: .* sends their metrics to the server, which are not private",
        ),
        (
            {"evaluate_nodes_every": 2, "secure": SecureAggregation(share_metrics=True), "cohort_size": 3},
            "allow it with share_metrics=True, or set 0",
        ),
    ],
)
def test_settings_that_break_the_guarantee_are_refused(tmp_path: Path, options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FedLaAvg(job=tmp_path, **{"cohort_size": 1, "privacy": guarantee(), **options})


def test_with_secure_aggregation(tmp_path: Path) -> None:
    """The masked sum is exact and gets the same kind of noise; limits of participation hold, and a client can leave
    after its last participation, which starts a new epoch."""
    privacy = guarantee(rounds=12, min_separation=2, max_participations=2)
    job = job_with(tmp_path, privacy, clients="abcdef", cohort_size=3, secure=SecureAggregation(2, 4))
    moves, totals = steps(job, 4)
    sizes = [3, 6, 6, 6]
    for move, total, added, size in zip(moves, totals, noise(job, 4), sizes, strict=True):
        np.testing.assert_allclose(move, (total + added) / size, rtol=1e-4, atol=1e-5)
    assert {client.participations for client in job.ledger.clients()} == {2}
    with pytest.raises(BudgetError, match="each of the 6 clients has taken part in 2 rounds"):
        job.run_round()
    for name in "gh":
        job.add(name, client_app(towards(1)))
    assert job.store("a").leave(job.ledger.job)
    job.messages.forget("a")
    job.loop.wait_for_clients(8, timeout=5)
    outcome = job.run_round()
    assert sorted(outcome.accepted) == ["g", "h"]
    assert [client.id for client in job.ledger.clients()] == list("bcdefgh")
    audit = job.audit()
    assert (audit.epoch, audit.in_sum, audit.holds) == (2, [], True)
    job.run_round()
    job.run_round()
    assert sorted(job.audit().in_sum) == ["g", "h"]  # the others have used up their participations
    assert job.audit().holds


def test_server_sees_exact_sums_which_can_reveal_an_update(tmp_path: Path) -> None:
    """Who sees only models is protected by the noise; the server adds it, and so it sees the sums without it.

    All clients repeat their update, and only d is new in the second round: the sums over three clients each differ by
    its update. docs/privacy.md must not promise that differential privacy covers this.
    """

    def always(move: float) -> Any:
        return lambda weights, task: ClientResult(1, {}, {name: part + move for name, part in weights.items()})

    settings = SecureAggregation(min_cohort=3, num_decryptors=4)
    job = job_with(tmp_path, clients="", secure=settings, cohort_size=3)
    for number, name in enumerate("abcd", start=1):
        job.add(name, client_app(always(number / 8)))
    totals = []
    for online in ("abc", "bcd"):
        assert sorted(job.run_round(online).accepted) == list(online)
        totals.append(job.ledger.total * UNIT)
    assert (totals[1] - totals[0]).tolist() == [0.5, 0.5, 0.5], "the update of d, exactly"
    assert job.ledger.noise_plan is not None
    assert NoisePlan.from_dict(job.ledger.noise_plan).stddev > 1.0, "the noise in the model is larger than any update"
