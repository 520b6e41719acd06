"""The paper's statements about Sentiment140, checked on synthetic histories for which the verdict is known."""

from collections.abc import Mapping
from functools import partial
from itertools import chain

import numpy as np
import pytest

from fedlatest.report import PublishedCurve, RunRecord
from fedlatest.reproduction.judging import STATEMENTS
from fedlatest.reproduction.mnist_claims import MNIST
from fedlatest.reproduction.sentiment140_claims import (
    CHECKS,
    PUBLISHED,
    PUBLISHED_NAMES,
    QUOTED,
    SENTIMENT140,
    sentiment140_claims,
)
from fedlatest.reproduction.sentiment140_figures import SETTINGS, Sentiment140Setting, sentiment140_experiment
from tests.reproduction.synthetic_runs import Shape, flat, synthetic_run, verdicts

sentiment140_run = partial(synthetic_run, sentiment140_experiment, rounds=10000, every=50)
MEANS, SWINGS, ARRIVALS = SENTIMENT140.mean_heading, SENTIMENT140.swing_heading, SENTIMENT140.arrival_heading
DEFAULTS = {
    "start": 0.5,  # FedLaAvg's test accuracy in round 0
    "fedlaavg_swing": 0.008,
    "drop": 0.0,  # by how much FedLaAvg's test accuracy falls after round 9000
    "swing": 0.06,  # of the baselines at E = 24 and alpha = 0
    "growth": 0.5,  # relative growth of that swing from E = 24 to E = 120
    "fading": 1.5,  # relative decrease of that swing per unit of alpha
    "balanced": 0.745,  # FedAvg's mean at alpha = 0.5
    "waves": 0.012,  # the baselines' swing at alpha = 0.5
    "worse": 0.03,  # FedLaAvg's mean minus FedAvg's at alpha = 0
    "prox": 0.001,  # FedProx's loss minus FedAvg's
    "slow": 12000.0,  # the loss with one local step is 0.2 e^(-r / slow) above its end
    "power": 0.5,  # rounds ~ N^-power
    "share": 1.02,  # loss with participation 1.0 over that with 0.1
}


def climbing(start: float, end: float, swing: float, drop: float = 0.0) -> Shape:
    """From start to end, with a triangle wave of length 200 added, and `drop` lower after round 9000."""
    return lambda at: flat(end, swing)(at) - (end - start) * np.exp(-at / 900) - drop * (at > 9000)


def falling(end: float, rate: float = 2000) -> Shape:
    """end + 0.2 exp(-round / rate)."""
    return lambda rounds: end + 0.2 * np.exp(-rounds / rate)


def baseline_swing(setting: Sentiment140Setting, now: Mapping[str, float]) -> float:
    """Grows with E and decreases with alpha; at alpha = 0.5 it is given."""
    if setting.alpha == 0.5:
        return now["waves"]
    return now["swing"] * (1 + now["growth"] * (setting.period - 24) / 96) * (1 - now["fading"] * setting.alpha)


def runs_in_setting(setting: Sentiment140Setting, now: Mapping[str, float]) -> list[RunRecord]:
    where = setting.overrides
    mean = now["balanced"] if setting.alpha == 0.5 else 0.74 - now["worse"]
    waving = flat(mean, baseline_swing(setting, now))
    ours = climbing(now["start"], 0.74, now["fedlaavg_swing"], now["drop"])
    return [
        sentiment140_run(where, accuracy=ours, loss=falling(0.52), seeds=2),
        sentiment140_run(f"local_steps=1 {where}", accuracy=flat(0.66), loss=falling(0.52, now["slow"])),
        sentiment140_run(f"algorithm=fedsgd {where}", accuracy=waving, loss=falling(0.6)),
        sentiment140_run(f"algorithm=fedavg {where}", accuracy=waving, loss=falling(0.54)),
        sentiment140_run(f"algorithm=fedprox {where}", accuracy=waving, loss=falling(0.54 + now["prox"])),
    ]


