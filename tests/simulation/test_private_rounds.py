"""Differential privacy in the simulator: against a slow reference, its noise, its limits, and its exact edge cases."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpy.typing as npt
import pytest

from fedlatest import (
    Algorithm,
    ConfigError,
    Progress,
    Result,
    RunFolderError,
    always,
    bernoulli,
    fedadam,
    fedavg,
    fedlaavg,
    fedlaavg_fresh,
    fedprox,
    scaffold,
    simulate,
)
from fedlatest.privacy import NoisePlan, Privacy
from fedlatest.simulation import Engine, ExperimentSpec
from fedlatest.simulation.private_rounds import standard_normals
from tests import reference
from tests.problems import MODEL, coins, flat, small_federation

FEDERATION = small_federation(8, seed=1)
COMMON: dict[str, Any] = {"num_local_steps": 2, "batch_size": 3, "learning_rate": 0.2}
ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    "fedlaavg": fedlaavg, "fedlaavg_fresh": fedlaavg_fresh, "fedavg": fedavg,
}  # fmt: skip
CASES = [*((name, "auto") for name in ALGORITHMS), ("fedavg", "correlated")]


def make_privacy(**changes: Any) -> Privacy:
    return Privacy(**{"epsilon": 4.0, "delta": 1e-3, "clip_norm": 0.2, "rounds": 12, **changes})


def run(algorithm: Algorithm, *, out: Path | None = None, **options: Any) -> Result:
    defaults = {"rounds": 12, "cohort_size": 3, "evaluate_every": 4, **COMMON}
    return simulate(FEDERATION, MODEL, algorithm, bernoulli(np.full(8, 0.6)), out=out, **(defaults | options))


def normals_of(seed: int) -> Callable[[int], npt.NDArray[Any]]:
    """Return the simulator's standard normal numbers of a round in the layout of the reference."""
    like = {"update": {"bias": np.zeros(3, np.float32), "weight": np.zeros((3, 4), np.float32)}}
    return lambda round: flat(standard_normals(like, jax.numpy.uint32(seed), jax.numpy.int32(round))["update"])


@dataclass
class PrivateFedAvg(reference.FedAvg):
    plan: NoisePlan = None  # type: ignore[assignment]
    times: list[list[int]] = field(default_factory=list)

    def select(self, round: int) -> list[int]:
        whole, rounds = self.available, self.times or [[] for _ in range(self.num_clients)]
        self.times = rounds
        most, separation = self.plan.max_participations, self.plan.min_separation
        allowed = [len(own) < most and (not own or round - own[-1] >= separation) for own in rounds]
        self.available = lambda number: whole(number) & np.array(allowed)
        cohort = super().select(round)
        self.available = whole
        for client in cohort:
            rounds[client].append(round)
        return cohort

    def train(self, client: int, round: int) -> reference.Floats:
        update = super().train(client, round)
        return update * min(1.0, self.plan.clip_norm / float(np.linalg.norm(update)))

    def merge(self, round: int, cohort: list[int], updates: dict[int, reference.Floats]) -> None:
        super().merge(round, cohort, updates)
        self.x = self.x + self.noise(round, cohort)

    def noise(self, round: int, cohort: list[int]) -> Any:
        return self.plan.round_noise(round, normals_of(self.seed)) / len(cohort) if cohort else 0.0


@dataclass
class PrivateFedLaAvg(PrivateFedAvg, reference.FedLaAvg):
    def noise(self, round: int, cohort: list[int]) -> Any:
        """The step is total / N + (a - 1/N) (sum of differences), a = 1/N or 1/|S|; both sums are noisy."""
        normals = normals_of(self.seed)
        of_total = self.plan.total_noise(round, normals) / self.num_clients
        if self.fresh == "average" or not cohort:
            return of_total
        return of_total + (1 / len(cohort) - 1 / self.num_clients) * self.plan.round_noise(round, normals)


