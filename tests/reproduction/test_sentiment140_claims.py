"""The paper's statements of Sentiment140, put to made-up histories for which the answer is known."""

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
    NAMES,
    PUBLISHED,
    QUOTED,
    SENTIMENT140,
    sentiment140_claims,
)
from fedlatest.reproduction.sentiment140_figures import SETTINGS, Day, run
from tests.reproduction import made_up
from tests.reproduction.made_up import Shape, flat, verdicts

record = partial(made_up.record, run, rounds=10000, every=50)
MEANS, SWINGS, ARRIVALS = SENTIMENT140.means, SENTIMENT140.swings, SENTIMENT140.arrivals
USUAL = {
    "start": 0.5,  # FedLaAvg's test accuracy in round 0
    "calm": 0.008,  # its swing
    "drop": 0.0,  # how much less it is after round 9000
    "swing": 0.06,  # its rivals' at E = 24 and alpha = 0
    "growth": 0.5,  # of their swing with E: so much more at E = 120
    "fading": 1.5,  # of their swing with alpha: none is left at 1 / fading
    "balanced": 0.745,  # FedAvg's mean at alpha = 0.5
    "waves": 0.012,  # its swing there
    "worse": 0.03,  # how much less its mean is at alpha = 0
    "prox": 0.001,  # FedProx's loss minus FedAvg's
    "slow": 12000.0,  # one local step: its loss is 0.2 e^(-r / slow) above its end
    "power": 0.5,  # rounds ~ N^-power
    "share": 1.02,  # loss with all clients over that with some
}


def climbing(start: float, end: float, swing: float, drop: float = 0.0) -> Shape:
    """From a start to an end, but for a swing every 200 rounds, and less after round 9000."""
    return lambda at: flat(end, swing)(at) - (end - start) * np.exp(-at / 900) - drop * (at > 9000)


def falling(end: float, rate: float = 2000) -> Shape:
    return lambda rounds: end + 0.2 * np.exp(-rounds / rate)


def swing_of(day: Day, now: Mapping[str, float]) -> float:
    """Grows with E, fades with alpha; at alpha = 0.5 it is told."""
    if day.alpha == 0.5:
        return now["waves"]
    return now["swing"] * (1 + now["growth"] * (day.period - 24) / 96) * (1 - now["fading"] * day.alpha)


def in_one_setting(day: Day, now: Mapping[str, float]) -> list[RunRecord]:
    where = day.changes
    mean = now["balanced"] if day.alpha == 0.5 else 0.74 - now["worse"]
    waving = flat(mean, swing_of(day, now))
    ours = climbing(now["start"], 0.74, now["calm"], now["drop"])
    return [
        record(where, accuracy=ours, loss=falling(0.52), seeds=2),
        record(f"local_steps=1 {where}", accuracy=flat(0.66), loss=falling(0.52, now["slow"])),
        record(f"algorithm=fedsgd {where}", accuracy=waving, loss=falling(0.6)),
        record(f"algorithm=fedavg {where}", accuracy=waving, loss=falling(0.54)),
        record(f"algorithm=fedprox {where}", accuracy=waving, loss=falling(0.54 + now["prox"])),
    ]


def paper(**changed: float) -> dict[str, RunRecord]:
    """Runs of which every statement of the paper is true, but for what is changed."""
    now = USUAL | changed
    runs = list(chain.from_iterable(in_one_setting(day, now) for day in SETTINGS))
    ours = climbing(now["start"], 0.74, now["calm"])
    for number in (200, 600):
        rate = 2000 * (1000 / number) ** now["power"]
        runs.append(record(f"num_clients={number}", accuracy=ours, loss=falling(0.52, rate)))
    for share, times in ((0.2, 1.0), (1.0, now["share"])):
        runs.append(record(f"participation={share}", accuracy=ours, loss=falling(0.52 * times)))
    return SENTIMENT140.recognise(runs)


def test_all_statements_hold_of_the_paper_as_it_is_told() -> None:
    said = verdicts(sentiment140_claims(paper()))
    assert list(said) == list(CHECKS)
    assert all(said.values()), said


@pytest.mark.parametrize(
    ("changed", "claim"),
    [
        ({"calm": 0.016}, "FedLaAvg converges in all settings"),
        ({"drop": 0.011, "balanced": 0.735}, "FedLaAvg converges in all settings"),
        ({"start": 0.70}, "FedLaAvg converges in all settings"),
        ({"swing": 0.02}, "FedSGD, FedAvg and FedProx oscillate at alpha = 0"),
        ({"growth": -0.1}, "they oscillate more for larger E"),
        ({"fading": -1.5}, "they oscillate more for smaller alpha"),
        ({"balanced": 0.751}, "at alpha = 0.5 FedAvg is as good as FedLaAvg"),
        ({"waves": 0.025}, "at alpha = 0.5 FedAvg is as good as FedLaAvg"),
        ({"worse": 0.009}, "at alpha = 0 FedAvg is worse than FedLaAvg"),
        ({"prox": 0.03}, "FedProx tracks FedAvg"),
        ({"slow": 3000.0}, "ten local steps converge in fewer rounds than one"),
        ({"power": 0.2}, "more clients converge faster"),
        ({"power": -0.3}, "more clients converge faster"),
        ({"share": 1.06}, "the share of participants matters little"),
    ],
)
def test_a_statement_that_is_not_so_is_shown_as_not_holding(changed: Mapping[str, float], claim: str) -> None:
    """The one statement fails; those about other numbers still hold."""
    said = verdicts(sentiment140_claims(paper(**changed)))
    assert [text for text, holds in said.items() if not holds] == [text for text in said if text.startswith(claim)]


