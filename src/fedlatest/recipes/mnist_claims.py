"""What the paper says of the convex case, each statement as a check with a number.

A check is a function of histories, so the same one is put to our runs and, where they are at hand, to the published
ones. Its thresholds are ours: the paper speaks in words.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.recipes.mnist_figures import FEDADAM_STEPS, FIGURES, SETTINGS, Pattern, run, setting
from fedlatest.recipes.mnist_published import LATE, LEVEL, NAMES, Summary, covers, summaries
from fedlatest.report import TITLES, Claim, PublishedCurve, RunRecord
from fedlatest.report.curve import arrives_below, cycle, stays_above
from fedlatest.report.records import LAST_SHARE

Values = npt.NDArray[np.float64]
ROUNDS = LATE[1]
STATEMENTS = "What the paper says"
MEANS = "Mean test accuracy over rounds (3000, 4000]: within 0.004 for FedLaAvg and sequential SGD, 0.012 for the rest"
SWINGS = "Swing, largest minus smallest test accuracy there: within a factor of 1.6, or inside the range of seeds"
ARRIVALS = f"Round from which test accuracy stays at or above {LEVEL:.2f}: within 20%"
FEDADAM = "FedAdam oscillates, its step searched (swing above 0.05)"
RIVALS = {"FedSGD": "algorithm=fedsgd", "FedAvg": "algorithm=fedavg", "FedProx": "algorithm=fedprox"}
EXPERIMENTS = {experiment.name: experiment for figure in FIGURES.values() for experiment in figure().experiments}
_IGNORED = {"rounds", "evaluate_every", "partition_seed"}


class History(NamedTuple):
    """A run as a check sees it."""

    rounds: npt.NDArray[np.int64]
    train_loss: Values  # [seeds, evaluations]
    test_accuracy: Values

    @property
    def late(self) -> npt.NDArray[np.bool_]:
        """Which evaluations are in the last quarter."""
        return self.rounds > (1 - LAST_SHARE) * self.rounds[-1]

    @property
    def loss(self) -> float:
        """Mean training loss in the last quarter."""
        return float(self.train_loss[:, self.late].mean())

    @property
    def accuracy(self) -> float:
        """Mean test accuracy in the last quarter."""
        return float(self.test_accuracy[:, self.late].mean())

    @property
    def swings(self) -> Values:
        """[seeds] largest minus smallest test accuracy in the last quarter."""
        return np.asarray(np.ptp(self.test_accuracy[:, self.late], axis=1))

    @property
    def late_losses(self) -> Values:
        """[late evaluations] training loss, mean over seeds."""
        return np.asarray(self.train_loss[:, self.late].mean(axis=0))

    @property
    def rises(self) -> float:
        """How far training loss rises from one evaluation to the next, summed from round 200 on, mean over seeds.

        By then a day and a night have passed and everybody has been seen.
        """
        losses = self.train_loss[:, self.rounds >= 200]
        return float(np.maximum(np.diff(losses, axis=1), 0).sum(axis=1).mean())

    def arrives_below(self, loss: float) -> float:
        """The first round with a training loss, mean over seeds, at or below one."""
        return arrives_below(self.rounds, self.train_loss.mean(axis=0), loss)


class Found(NamedTuple):
    """What a check found."""

    text: str
    holds: bool


class Histories:
    """Histories by the name of the run; notes which were asked for in vain."""

    def __init__(self, histories: Mapping[str, History]) -> None:
        self._histories = histories
        self.missing: set[str] = set()

    def find(self, changes: str) -> History | None:
        """The run that these changes to the paper's default make."""
        name = run(changes).name
        if name not in self._histories:
            self.missing.add(name)
        return self._histories.get(name)

    def by_setting(self, changes: str) -> dict[Pattern, History]:
        """The runs of an algorithm in those of the five settings that there are."""
        found = {where: self.find(f"{changes} {setting(*where)}") for where in SETTINGS}
        return {where: history for where, history in found.items() if history is not None}


Check = Callable[[Histories], Found | None]  # None where there is nothing to say


def recognise(runs: Iterable[RunRecord]) -> dict[str, RunRecord]:
    """The finished runs that are the paper's MNIST experiments, by their name, whatever their folders are called."""
    names = {_identity(experiment.values): name for name, experiment in EXPERIMENTS.items()}
    finished = [run for run in runs if run.manifest["status"] == "finished" and _identity(run.recipe) in names]
    finished.sort(key=lambda run: (run.rounds == ROUNDS, len(run.metrics.seeds)))  # of several, the last is taken
    return {names[_identity(run.recipe)]: run for run in finished}


def mnist_claims(
    runs: Mapping[str, RunRecord], published: Mapping[tuple[str, str], PublishedCurve] | None = None
) -> list[Claim]:
    """Every claim about which the runs, by name, can say something: those that have the paper's number of rounds."""
    ours = {name: _history(run) for name, run in runs.items() if run.rounds == ROUNDS}
    theirs = _theirs(published or {})
    summary = summaries(published or {})
    claims = [_statement(text, check, ours, theirs) for text, check in CHECKS.items()]
    adam = f"swing {summary['FedAdam', 'E100_alpha0.1'].swing:.4f} (its settings were not published)"
    found = [claim if claim.claim != FEDADAM else claim._replace(published=adam) for claim in claims if claim]
    return [*found, *_against_published(ours, summary)]