@pytest.mark.parametrize(("name", "mechanism"), CASES)
def test_equals_the_reference(name: str, mechanism: str) -> None:
    rounds, pattern = 12, coins([0.3, 0.9, 0.5, 0.7, 0.2, 0.9, 0.9, 0.9])
    privacy = make_privacy(min_separation=2, max_participations=4, mechanism=mechanism)
    spec = ExperimentSpec(
        FEDERATION, MODEL, ALGORITHMS[name](weighting="none"), pattern, 3, rounds=rounds, privacy=privacy, **COMMON
    )
    engine = Engine([spec])
    states = engine.start()
    first = flat(states[0].server.params)[0]
    states, record = engine.advance(states, rounds)
    kind: dict[str, dict[str, Any]] = {
        "fedlaavg": {"fresh": "average"},
        "fedlaavg_fresh": {"fresh": "cohort", "selection": "weighted"},
    }
    assert spec.noise_plan is not None
    slow: Any = (PrivateFedAvg if name == "fedavg" else PrivateFedLaAvg)(
        FEDERATION, lambda round: np.asarray(pattern.available(round, 0)), first, 3, 2, 3, 0.2, weighting="none",
        plan=spec.noise_plan, **kind.get(name, {}),
    )  # fmt: skip
    slow.run(rounds)
    for round in range(rounds):
        assert set(record.cohort.clients[0, round][record.cohort.mask[0, round]].tolist()) == slow.cohorts[round]
    assert any(len(cohort) < 3 for cohort in slow.cohorts)
    np.testing.assert_allclose(flat(states[0].server.params)[0], slow.x, rtol=2e-4, atol=2e-5)
    assert states[0].participations is not None
    assert states[0].participations[0].tolist() == [len(own) for own in slow.times]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_without_noise_and_with_a_wide_clip_nothing_changes(name: str) -> None:
    algorithm = ALGORITHMS[name](weighting="none")
    plain = run(algorithm, seeds=(3, 5))
    private = run(algorithm, seeds=(3, 5), privacy=make_privacy(epsilon=math.inf, clip_norm=1e6))
    assert [row._replace(seconds=0) for row in plain.metrics.rows] == [
        row._replace(seconds=0) for row in private.metrics.rows
    ]
    jax.tree.map(np.testing.assert_array_equal, plain.params, private.params)


@pytest.mark.parametrize(("name", "mechanism"), CASES)
def test_noise_of_all_models_has_the_covariance_of_the_plan(name: str, mechanism: Any) -> None:
    """The noise is 10^4 times larger than all updates, so that the models x_1, ..., x_5 are almost noise alone.

    With K = N = 8 and everyone available, x_r is the sum over s <= r of the noise of the round's sum divided by 8
    (FedAvg; FedLaAvg, fresh), or of the noise of the total divided by 8 (FedLaAvg): with K = N these are the same for
    the two forms of FedLaAvg. 60 seeds of 15 numbers give the covariances to a few percent.
    """
    rounds, clip = 5, 1e-6
    privacy = make_privacy(epsilon=0.001, delta=1e-6, clip_norm=clip, rounds=rounds, mechanism=mechanism)
    algorithm, seeds = ALGORITHMS[name](weighting="none"), tuple(range(60))
    models = []
    for number in range(1, rounds + 1):
        found = simulate(
            FEDERATION, MODEL, algorithm, always(8), rounds=number, cohort_size=8, evaluate_every=5, seeds=seeds,
            privacy=privacy, **COMMON,
        )  # fmt: skip
        models.append(flat(found.params).reshape(-1))
    spec = ExperimentSpec(
        FEDERATION, MODEL, algorithm, always(8), 8, rounds=rounds, seeds=seeds, privacy=privacy, **COMMON
    )
    engine = Engine([spec])
    first, plan = flat(engine.params(engine.start())).reshape(-1), spec.noise_plan
    assert plan is not None
    assert plan.stddev > 100 * clip
    noising = sum(c * np.eye(rounds, k=-age) for age, c in enumerate(plan.coefficients))
    sums = np.tri(rounds) @ noising if plan.mechanism == "total" else noising  # what the step of a round adds
    weights = plan.stddev / 8 * np.tri(rounds) @ sums
    expected = weights @ weights.T
    noise = np.stack(models) - first
    measured = noise @ noise.T / noise.shape[1]
    np.testing.assert_allclose(measured, expected, atol=0.15 * float(np.max(expected)))


@pytest.mark.parametrize(("separation", "most"), [(1, 2), (3, 12), (4, 2)])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_no_client_exceeds_its_limits(name: str, separation: int, most: int) -> None:
    privacy = make_privacy(min_separation=separation, max_participations=most, rounds=40, epsilon=math.inf)
    algorithm = ALGORITHMS[name](weighting="none")
    spec = ExperimentSpec(
        FEDERATION, MODEL, algorithm, bernoulli(np.linspace(0.2, 1, 8)), 3, rounds=40, seeds=(0, 1, 2), privacy=privacy,
        **COMMON,
    )  # fmt: skip
    engine = Engine([spec])
    _, record = engine.advance(engine.start(), 40)
    for trial in range(3):
        for client in range(8):
            took_part = (np.asarray(record.cohort.clients[trial]) == client) & np.asarray(record.cohort.mask[trial])
            rounds = np.flatnonzero(took_part.any(axis=1))
            assert rounds.size <= most
            assert np.all(np.diff(rounds) >= separation)
            assert rounds.size > 0


