"""The paper's statements about MNIST (the convex case) with their checks, and the published numbers.

The paper makes its statements in words; the numeric thresholds are ours. A check is a function of histories, so the
same one is applied to our runs and, where they are available, to the published ones.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from fedlatest.report import Claim, RunRecord
from fedlatest.report.run_records import cycle, stays_above
from fedlatest.reproduction.checks import (
    BASELINES,
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
)
from fedlatest.reproduction.judging import NEVER, PaperTask, PublishedCurves, PublishedRuns, Summary, published_names
from fedlatest.reproduction.mnist_figures import FEDADAM_STEPS, FIGURES, SETTINGS, MnistSetting, mnist_experiment

LARGER_E = [MnistSetting(50, 1), MnistSetting(100, 1), MnistSetting(200, 1)]
LARGER_D = [MnistSetting(100, 1), MnistSetting(100, 3), MnistSetting(100, 5)]
FEDADAM_STATEMENT = "FedAdam oscillates even with the best server step that was tried (swing above 0.05)"


def mnist_claims(runs: Mapping[str, RunRecord], published: PublishedCurves | None = None) -> list[Claim]:
    """Return every claim about MNIST that the runs, by experiment name, allow to be evaluated."""
    fedadam_swing = PUBLISHED.summaries(published or {})["FedAdam", "E100_alpha0.1"].swing
    fedadam_text = f"swing {fedadam_swing:.4f} (its settings were not published)"
    claims = MNIST.claims(runs, published or {})
    return [claim._replace(published=fedadam_text) if claim.claim == FEDADAM_STATEMENT else claim for claim in claims]


def converges_by_2000(runs: HistoryLookup) -> CheckResult | None:
    """Check that test accuracy, mean over seeds, stays within 0.01 of its late mean from round 2500 or earlier."""
    first_rounds = {
        setting: stays_above(history.rounds, history.test_accuracy.mean(axis=0), history.late_accuracy - 0.01)
        for setting, history in runs.find_in_settings("").items()
    }
    if not first_rounds:
        return None
    text = f"within 0.01 of the final mean from round {format_values(first_rounds, '.0f')}"
    return CheckResult(text, max(first_rounds.values()) <= 2500)


def approaches_sequential(runs: HistoryLookup) -> CheckResult | None:
    """Check that FedLaAvg's late training loss is at most 10% above that of sequential SGD."""
    sequential, fedlaavg = runs.find("algorithm=sequential"), runs.find_in_settings("")
    if sequential is None or not fedlaavg:
        return None
    ratios = {setting: history.late_loss / sequential.late_loss for setting, history in fedlaavg.items()}
    text = f"training loss over that of sequential SGD: {format_values(ratios, '.2f')}"
    return CheckResult(text, max(ratios.values()) <= 1.1)


def oscillates_with_the_period(runs: HistoryLookup) -> CheckResult | None:
    """Check that the strongest cycle of test accuracy in the second half of the rounds lasts E or 2E rounds.

    The neighbouring frequencies of the discrete Fourier transform also count as E or 2E.
    """
    num_matching, others = 0, []
    for name, overrides in BASELINES.items():
        for setting, history in runs.find_in_settings(overrides).items():
            span = history.rounds[-1] / 2
            second_half = history.rounds > span
            length = cycle(history.rounds[second_half], history.test_accuracy[:, second_half].mean(axis=0))
            if any(abs(span / length - span / expected) <= 1 for expected in (setting.period, 2 * setting.period)):
                num_matching += 1
            else:
                others.append(f"{name}, {setting}: {length:.0f} rounds")
    if not (num_matching or others):
        return None
    text = "; ".join(others) or f"the strongest cycle lasts E or 2E rounds in all {num_matching} runs"
    return CheckResult(text, not others)


def larger_cohorts_are_steadier(runs: HistoryLookup) -> CheckResult | None:
    """Check that the training loss rises less on its way down with larger cohorts, up to a point.

    "Up to a point": from participation 0.1 to 1.0 the late training loss falls by less than 3%.
    """
    found = {rate: runs.find(f"participation={rate}") for rate in (0.05, 0.1, 1.0)}
    histories = {rate: history for rate, history in found.items() if history is not None}
    if len(histories) < len(found):
        return None
    rises = {f"participation {rate}": _total_rise(history) for rate, history in histories.items()}
    gain = 1 - histories[1.0].late_loss / histories[0.1].late_loss
    text = (
        f"training loss rises by {format_values(rises, '.3f')} in total; "
        f"from participation 0.1 to 1.0 it ends {100 * gain:.1f}% lower"
    )
    small, medium, full = rises.values()
    return CheckResult(text, small >= medium >= full and gain < 0.03)


def fedadam_oscillates(runs: HistoryLookup) -> CheckResult | None:
    """Check that FedAdam's swing is above 0.05 with the server step that has the lowest late training loss."""
    tried = {step: found for step in FEDADAM_STEPS if (found := runs.find(f"algorithm=fedadam server_step={step}"))}
    if not tried:
        return None
    best = min(tried, key=lambda step: tried[step].late_loss)
    swing = float(tried[best].swings.mean())
    return CheckResult(f"swing {swing:.4f} with the best of {len(tried)} server steps ({best})", swing > 0.05)