def converges_by_2000(runs: Histories) -> Found | None:
    """Round from which the mean test accuracy stays within 0.01 of where it ends; about 2000: at most 2500."""
    arrived = {
        where: stays_above(history.rounds, history.test_accuracy.mean(axis=0), history.accuracy - 0.01)
        for where, history in runs.by_setting("").items()
    }
    if not arrived:
        return None
    return Found(f"within 0.01 of its end from round {_each(arrived, '.0f')}", max(arrived.values()) <= 2500)


def approaches_sequential(runs: Histories) -> Found | None:
    """Training loss in the end over that of sequential SGD: at most 10% more."""
    ideal, ours = runs.find("algorithm=sequential"), runs.by_setting("")
    if ideal is None or not ours:
        return None
    ratios = {where: history.loss / ideal.loss for where, history in ours.items()}
    return Found(f"training loss over sequential SGD's: {_each(ratios, '.2f')}", max(ratios.values()) <= 1.1)


def rivals_oscillate(runs: Histories) -> Found | None:
    """Swing over FedLaAvg's in the same setting: at least three times."""
    calm = runs.by_setting("")
    ratios = {
        f"{name}, {_in_words(where)}": float(history.swings.mean() / calm[where].swings.mean())
        for name, changes in RIVALS.items()
        for where, history in runs.by_setting(changes).items()
        if where in calm
    }
    if not ratios:
        return None
    least, most = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
    text = f"{ratios[least]:.0f} ({least}) to {ratios[most]:.0f} times ({most}) FedLaAvg's swing"
    return Found(text, ratios[least] >= 3)


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
                wrong.append(f"{name}, {_in_words(where)}: {found:.0f} rounds")
    if not (right or wrong):
        return None
    return Found("; ".join(wrong) or f"the strongest cycle lasts E or 2E rounds in all {right} runs", not wrong)


def worse_for_larger_blocks(runs: Histories) -> Found | None:
    """Swing grows with E at D = 1."""
    return _grows(runs, [Pattern(50, 1), Pattern(100, 1), Pattern(200, 1)])


def worse_for_more_digits(runs: Histories) -> Found | None:
    """Swing grows with D at E = 100."""
    return _grows(runs, [Pattern(100, 1), Pattern(100, 3), Pattern(100, 5)])


def fedprox_tracks_fedavg(runs: Histories) -> Found | None:
    """Mean distance of their training losses in the last quarter over FedAvg's: at most 5%."""
    prox, plain = runs.by_setting("algorithm=fedprox"), runs.by_setting("algorithm=fedavg")
    apart = {
        where: 100 * float(np.abs(prox[where].late_losses - plain[where].late_losses).mean()) / plain[where].loss
        for where in prox
        if where in plain
    }
    return Found(f"training losses differ by {_each(apart, '.1f%')}", max(apart.values()) <= 5) if apart else None


def more_steps_are_faster(runs: Histories) -> Found | None:
    """Rounds to the training loss that one local step ends at: with ten, at most half as many."""
    slow, fast = runs.by_setting("local_steps=1"), runs.by_setting("")
    faster = {
        where: slow[where].arrives_below(slow[where].loss) / max(1.0, fast[where].arrives_below(slow[where].loss))
        for where in slow
        if where in fast
    }
    return (
        Found(f"{_each(faster, '.1f')} times fewer rounds with C = 10", min(faster.values()) >= 2) if faster else None
    )


def clients_matter_little(runs: Histories) -> Found | None:
    """Training loss in the end with 200, 600 and 1000 clients: at most 3% apart."""
    losses = {f"N={n}": found.loss for n in (200, 600, 1000) if (found := runs.find(f"num_clients={n}"))}
    if len(losses) < 2:
        return None
    apart = max(losses.values()) / min(losses.values()) - 1
    return Found(f"training loss {_each(losses, '.4f')}: {100 * apart:.1f}% apart", apart <= 0.03)


def more_participants_are_steadier(runs: Histories) -> Found | None:
    """How far training loss rises on its way down is less with more participants, up to a point.

    "Up to a point": from 0.1 to 1.0 the loss in the end falls by under 3%.
    """
    found = {share: runs.find(f"participation={share}") for share in (0.05, 0.1, 1.0)}
    histories = {share: history for share, history in found.items() if history is not None}
    if len(histories) < len(found):
        return None
    rises = {f"participation {share}": history.rises for share, history in histories.items()}
    gain = 1 - histories[1.0].loss / histories[0.1].loss
    text = f"training loss rises by {_each(rises, '.3f')} in all; from 0.1 to 1.0 it ends {100 * gain:.1f}% lower"
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
    "they oscillate more for larger E": worse_for_larger_blocks,
    "they oscillate more for larger D": worse_for_more_digits,
    "FedProx tracks FedAvg (training losses at most 5% apart)": fedprox_tracks_fedavg,
    "ten local steps converge in fewer rounds than one (at most half)": more_steps_are_faster,
    "the number of clients matters little (training losses at most 3% apart)": clients_matter_little,
    "more participants in a round are steadier, up to a point (0.1 to 1.0: under 3%)": more_participants_are_steadier,
    FEDADAM: fedadam_oscillates,
}