def runs_of_the_paper(**changed: float) -> dict[str, RunRecord]:
    """Return runs for which every statement of the paper holds, except for the changed parameters."""
    now = DEFAULTS | changed
    runs = list(chain.from_iterable(runs_in_setting(setting, now) for setting in SETTINGS))
    ours = climbing(now["start"], 0.74, now["fedlaavg_swing"])
    for number in (200, 600):
        rate = 2000 * (1000 / number) ** now["power"]
        runs.append(sentiment140_run(f"num_clients={number}", accuracy=ours, loss=falling(0.52, rate)))
    for share, times in ((0.2, 1.0), (1.0, now["share"])):
        runs.append(sentiment140_run(f"participation={share}", accuracy=ours, loss=falling(0.52 * times)))
    return SENTIMENT140.recognise(runs)


def test_all_statements_hold_for_runs_of_the_paper() -> None:
    found = verdicts(sentiment140_claims(runs_of_the_paper()))
    assert list(found) == list(CHECKS)
    assert all(found.values()), found


@pytest.mark.parametrize(
    ("changed", "claim"),
    [
        ({"fedlaavg_swing": 0.016}, "FedLaAvg converges in all settings"),
        ({"drop": 0.011, "balanced": 0.735}, "FedLaAvg converges in all settings"),
        ({"start": 0.70}, "FedLaAvg converges in all settings"),
        ({"swing": 0.02}, "FedSGD, FedAvg and FedProx oscillate at alpha = 0"),
        ({"growth": -0.1}, "FedSGD, FedAvg and FedProx oscillate more for larger E"),
        ({"fading": -1.5}, "FedSGD, FedAvg and FedProx oscillate more for smaller alpha"),
        ({"balanced": 0.751}, "FedAvg is as good as FedLaAvg at alpha = 0.5"),
        ({"waves": 0.025}, "FedAvg is as good as FedLaAvg at alpha = 0.5"),
        ({"worse": 0.009}, "FedAvg is worse than FedLaAvg at alpha = 0"),
        ({"prox": 0.03}, "FedProx behaves like FedAvg"),
        ({"slow": 3000.0}, "Ten local steps converge in fewer rounds than one"),
        ({"power": 0.2}, "More clients converge in fewer rounds"),
        ({"power": -0.3}, "More clients converge in fewer rounds"),
        ({"share": 1.06}, "The participation rate has little effect"),
    ],
)
def test_a_false_statement_does_not_hold(changed: Mapping[str, float], claim: str) -> None:
    """The one statement fails; statements about other numbers still hold."""
    found = verdicts(sentiment140_claims(runs_of_the_paper(**changed)))
    assert [text for text, holds in found.items() if not holds] == [text for text in found if text.startswith(claim)]


def test_fitted_power_of_the_number_of_clients() -> None:
    """Losses are 0.52 + 0.2 e^(-r / rate) with rate ~ N^-1/2, so the rounds to a common loss are ~ N^-1/2."""
    [claim] = [claim for claim in sentiment140_claims(runs_of_the_paper()) if claim.claim.startswith("More clients")]
    on_train, on_test = claim.measured.split("; ")
    assert on_train.endswith("rounds ~ N^-0.50")
    assert on_test == "test loss 1.0000 at round 1 (N=200), 1 (N=600), 1 (N=1000): rounds ~ N^0.00"  # constant curve


def test_runs_that_have_learnt_nothing_are_judged() -> None:
    """Constant curves: the ratio of two swings of 0 is 1."""
    runs = [
        sentiment140_run(f"{algorithm} {setting.overrides}", accuracy=flat(0.49), loss=flat(0.69))
        for algorithm in ("", "algorithm=fedavg")
        for setting in SETTINGS
    ]
    found = {claim.claim: claim for claim in sentiment140_claims(SENTIMENT140.recognise(runs))}
    [converges, oscillate] = [found[text] for text in list(CHECKS)[:2]]
    assert converges.holds is False
    assert oscillate.measured.startswith("1.0 (FedAvg, E=24, alpha=0) to 1.0 (FedAvg, E=24, alpha=0) times")


def test_a_statement_is_judged_only_if_all_its_runs_are_available() -> None:
    runs = runs_of_the_paper()
    del runs[sentiment140_experiment("algorithm=fedprox rounds_per_day=240").name]
    found = verdicts(sentiment140_claims(runs))
    assert found["FedSGD, FedAvg and FedProx oscillate more for larger E"] is None
    assert found["FedSGD, FedAvg and FedProx oscillate more for smaller alpha"] is True
    assert verdicts(sentiment140_claims({})) == {}


