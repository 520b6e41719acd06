"""What the paper says of the non-convex case, each statement as a check with a number.

A check is a function of histories, so the same one is put to our runs and, where they are at hand, to the published
ones. Its thresholds are ours: the paper speaks in words. "In the end" is in the last tenth of the rounds.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fedlatest.report import Claim, PublishedCurve, RunRecord
from fedlatest.reproduction.checks import (
    Check,
    Found,
    Histories,
    History,
    Window,
    each,
    fedprox_tracks_fedavg,
    losses_end_alike,
    more_steps_are_faster,
    rivals_oscillate,
    rivals_oscillate_more,
    times,
)
from fedlatest.reproduction.judging import NEVER, Key, PublishedRuns, Summary, Task, names
from fedlatest.reproduction.sentiment140_figures import FIGURES, NUMBERS, SETTINGS, SHARES, Day, run

NAMES = names(run, {"E24_fv0": Day(24, 0), "E120_fv0": Day(120, 0), "E120_fv0.5": Day(120, 0.5)})
"""Our run's name -> theirs. Sequential SGD is theirs at alpha = 0: its history begins on that test set."""
QUOTED = {
    ("FedLaAvg", "E24_fv0"): Summary(0.7395, 0.0072, 4380),
    ("FedLaAvg", "E120_fv0"): Summary(0.7402, 0.0080, 4300),
    ("FedLaAvg", "E120_fv0.5"): Summary(0.7403, 0.0059, 2760),
    ("FedLaAvg_C1", "E24_fv0"): Summary(0.6642, 0.0157, NEVER),
    ("FedLaAvg_C1", "E120_fv0"): Summary(0.6648, 0.0160, NEVER),
    ("FedLaAvg_C1", "E120_fv0.5"): Summary(0.6798, 0.0223, NEVER),
    ("FedAvg", "E24_fv0"): Summary(0.7161, 0.0540, 9840),
    ("FedAvg", "E120_fv0"): Summary(0.7119, 0.0697, 9980),
    ("FedAvg", "E120_fv0.5"): Summary(0.7450, 0.0138, 4180),
    ("FedProx", "E24_fv0"): Summary(0.7159, 0.0639, 9980),
    ("FedProx", "E120_fv0"): Summary(0.7135, 0.0704, 10000),
    ("FedSGD", "E24_fv0"): Summary(0.6477, 0.0477, NEVER),
    ("FedSGD", "E120_fv0"): Summary(0.6436, 0.0802, NEVER),
    ("FedSGD", "E120_fv0.5"): Summary(0.6800, 0.0280, NEVER),
    ("Naive", "E120_fv0"): Summary(0.5681, 0.0062, NEVER),
    ("Naive", "E120_fv0.5"): Summary(0.5721, 0.0099, NEVER),
    ("SGD", "C10"): Summary(0.7558, 0.0385, 1500),
    ("SGD", "C10_old"): Summary(0.7322, 0.0212, 40),
}
PUBLISHED = PublishedRuns(NAMES, QUOTED, window=Window(9000, 10000), level=0.70)


LARGER_E = [Day(24, 0), Day(120, 0), Day(240, 0)]  # all that have alpha = 0
SMALLER_ALPHA = [Day(120, 0.5), Day(120, 0.25), Day(120, 0)]
BALANCED = [Day(120, 0.5)]


def sentiment140_claims(
    runs: Mapping[str, RunRecord], published: Mapping[Key, PublishedCurve] | None = None
) -> list[Claim]:
    """Every claim about which the runs, by name, can say something."""
    return SENTIMENT140.claims(runs, published or {})


def converges(runs: Histories) -> Found | None:
    """It has learnt something, is steady in the end, and no worse than in the tenth before."""
    found = runs.by_setting("")
    if not found:
        return None
    swings = {where: float(history.swings.mean()) for where, history in found.items()}
    gains = {where: history.accuracy - _accuracy_before(history) for where, history in found.items()}
    learnt = [history.accuracy - float(history.test_accuracy[:, 0].mean()) for history in found.values()]
    text = f"swing {each(swings, '.4f')}; mean minus that of the tenth before {each(gains, '+.4f')}"
    return Found(text, max(swings.values()) < 0.015 and min(gains.values()) >= -0.01 and min(learnt) >= 0.05)


def fedavg_is_as_good_where_balanced(runs: Histories) -> Found | None:
    """Means at most 0.01 apart, and less than three times FedLaAvg's swing: what counts as oscillating elsewhere."""
    plain, ours = runs.by_setting("algorithm=fedavg", BALANCED), runs.by_setting("", BALANCED)
    if not (plain and ours):
        return None
    [theirs], [latest] = plain.values(), ours.values()
    text = (
        f"FedAvg {theirs.accuracy:.4f}, FedLaAvg {latest.accuracy:.4f}; "
        f"swing {theirs.swings.mean():.4f} and {latest.swings.mean():.4f}"
    )
    return Found(text, abs(theirs.accuracy - latest.accuracy) <= 0.01 and times(theirs, latest) < 3)