def _statement(text: str, check: Check, ours: Mapping[str, History], theirs: Mapping[str, History]) -> Claim | None:
    """A statement is judged by all the runs that it is about, or not at all."""
    asked = Histories(ours)
    found, published = check(asked), check(Histories(theirs))
    if found is None:
        return None
    theirs_too = "" if published is None else published.text + ("" if published.holds else " (does not hold either)")
    return Claim(STATEMENTS, text, found.text, theirs_too, None if asked.missing else found.holds)


def _against_published(ours: Mapping[str, History], summary: Mapping[tuple[str, str], Summary]) -> list[Claim]:
    """Our number, theirs, and whether they agree as closely as such runs can be expected to."""
    means, swings, arrivals = [], [], []
    for name, key in NAMES.items():
        if name not in ours:
            continue
        history, theirs, what = ours[name], summary[key], _what(name)
        steady = key[0] in ("FedLaAvg", "FedLaAvg_C1", "SGD")
        close = abs(history.accuracy - theirs.mean) <= (0.004 if steady else 0.012)
        apart = round(history.accuracy - theirs.mean, 4) + 0.0  # no minus before a zero
        measured = f"{history.accuracy:.4f} ({apart:+.4f})"
        means.append(Claim(MEANS, what, measured, f"{theirs.mean:.4f}", close))
        seeds = history.swings
        alike = theirs.swing / 1.6 <= seeds.mean() <= 1.6 * theirs.swing or seeds.min() <= theirs.swing <= seeds.max()
        measured = f"{seeds.mean():.4f} ({seeds.min():.4f} to {seeds.max():.4f})"
        swings.append(Claim(SWINGS, what, measured, f"{theirs.swing:.4f}", bool(alike)))
        if key[0] == "FedLaAvg":
            rounds = [stays_above(history.rounds, curve, LEVEL) for curve in history.test_accuracy]
            near = np.isfinite(rounds).all() and abs(np.mean(rounds) / theirs.stays_above - 1) <= 0.2
            measured = f"{_round(float(np.mean(rounds)))} ({_round(min(rounds))} to {_round(max(rounds))})"
            arrivals.append(Claim(ARRIVALS, what, measured, _round(theirs.stays_above), bool(near)))
    return [*means, *swings, *arrivals]


def _history(run: RunRecord) -> History:
    return History(run.metrics.rounds, *(run.metrics.column(name) for name in ("train_loss", "test_accuracy")))


def _theirs(published: Mapping[tuple[str, str], PublishedCurve]) -> dict[str, History]:
    histories = {}
    for name, key in NAMES.items():
        if key in published and covers(published[key]):
            curve = published[key]
            seen = curve.rounds <= ROUNDS
            losses, accuracies = curve.train_loss[seen][None], curve.test_accuracy[seen][None]
            histories[name] = History(curve.rounds[seen], losses, accuracies)
    return histories


def _identity(values: Mapping[str, Any]) -> str:
    return json.dumps({key: value for key, value in values.items() if key not in _IGNORED}, sort_keys=True)


def _grows(runs: Histories, settings: Sequence[Pattern]) -> Found | None:
    """The rivals' swings, one setting after the other."""
    texts, holds = [], True
    for name, changes in RIVALS.items():
        found = runs.by_setting(changes)
        swings = [float(found[where].swings.mean()) for where in settings if where in found]
        if len(swings) > 1:
            texts.append(f"{name} {' < '.join(f'{swing:.3f}' for swing in swings)}")
            holds = holds and all(less < more for less, more in pairwise(swings))
    return Found(f"swing {'; '.join(texts)}".replace("<", "<" if holds else "then"), holds) if texts else None


def _each(values: Mapping[Any, float], digits: str) -> str:
    unit = "%" if digits.endswith("%") else ""
    texts = {
        key: f"{value:{digits.rstrip('%')}}{unit}" if np.isfinite(value) else "never" for key, value in values.items()
    }
    return ", ".join(f"{text} ({_in_words(key)})" for key, text in texts.items())


def _round(number: float) -> str:
    return f"{number:.0f}" if np.isfinite(number) else "never"


def _in_words(where: Any) -> str:
    return f"E={where.period}, D={where.digits}" if isinstance(where, Pattern) else str(where)


def _what(name: str) -> str:
    """A run of the paper, as a row of a table names it."""
    values = EXPERIMENTS[name].values
    if values["algorithm"] == "sequential":
        batch = round(values["participation"] * values["num_clients"]) * values["batch_size"]
        return f"Sequential SGD, {values['local_steps']} steps of {batch}"
    one_step = ", C=1" if values["algorithm"] == "fedlaavg" and values["local_steps"] == 1 else ""
    return f"{TITLES[values['algorithm']]}{one_step}, {_in_words(Pattern(values['period'], values['digits']))}"
