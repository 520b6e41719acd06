"""What the paper says of the convex case, each statement as a check with a number.

A check is a function of histories, so the same one is put to our runs and, where they are at hand, to the published
ones. Its thresholds are ours: the paper speaks in words.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from fedlatest.report import Claim, PublishedCurve, RunRecord
from fedlatest.report.run_records import cycle, stays_above
from fedlatest.reproduction.checks import (
    RIVALS,
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
)
from fedlatest.reproduction.judging import NEVER, Key, PublishedRuns, Summary, Task, names
from fedlatest.reproduction.mnist_figures import FEDADAM_STEPS, FIGURES, SETTINGS, Pattern, run

NAMES = names(
    run,
    {  # alpha is D / 10
        "E50_alpha0.1": Pattern(50, 1),
        "E100_alpha0.1": Pattern(100, 1),
        "E100_alpha0.5": Pattern(100, 5),
    },
)  # FedAdam's settings were not published
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
PUBLISHED = PublishedRuns(NAMES, QUOTED, window=Window(3000, 4000), level=0.90)


FEDADAM = "FedAdam oscillates, its step searched (swing above 0.05)"
LARGER_E = [Pattern(50, 1), Pattern(100, 1), Pattern(200, 1)]
LARGER_D = [Pattern(100, 1), Pattern(100, 3), Pattern(100, 5)]


def mnist_claims(runs: Mapping[str, RunRecord], published: Mapping[Key, PublishedCurve] | None = None) -> list[Claim]:
    """Every claim about which the runs, by name, can say something."""
    swing = PUBLISHED.summaries(published or {})["FedAdam", "E100_alpha0.1"].swing
    adam = f"swing {swing:.4f} (its settings were not published)"
    claims = MNIST.claims(runs, published or {})
    return [claim if claim.claim != FEDADAM else claim._replace(published=adam) for claim in claims]


def converges_by_2000(runs: Histories) -> Found | None:
    """Round from which the mean test accuracy stays within 0.01 of where it ends; about 2000: at most 2500."""
    arrived = {
        where: stays_above(history.rounds, history.test_accuracy.mean(axis=0), history.accuracy - 0.01)
        for where, history in runs.by_setting("").items()
    }
    if not arrived:
        return None
    return Found(f"within 0.01 of its end from round {each(arrived, '.0f')}", max(arrived.values()) <= 2500)


def approaches_sequential(runs: Histories) -> Found | None:
    """Training loss in the end over that of sequential SGD: at most 10% more."""
    ideal, ours = runs.find("algorithm=sequential"), runs.by_setting("")
    if ideal is None or not ours:
        return None
    ratios = {where: history.loss / ideal.loss for where, history in ours.items()}
    return Found(f"training loss over sequential SGD's: {each(ratios, '.2f')}", max(ratios.values()) <= 1.1)


def oscillates_with_the_period(runs: Histories) -> Found | None:
    """The strongest cycle of test accuracy in the second half lasts E or 2E rounds, to the next longer or shorter."""
    right, wrong = 0, []
    for name, changes in RIVALS.items():
        for where, history in runs.by_setting(changes).items():
            half = history.rounds > history.rounds[-1] / 2
            found = cycle(history.rounds[half], history.test_accuracy[:, half].mean(axis=0))
            span = history.rounds[-1] / 2
            if any(abs(span / found - span / length) <= 1 for length in (where.period, 2 * where.period)):
                right += 1
            else:
                wrong.append(f"{name}, {where}: {found:.0f} rounds")
    if not (right or wrong):
        return None
    return Found("; ".join(wrong) or f"the strongest cycle lasts E or 2E rounds in all {right} runs", not wrong)


def more_participants_are_steadier(runs: Histories) -> Found | None:
    """How far training loss rises on its way down is less with more participants, up to a point.

    "Up to a point": from 0.1 to 1.0 the loss in the end falls by under 3%.
    """
    found = {share: runs.find(f"participation={share}") for share in (0.05, 0.1, 1.0)}
    histories = {share: history for share, history in found.items() if history is not None}
    if len(histories) < len(found):
        return None
    rises = {f"participation {share}": _rises(history) for share, history in histories.items()}
    gain = 1 - histories[1.0].loss / histories[0.1].loss
    text = f"training loss rises by {each(rises, '.3f')} in all; from 0.1 to 1.0 it ends {100 * gain:.1f}% lower"
    few, some, all_ = rises.values()
    return Found(text, few >= some >= all_ and gain < 0.03)


def fedadam_oscillates(runs: Histories) -> Found | None:
    """The best server step by training loss in the end; its swing is above 0.05."""
    tried = {step: found for step in FEDADAM_STEPS if (found := runs.find(f"algorithm=fedadam server_step={step}"))}
    if not tried:
        return None
    best = min(tried, key=lambda step: tried[step].loss)
    swing = float(tried[best].swings.mean())
    return Found(f"swing {swing:.4f} with the best server step of {len(tried)} ({best})", swing > 0.05)


CHECKS: dict[str, Check] = {
    "FedLaAvg converges in about 2000 rounds in all settings (within 0.01 of its end by 2500)": converges_by_2000,
    "FedLaAvg approaches sequential SGD (training loss at most 10% above)": approaches_sequential,
    "FedSGD, FedAvg and FedProx oscillate in every setting (at least 3 times FedLaAvg's swing)": rivals_oscillate,
    "they oscillate with the period of availability (strongest cycle E or 2E rounds)": oscillates_with_the_period,
    "they oscillate more for larger E": partial(rivals_oscillate_more, settings=LARGER_E),
    "they oscillate more for larger D": partial(rivals_oscillate_more, settings=LARGER_D),
    "FedProx tracks FedAvg (training losses at most 5% apart)": fedprox_tracks_fedavg,
    "ten local steps converge in fewer rounds than one (at most half)": more_steps_are_faster,
    "the number of clients matters little (training losses at most 3% apart)": partial(
        losses_end_alike, named={f"N={number}": f"num_clients={number}" for number in (200, 600, 1000)}, within=0.03
    ),
    "more participants in a round are steadier, up to a point (0.1 to 1.0: under 3%)": more_participants_are_steadier,
    FEDADAM: fedadam_oscillates,
}


def _rises(history: History) -> float:
    """How far training loss rises from one evaluation to the next, summed from round 200 on, mean over seeds.

    By then a day and a night have passed and everybody has been seen.
    """
    losses = history.train_loss[:, history.rounds >= 200]
    return float(np.maximum(np.diff(losses, axis=1), 0).sum(axis=1).mean())


def _where(values: Mapping[str, Any]) -> str:
    return "" if values["algorithm"] == "sequential" else str(Pattern(values["period"], values["digits"]))


MNIST = Task(
    named=run,
    experiments={experiment.name: experiment for figure in FIGURES.values() for experiment in figure().experiments},
    settings=SETTINGS,
    where=_where,
    checks=CHECKS,
    published=PUBLISHED,
    tolerances=(0.004, 0.012),
)