def fedavg_is_worse_at_alpha_0(runs: Histories) -> Found | None:
    """Its mean test accuracy in the end is more than 0.01 below FedLaAvg's."""
    plain, ours = runs.by_setting("algorithm=fedavg", LARGER_E), runs.by_setting("", LARGER_E)
    below = {where: ours[where].accuracy - plain[where].accuracy for where in plain if where in ours}
    if not below:
        return None
    return Found(f"lower by {each(below, '.4f')}", min(below.values()) > 0.01)


def more_clients_are_faster(runs: Histories) -> Found | None:
    """Rounds to a training loss that all of them reach: fewer with more clients, like N^-p with p of at least 0.25.

    The loss is the largest of those that they end at; p is fitted to the logarithms. Theorem 4 has p = 1/2. Fewer
    clients hold fewer samples, which are easier to learn by heart: the same is said of the test loss, not judged.
    """
    found = {number: history for number in NUMBERS if (history := runs.find(f"num_clients={number}"))}
    if len(found) < 2:
        return None
    trained = _arrivals(found)
    text = f"training loss {trained.text}"
    on_test = {n: run._replace(train_loss=run.test_loss) for n, run in found.items() if run.test_loss is not None}
    if len(on_test) == len(found):
        text += f"; test loss {_arrivals(on_test).text}"
    return Found(text, trained.power <= -0.25 and all(np.diff(list(trained.rounds.values())) < 0))


class _Arrivals(NamedTuple):
    """When runs with different numbers of clients come to a loss that they all reach; rounds ~ N^power."""

    loss: float
    rounds: dict[int, float]
    power: float

    @property
    def text(self) -> str:
        words = each({f"N={number}": reached for number, reached in self.rounds.items()}, ".0f")
        return f"{self.loss:.4f} at round {words}: rounds ~ N^{self.power:.2f}"


def _arrivals(found: Mapping[int, History]) -> _Arrivals:
    loss = max(history.loss for history in found.values())
    rounds = {number: max(1.0, history.arrives_below(loss)) for number, history in found.items()}
    power = float(np.polyfit(np.log(list(rounds)), np.log(list(rounds.values())), 1)[0])
    return _Arrivals(loss, rounds, power)


CHECKS: dict[str, Check] = {
    "FedLaAvg converges in all settings (in the last tenth of the rounds test accuracy swings by under 0.015 and is on "
    "average at most 0.01 below that of the tenth before, at least 0.05 above the start)": converges,
    "FedSGD, FedAvg and FedProx oscillate at alpha = 0 (at least 3 times FedLaAvg's swing)": partial(
        rivals_oscillate, settings=LARGER_E
    ),
    "they oscillate more for larger E": partial(rivals_oscillate_more, settings=LARGER_E),
    "they oscillate more for smaller alpha": partial(rivals_oscillate_more, settings=SMALLER_ALPHA),
    "at alpha = 0.5 FedAvg is as good as FedLaAvg (mean test accuracy within 0.01, less than 3 times its swing)": (
        fedavg_is_as_good_where_balanced
    ),
    "at alpha = 0 FedAvg is worse than FedLaAvg (mean test accuracy lower by more than 0.01)": (
        fedavg_is_worse_at_alpha_0
    ),
    "FedProx tracks FedAvg (training losses at most 5% apart)": fedprox_tracks_fedavg,
    "ten local steps converge in fewer rounds than one (at most half)": more_steps_are_faster,
    "more clients converge faster (rounds to a training loss that all reach, ~ N^-p with p of at least 0.25)": (
        more_clients_are_faster
    ),
    "the share of participants matters little (training losses at most 5% apart)": partial(
        losses_end_alike, named={f"participation {share}": f"participation={share}" for share in SHARES}, within=0.05
    ),
}


def _accuracy_before(history: History) -> float:
    """Mean test accuracy in the window before the last."""
    return history._replace(window=history.window.before).accuracy


def _where(values: Mapping[str, Any]) -> str:
    if values["algorithm"] == "sequential":
        return f"alpha={values['alpha']:g}"
    return str(Day(values["rounds_per_day"], values["alpha"]))


_IN_FIGURES = {experiment.name: experiment for figure in FIGURES.values() for experiment in figure().experiments}
_SEQUENTIAL = run("algorithm=sequential participation=0.001 local_steps=1000")  # published too; hours of tiny steps
SENTIMENT140 = Task(
    named=run,
    experiments={**_IN_FIGURES, _SEQUENTIAL.name: _SEQUENTIAL},
    settings=SETTINGS,
    where=_where,
    checks=CHECKS,
    published=PUBLISHED,
    tolerances=(0.01, 0.02),
    data="sentiment140",
)