def test_runs_of_the_two_tasks_are_distinguished() -> None:
    own = list(runs_of_the_paper().values())
    assert MNIST.recognise(own) == {}
    other = synthetic_run(MNIST.experiment, "", accuracy=flat(0.9), loss=flat(0.3), rounds=10000, every=50)
    assert set(SENTIMENT140.recognise([*own, other])) == set(runs_of_the_paper())


@pytest.mark.parametrize(
    ("overrides", "mean", "expected"),
    [
        ("", 0.7402 + 0.0098, {MEANS: True, SWINGS: True, ARRIVALS: False}),  # above 0.70 from round 0 on
        ("", 0.7402 - 0.0102, {MEANS: False, SWINGS: True, ARRIVALS: False}),
        ("algorithm=sequential", 0.7558 + 0.0102, {MEANS: False, SWINGS: False}),
        ("algorithm=fedsgd", 0.6436 + 0.0198, {MEANS: True, SWINGS: False}),
        ("algorithm=fedsgd", 0.6436 + 0.0202, {MEANS: False, SWINGS: False}),
        ("algorithm=fedprox alpha=0.5", 0.7, {}),  # not published
    ],
)
def test_only_runs_on_the_full_data_are_judged_by_published_numbers(
    overrides: str, mean: float, expected: dict[str, bool]
) -> None:
    """Tolerances: 0.01 for FedLaAvg and sequential SGD, 0.02 for the others; on other data there is no verdict."""
    made = partial(sentiment140_run, overrides, accuracy=flat(mean, 0.007), loss=flat(0.5))
    for data, judged in (("sentiment140", True), ("sentiment140-shaped", False)):
        found = sentiment140_claims(SENTIMENT140.recognise([made(data=data)]))
        numbers = {claim.group: claim for claim in found if claim.group != STATEMENTS}
        assert {group: claim.holds for group, claim in numbers.items()} == {
            group: holds if judged else None for group, holds in expected.items()
        }
        assert all(claim.measured and claim.published for claim in numbers.values())


def test_row_labels() -> None:
    runs = [sentiment140_run(overrides, accuracy=flat(0.7), loss=flat(0.5)) for overrides in (
        "local_steps=1 rounds_per_day=24", "algorithm=sequential",
        "algorithm=sequential participation=0.001 local_steps=1000", "algorithm=sequential alpha=0.25",
    )]  # fmt: skip
    found = sentiment140_claims(SENTIMENT140.recognise(runs))
    assert [claim.claim for claim in found if claim.group == MEANS] == [
        "FedLaAvg, C=1, E=24, alpha=0",
        "Sequential SGD, 10 steps of batch 200, alpha=0",
        "Sequential SGD, 1000 steps of batch 2, alpha=0",
    ]


def test_statements_are_checked_on_published_histories() -> None:
    """Only histories that reach round 10000 are used."""
    rounds, ones = np.arange(0, 12001, 20), np.ones(601)
    at = rounds.astype(float)
    curves = {
        ("FedLaAvg", "E120_fv0"): PublishedCurve(rounds, ones, climbing(0.5, 0.74, 0.008)(at)),
        ("FedAvg", "E120_fv0"): PublishedCurve(rounds, ones, flat(0.71, 0.07)(at)),
        ("FedProx", "E120_fv0"): PublishedCurve(rounds[:490], ones[:490], flat(0.71, 0.07)(at[:490])),
    }
    found = {claim.claim: claim.published for claim in sentiment140_claims(runs_of_the_paper(), curves)}
    statement = "FedSGD, FedAvg and FedProx oscillate at alpha = 0"
    [oscillate] = [text for claim, text in found.items() if claim.startswith(statement)]
    assert oscillate == "8.7 (FedAvg, E=120, alpha=0) to 8.7 (FedAvg, E=120, alpha=0) times FedLaAvg's swing"


def test_every_quoted_number_has_an_experiment() -> None:
    assert set(QUOTED) < set(PUBLISHED_NAMES.values())
    assert set(PUBLISHED_NAMES) < set(SENTIMENT140.experiments)
    assert len(set(PUBLISHED_NAMES.values())) == len(PUBLISHED_NAMES) == 20
    assert set(PUBLISHED_NAMES.values()) - set(QUOTED) == {("Naive", "E24_fv0"), ("FedProx", "E120_fv0.5")}
    assert PUBLISHED.window.preceding == (8000, 9000)