CHECKS: dict[str, Check] = {
    "FedLaAvg converges in about 2000 rounds in all settings (test accuracy is within 0.01 of its final mean from "
    "round 2500 at the latest)": converges_by_2000,
    "FedLaAvg approaches sequential SGD (training loss at most 10% higher)": approaches_sequential,
    "FedSGD, FedAvg and FedProx oscillate in every setting (swing at least 3 times FedLaAvg's)": baselines_oscillate,
    "FedSGD, FedAvg and FedProx oscillate with the period of availability (the strongest cycle lasts E or 2E rounds)": (
        oscillates_with_the_period
    ),
    "FedSGD, FedAvg and FedProx oscillate more for larger E": partial(baselines_oscillate_more, settings=LARGER_E),
    "FedSGD, FedAvg and FedProx oscillate more for larger D": partial(baselines_oscillate_more, settings=LARGER_D),
    "FedProx behaves like FedAvg (training losses differ by at most 5%)": fedprox_tracks_fedavg,
    "Ten local steps converge in fewer rounds than one (at most half as many)": more_local_steps_need_fewer_rounds,
    "The number of clients has little effect (training losses differ by at most 3%)": partial(
        late_losses_agree,
        overrides_by_label={f"N={number}": f"num_clients={number}" for number in (200, 600, 1000)},
        tolerance=0.03,
    ),
    "Training is steadier with larger cohorts, up to a point (from participation 0.1 to 1.0 the training loss falls by "
    "less than 3%)": larger_cohorts_are_steadier,
    FEDADAM_STATEMENT: fedadam_oscillates,
}


def _total_rise(history: History) -> float:
    """Return the sum of all rises of the training loss between evaluations from round 200 on, mean over seeds.

    By round 200 both blocks of the default setting have passed, so every client has been available.
    """
    losses = history.train_loss[:, history.rounds >= 200]
    return float(np.maximum(np.diff(losses, axis=1), 0).sum(axis=1).mean())


def _setting_label(values: Mapping[str, Any]) -> str:
    return "" if values["algorithm"] == "sequential" else str(MnistSetting(values["period"], values["digits"]))


PUBLISHED_NAMES = published_names(
    mnist_experiment,
    {  # the authors' alpha is D / 10
        "E50_alpha0.1": MnistSetting(50, 1),
        "E100_alpha0.1": MnistSetting(100, 1),
        "E100_alpha0.5": MnistSetting(100, 5),
    },
)
"""Name of our experiment -> the authors' key; without FedAdam, whose settings were not published."""
QUOTED = {
    ("FedLaAvg", "E50_alpha0.1"): Summary(0.9190, 0.0025, 580),
    ("FedLaAvg", "E100_alpha0.1"): Summary(0.9190, 0.0037, 920),
    ("FedLaAvg", "E100_alpha0.5"): Summary(0.9132, 0.0110, 2520),
    ("FedLaAvg_C1", "E50_alpha0.1"): Summary(0.8981, 0.0051, NEVER),
    ("FedLaAvg_C1", "E100_alpha0.1"): Summary(0.8983, 0.0055, NEVER),
    ("FedLaAvg_C1", "E100_alpha0.5"): Summary(0.8978, 0.0064, NEVER),
    ("FedAvg", "E50_alpha0.1"): Summary(0.9030, 0.0402, NEVER),
    ("FedAvg", "E100_alpha0.1"): Summary(0.8833, 0.1034, NEVER),
    ("FedAvg", "E100_alpha0.5"): Summary(0.7919, 0.1897, NEVER),
    ("FedProx", "E50_alpha0.1"): Summary(0.9028, 0.0396, NEVER),
    ("FedProx", "E100_alpha0.1"): Summary(0.8836, 0.1029, NEVER),
    ("FedProx", "E100_alpha0.5"): Summary(0.7953, 0.1861, NEVER),
    ("FedSGD", "E50_alpha0.1"): Summary(0.8790, 0.0184, NEVER),
    ("FedSGD", "E100_alpha0.1"): Summary(0.8761, 0.0397, NEVER),
    ("FedSGD", "E100_alpha0.5"): Summary(0.8795, 0.0533, NEVER),
    ("Naive", "E50_alpha0.1"): Summary(0.8516, 0.0089, NEVER),
    ("Naive", "E100_alpha0.1"): Summary(0.8248, 0.0116, NEVER),
    ("Naive", "E100_alpha0.5"): Summary(0.8249, 0.0115, NEVER),
    ("FedAdam", "E100_alpha0.1"): Summary(0.8205, 0.2199, NEVER),
    ("SGD", "C10"): Summary(0.9199, 0.0020, 450),
    ("SGD", "C10_old"): Summary(0.9251, 0.0041, 10),
}
PUBLISHED = PublishedRuns(PUBLISHED_NAMES, QUOTED, window=Window(3000, 4000), level=0.90)
MNIST = PaperTask(
    experiment=mnist_experiment,
    experiments={experiment.name: experiment for figure in FIGURES.values() for experiment in figure().experiments},
    settings=SETTINGS,
    setting_label=_setting_label,
    checks=CHECKS,
    published=PUBLISHED,
    tolerances=(0.004, 0.012),
)
