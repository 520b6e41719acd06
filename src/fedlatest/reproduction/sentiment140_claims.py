"""The paper's statements about Sentiment140 (the non-convex case) with their checks, and the published numbers.

The paper makes its statements in words; the numeric thresholds are ours. A check is a function of histories, so the
same one is applied to our runs and, where they are available, to the published ones. The window of "late" values is
the last tenth of the rounds.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fedlatest.report import Claim, RunRecord
from fedlatest.reproduction.checks import (
    Check,
    CheckResult,
    History,
    HistoryLookup,
    Window,
    baselines_oscillate,
    baselines_oscillate_more,
    fedprox_tracks_fedavg,
    format_values,
    late_losses_agree,
    more_local_steps_need_fewer_rounds,
    swing_ratio,
)
from fedlatest.reproduction.judging import NEVER, PaperTask, PublishedCurves, PublishedRuns, Summary, published_names
from fedlatest.reproduction.sentiment140_figures import (
    FIGURES,
    NUM_CLIENTS,
    PARTICIPATION_RATES,
    SETTINGS,
    Sentiment140Setting,
    sentiment140_experiment,
)

LARGER_E = [Sentiment140Setting(24, 0), Sentiment140Setting(120, 0), Sentiment140Setting(240, 0)]  # all with alpha = 0
SMALLER_ALPHA = [Sentiment140Setting(120, 0.5), Sentiment140Setting(120, 0.25), Sentiment140Setting(120, 0)]
BALANCED = [Sentiment140Setting(120, 0.5)]


def sentiment140_claims(runs: Mapping[str, RunRecord], published: PublishedCurves | None = None) -> list[Claim]:
    """Return every claim about Sentiment140 that the runs, by experiment name, allow to be evaluated."""
    return SENTIMENT140.claims(runs, published or {})


def converges(runs: HistoryLookup) -> CheckResult | None:
    """Check that FedLaAvg has learnt something, is steady at the end, and does not get worse.

    In every setting the swing must be below 0.015, and the late test accuracy at most 0.01 below that of the preceding
    tenth and at least 0.05 above the initial accuracy.
    """
    found = runs.find_in_settings("")
    if not found:
        return None
    swings = {setting: float(history.swings.mean()) for setting, history in found.items()}
    changes = {setting: history.late_accuracy - _preceding_accuracy(history) for setting, history in found.items()}
    learnt = [history.late_accuracy - float(history.test_accuracy[:, 0].mean()) for history in found.values()]
    text = f"swing {format_values(swings, '.4f')}; mean minus that of the preceding tenth "
    text += format_values(changes, "+.4f")
    return CheckResult(text, max(swings.values()) < 0.015 and min(changes.values()) >= -0.01 and min(learnt) >= 0.05)


def fedavg_is_as_good_where_balanced(runs: HistoryLookup) -> CheckResult | None:
    """Check that FedAvg's late test accuracy is within 0.01 of FedLaAvg's and its swing less than 3 times FedLaAvg's.

    A swing of at least 3 times FedLaAvg's counts as oscillating in the other checks.
    """
    fedavg_found = runs.find_in_settings("algorithm=fedavg", BALANCED)
    fedlaavg_found = runs.find_in_settings("", BALANCED)
    if not (fedavg_found and fedlaavg_found):
        return None
    [fedavg], [fedlaavg] = fedavg_found.values(), fedlaavg_found.values()
    text = (
        f"FedAvg {fedavg.late_accuracy:.4f}, FedLaAvg {fedlaavg.late_accuracy:.4f}; "
        f"swing {fedavg.swings.mean():.4f} and {fedlaavg.swings.mean():.4f}"
    )
    holds = abs(fedavg.late_accuracy - fedlaavg.late_accuracy) <= 0.01 and swing_ratio(fedavg, fedlaavg) < 3
    return CheckResult(text, holds)


def fedavg_is_worse_at_alpha_0(runs: HistoryLookup) -> CheckResult | None:
    """Check that FedAvg's late test accuracy is more than 0.01 below FedLaAvg's."""
    fedavg, fedlaavg = runs.find_in_settings("algorithm=fedavg", LARGER_E), runs.find_in_settings("", LARGER_E)
    differences = {
        setting: fedlaavg[setting].late_accuracy - fedavg[setting].late_accuracy
        for setting in fedavg
        if setting in fedlaavg
    }
    if not differences:
        return None
    return CheckResult(f"lower by {format_values(differences, '.4f')}", min(differences.values()) > 0.01)


def more_clients_need_fewer_rounds(runs: HistoryLookup) -> CheckResult | None:
    """Check that the rounds to a common training loss fall with N like N^-p, with p at least 0.25.

    The common loss is the largest of the late training losses, so every run reaches it; p is fitted to the logarithms.
    Theorem 4 has p = 1/2. Fewer clients hold fewer samples, which are easier to memorise, so the same numbers are
    reported for the test loss; they are not judged.
    """
    found = {number: history for number in NUM_CLIENTS if (history := runs.find(f"num_clients={number}"))}
    if len(found) < 2:
        return None
    training = _rounds_to_common_loss(found)
    text = f"training loss {training}"
    on_test = {
        number: history._replace(train_loss=history.test_loss)
        for number, history in found.items()
        if history.test_loss is not None
    }
    if len(on_test) == len(found):
        text += f"; test loss {_rounds_to_common_loss(on_test)}"
    return CheckResult(text, training.power <= -0.25 and all(np.diff(list(training.rounds.values())) < 0))


class _RoundsToLoss(NamedTuple):
    """The rounds in which runs with different numbers of clients reach a common loss; rounds ~ N^power."""

    loss: float
    rounds: dict[int, float]
    power: float

    def __str__(self) -> str:
        rounds = format_values({f"N={number}": reached for number, reached in self.rounds.items()}, ".0f")
        return f"{self.loss:.4f} at round {rounds}: rounds ~ N^{self.power:.2f}"


def _rounds_to_common_loss(found: Mapping[int, History]) -> _RoundsToLoss:
    loss = max(history.late_loss for history in found.values())
    rounds = {number: max(1.0, history.first_round_below(loss)) for number, history in found.items()}
    power = float(np.polyfit(np.log(list(rounds)), np.log(list(rounds.values())), 1)[0])
    return _RoundsToLoss(loss, rounds, power)


CHECKS: dict[str, Check] = {
    "FedLaAvg converges in all settings (over the last tenth of the rounds the swing of test accuracy is below 0.015, "
    "and its mean is at most 0.01 below that of the preceding tenth and at least 0.05 above the start)": converges,
    "FedSGD, FedAvg and FedProx oscillate at alpha = 0 (swing at least 3 times FedLaAvg's)": partial(
        baselines_oscillate, settings=LARGER_E
    ),
    "FedSGD, FedAvg and FedProx oscillate more for larger E": partial(baselines_oscillate_more, settings=LARGER_E),
    "FedSGD, FedAvg and FedProx oscillate more for smaller alpha": partial(
        baselines_oscillate_more, settings=SMALLER_ALPHA
    ),
    "FedAvg is as good as FedLaAvg at alpha = 0.5 (mean test accuracies differ by at most 0.01, and the swing is less "
    "than 3 times FedLaAvg's)": fedavg_is_as_good_where_balanced,
    "FedAvg is worse than FedLaAvg at alpha = 0 (mean test accuracy lower by more than 0.01)": (
        fedavg_is_worse_at_alpha_0
    ),
    "FedProx behaves like FedAvg (training losses differ by at most 5%)": fedprox_tracks_fedavg,
    "Ten local steps converge in fewer rounds than one (at most half as many)": more_local_steps_need_fewer_rounds,
    "More clients converge in fewer rounds (the rounds to a training loss that all runs reach fall as N^-p, with p at "
    "least 0.25)": more_clients_need_fewer_rounds,
    "The participation rate has little effect (training losses differ by at most 5%)": partial(
        late_losses_agree,
        overrides_by_label={f"participation {rate}": f"participation={rate}" for rate in PARTICIPATION_RATES},
        tolerance=0.05,
    ),
}


def _preceding_accuracy(history: History) -> float:
    """Return the mean test accuracy over the window before the last one."""
    return history._replace(window=history.window.preceding).late_accuracy


def _setting_label(values: Mapping[str, Any]) -> str:
    if values["algorithm"] == "sequential":
        return f"alpha={values['alpha']:g}"
    return str(Sentiment140Setting(values["rounds_per_day"], values["alpha"]))


PUBLISHED_NAMES = published_names(
    sentiment140_experiment,
    {
        "E24_fv0": Sentiment140Setting(24, 0),
        "E120_fv0": Sentiment140Setting(120, 0),
        "E120_fv0.5": Sentiment140Setting(120, 0.5),
    },
)
"""Name of our experiment -> the authors' key.

Their sequential SGD is compared with ours at alpha = 0, because its history begins on that test set.
"""
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
PUBLISHED = PublishedRuns(PUBLISHED_NAMES, QUOTED, window=Window(9000, 10000), level=0.70)
_IN_FIGURES = {experiment.name: experiment for figure in FIGURES.values() for experiment in figure().experiments}
_SEQUENTIAL = sentiment140_experiment(  # published, but in none of our figures: it takes hours of very small steps
    "algorithm=sequential participation=0.001 local_steps=1000"
)
SENTIMENT140 = PaperTask(
    experiment=sentiment140_experiment,
    experiments={**_IN_FIGURES, _SEQUENTIAL.name: _SEQUENTIAL},
    settings=SETTINGS,
    setting_label=_setting_label,
    checks=CHECKS,
    published=PUBLISHED,
    tolerances=(0.01, 0.02),
    data="sentiment140",
)