@pytest.mark.parametrize("name", ALGORITHMS)
def test_interrupted_and_resumed(name: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "privacy": make_privacy(min_separation=2, max_participations=3), "seeds": (1, 2), "checkpoint_seconds": 0.0,
    }  # fmt: skip
    algorithm = ALGORITHMS[name](weighting="none")

    def interrupt(progress: Progress) -> None:
        if progress.round == 8:
            raise KeyboardInterrupt

    whole = run(algorithm, out=tmp_path / "whole", **options)
    with pytest.raises(KeyboardInterrupt):
        run(algorithm, out=tmp_path / "cut", on_progress=interrupt, **options)
    cut = run(algorithm, out=tmp_path / "cut", resume=True, **options)
    jax.tree.map(np.testing.assert_array_equal, whole.params, cut.params)
    manifest = json.loads((tmp_path / "cut" / "manifest.json").read_text())
    assert manifest["config"]["privacy"] == options["privacy"].as_dict()
    assert NoisePlan.from_dict(manifest["noise_plan"]).max_participations == 3


@pytest.mark.parametrize("rows", ["seen", "host"])
def test_where_the_rows_are_stored_does_not_matter(rows: Any) -> None:
    options: dict[str, Any] = {"privacy": make_privacy(min_separation=2, max_participations=4)}
    algorithm = fedlaavg_fresh(weighting="none")
    expected, found = run(algorithm, **options), run(algorithm, client_rows=rows, **options)
    jax.tree.map(np.testing.assert_array_equal, expected.params, found.params)


def test_a_run_with_another_guarantee_is_another_run(tmp_path: Path) -> None:
    run(fedlaavg(weighting="none"), out=tmp_path / "run", privacy=make_privacy())
    with pytest.raises(RunFolderError, match=r"another configuration \(epsilon was 4\.0, now 2\.0\)"):
        run(fedlaavg(weighting="none"), out=tmp_path / "run", privacy=make_privacy(epsilon=2.0), resume=True)


def test_plans_that_differ_in_numbers_share_a_program() -> None:
    specs = [
        ExperimentSpec(
            FEDERATION, MODEL, fedlaavg(weighting="none"), always(8), 3, rounds=12,
            privacy=make_privacy(epsilon=epsilon), **COMMON,
        )
        for epsilon in (1.0, 8.0, math.inf)
    ]  # fmt: skip
    assert len({spec.batch_key for spec in specs}) == 1
    assert specs[0].batch_key != ExperimentSpec(
        FEDERATION, MODEL, fedlaavg(weighting="none"), always(8), 3, rounds=12, **COMMON
    ).batch_key  # fmt: skip


@pytest.mark.parametrize(
    ("algorithm", "options", "message"),
    [
        (fedlaavg(), {}, "privacy: weighting=loss uses the clients' numbers of samples"),
        (fedavg(weighting="update"), {}, "privacy: weighting=update uses the clients' numbers of samples"),
        (scaffold(), {}, "privacy: algorithm scaffold uploads something else than one update"),
        (fedlaavg(weighting="none"), {"rounds": 13}, "rounds=13: the privacy budget is for 12 rounds"),
        (fedlaavg(weighting="none"), {"privacy": make_privacy(delta=0.2)}, "delta=0.2: must be below 1"),
        (fedlaavg(weighting="none"), {"remembered_dtype": "bfloat16"}, "remembered_dtype=bfloat16: rounds updates"),
        (fedlaavg(weighting="none"), {"privacy": make_privacy(mechanism="correlated")}, "mechanism=correlated: does"),
    ],
)
def test_what_cannot_be_private(algorithm: Algorithm, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        run(algorithm, **{"privacy": make_privacy(), **options})
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    "algorithm", [fedprox(weighting="none"), fedadam(weighting="none")], ids=["fedprox", "fedadam"]
)
def test_other_algorithms_with_one_update(algorithm: Algorithm) -> None:
    found = run(algorithm, privacy=make_privacy())
    assert np.isfinite(flat(found.params)).all()