def test_the_power_is_told() -> None:
    """Losses are 0.52 + 0.2 e^(-r / rate) with rates ~ N^-1/2, so that rounds to one of them are."""
    [claim] = [claim for claim in sentiment140_claims(paper()) if claim.claim.startswith("more clients")]
    on_train, on_test = claim.measured.split("; ")
    assert on_train.endswith("rounds ~ N^-0.50")
    assert on_test == "test loss 1.0000 at round 1 (N=200), 1 (N=600), 1 (N=1000): rounds ~ N^0.00"  # made up: always 1


def test_runs_that_have_learnt_nothing_are_judged_too() -> None:
    """Nothing moves: no swing to divide by."""
    runs = [record(f"{who} {day.changes}", accuracy=flat(0.49), loss=flat(0.69)) for who in ("", "algorithm=fedavg")
            for day in SETTINGS]  # fmt: skip
    said = {claim.claim: claim for claim in sentiment140_claims(SENTIMENT140.recognise(runs))}
    [converges, oscillate] = [said[text] for text in list(CHECKS)[:2]]
    assert converges.holds is False
    assert oscillate.measured.startswith("1.0 (FedAvg, E=24, alpha=0) to 1.0 times")


def test_a_statement_is_judged_by_all_its_runs_or_not_at_all() -> None:
    runs = paper()
    del runs[run("algorithm=fedprox rounds_per_day=240").name]
    said = verdicts(sentiment140_claims(runs))
    assert said["they oscillate more for larger E"] is None
    assert said["they oscillate more for smaller alpha"] is True
    assert verdicts(sentiment140_claims({})) == {}


def test_runs_of_the_two_tasks_are_told_apart() -> None:
    mine = list(paper().values())
    assert MNIST.recognise(mine) == {}
    other = made_up.record(MNIST.named, "", accuracy=flat(0.9), loss=flat(0.3), rounds=10000, every=50)
    assert set(SENTIMENT140.recognise([*mine, other])) == set(paper())


@pytest.mark.parametrize(
    ("changes", "mean", "expected"),
    [
        ("", 0.7402 + 0.0098, {MEANS: True, SWINGS: True, ARRIVALS: False}),  # at 0.70 from the start
        ("", 0.7402 - 0.0102, {MEANS: False, SWINGS: True, ARRIVALS: False}),
        ("algorithm=sequential", 0.7558 + 0.0102, {MEANS: False, SWINGS: False}),
        ("algorithm=fedsgd", 0.6436 + 0.0198, {MEANS: True, SWINGS: False}),
        ("algorithm=fedsgd", 0.6436 + 0.0202, {MEANS: False, SWINGS: False}),
        ("algorithm=fedprox alpha=0.5", 0.7, {}),  # not published
    ],
)
def test_published_numbers_are_put_to_runs_on_the_full_data_alone(
    changes: str, mean: float, expected: dict[str, bool]
) -> None:
    """Tolerances: 0.01 for FedLaAvg and sequential SGD, 0.02 for others; on other data both numbers, no verdict."""
    made = partial(record, changes, accuracy=flat(mean, 0.007), loss=flat(0.5))
    for data, judged in (("sentiment140", True), ("sentiment140-shaped", False)):
        found = sentiment140_claims(SENTIMENT140.recognise([made(data=data)]))
        numbers = {claim.group: claim for claim in found if claim.group != STATEMENTS}
        assert {group: claim.holds for group, claim in numbers.items()} == {
            group: holds if judged else None for group, holds in expected.items()
        }
        assert all(claim.measured and claim.published for claim in numbers.values())


def test_rows_say_which_run() -> None:
    runs = [record(changes, accuracy=flat(0.7), loss=flat(0.5)) for changes in (
        "local_steps=1 rounds_per_day=24", "algorithm=sequential",
        "algorithm=sequential participation=0.001 local_steps=1000", "algorithm=sequential alpha=0.25",
    )]  # fmt: skip
    found = sentiment140_claims(SENTIMENT140.recognise(runs))
    assert [claim.claim for claim in found if claim.group == MEANS] == [
        "FedLaAvg, C=1, E=24, alpha=0",
        "Sequential SGD, 10 steps of 200, alpha=0",
        "Sequential SGD, 1000 steps of 2, alpha=0",
    ]


def test_published_histories_speak_of_the_statements() -> None:
    """Where they reach round 10000; those that end before are not put beside ours."""
    rounds, ones = np.arange(0, 12001, 20), np.ones(601)
    at = rounds.astype(float)
    curves = {
        ("FedLaAvg", "E120_fv0"): PublishedCurve(rounds, ones, climbing(0.5, 0.74, 0.008)(at)),
        ("FedAvg", "E120_fv0"): PublishedCurve(rounds, ones, flat(0.71, 0.07)(at)),
        ("FedProx", "E120_fv0"): PublishedCurve(rounds[:490], ones[:490], flat(0.71, 0.07)(at[:490])),
    }
    said = {claim.claim: claim.published for claim in sentiment140_claims(paper(), curves)}
    [oscillate] = [text for claim, text in said.items() if claim.startswith("FedSGD, FedAvg and FedProx oscillate")]
    assert oscillate == "8.7 (FedAvg, E=120, alpha=0) to 8.7 times (FedAvg, E=120, alpha=0) FedLaAvg's swing"


def test_every_quoted_number_has_its_run() -> None:
    assert set(QUOTED) < set(NAMES.values())
    assert set(NAMES) < set(SENTIMENT140.experiments)
    assert len(set(NAMES.values())) == len(NAMES) == 20
    assert set(NAMES.values()) - set(QUOTED) == {("Naive", "E24_fv0"), ("FedProx", "E120_fv0.5")}
    assert PUBLISHED.window.before == (8000, 9000)
