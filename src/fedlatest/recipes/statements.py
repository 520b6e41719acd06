"""Statements that a paper makes of more than one task, as checks.

A check is a function of histories, so the same one is put to our runs and, where they are at hand, to the published
ones. Its thresholds are ours: the paper speaks in words.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from fedlatest.recipes.histories import Found, Histories, History, Setting

RIVALS = {"FedSGD": "algorithm=fedsgd", "FedAvg": "algorithm=fedavg", "FedProx": "algorithm=fedprox"}


def rivals_oscillate(runs: Histories, *, settings: Sequence[Setting] = ()) -> Found | None:
    """Swing over FedLaAvg's in the same setting, of some or of all: at least three times."""
    calm = runs.by_setting("", settings)
    ratios = {
        f"{name}, {where}": times(history, calm[where])
        for name, changes in RIVALS.items()
        for where, history in runs.by_setting(changes, settings).items()
        if where in calm
    }
    if not ratios:
        return None
    least, most = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
    text = f"{ratios[least]:.1f} ({least}) to {ratios[most]:.1f} times ({most}) FedLaAvg's swing"
    return Found(text, ratios[least] >= 3)


def rivals_oscillate_more(runs: Histories, *, settings: Sequence[Setting]) -> Found | None:
    """The rivals' swings grow from one of these settings to the next."""
    texts, holds = [], True
    for name, changes in RIVALS.items():
        swings = [float(history.swings.mean()) for history in runs.by_setting(changes, settings).values()]
        if len(swings) > 1:
            texts.append(f"{name} {' < '.join(f'{swing:.3f}' for swing in swings)}")
            holds = holds and all(less < more for less, more in pairwise(swings))
    return Found(f"swing {'; '.join(texts)}".replace("<", "<" if holds else "then"), holds) if texts else None


def fedprox_tracks_fedavg(runs: Histories) -> Found | None:
    """Mean distance of their training losses in the end over FedAvg's: at most 5%."""
    prox, plain = runs.by_setting("algorithm=fedprox"), runs.by_setting("algorithm=fedavg")
    apart = {
        where: 100 * float(np.abs(prox[where].late_losses - plain[where].late_losses).mean()) / plain[where].loss
        for where in prox
        if where in plain
    }
    return Found(f"training losses differ by {each(apart, '.1f%')}", max(apart.values()) <= 5) if apart else None


def more_steps_are_faster(runs: Histories) -> Found | None:
    """Rounds to the training loss that one local step ends at: with ten, at most half as many."""
    slow, fast = runs.by_setting("local_steps=1"), runs.by_setting("")
    faster = {
        where: slow[where].arrives_below(slow[where].loss) / max(1.0, fast[where].arrives_below(slow[where].loss))
        for where in slow
        if where in fast
    }
    return Found(f"{each(faster, '.1f')} times fewer rounds with C = 10", min(faster.values()) >= 2) if faster else None


def losses_end_alike(runs: Histories, *, named: Mapping[str, str], within: float) -> Found | None:
    """Training losses in the end of some runs, by what is told of them: at most a share apart."""
    losses = {words: found.loss for words, changes in named.items() if (found := runs.find(changes))}
    if len(losses) < 2:
        return None
    apart = max(losses.values()) / min(losses.values()) - 1
    return Found(f"training loss {each(losses, '.4f')}: {100 * apart:.1f}% apart", apart <= within)


def times(history: History, calm: History) -> float:
    """The swing of one in swings of another; two that do not move at all swing alike."""
    more, less = float(history.swings.mean()), float(calm.swings.mean())
    if less == 0:
        return 1.0 if more == 0 else math.inf
    return more / less


def each(values: Mapping[Any, float], digits: str) -> str:
    """Numbers, each with what it is of.

    >>> each({"N=200": 0.5, "N=600": float("inf")}, ".2f")
    '0.50 (N=200), never (N=600)'
    """
    unit = "%" if digits.endswith("%") else ""
    texts = {
        key: f"{value:{digits.rstrip('%')}}{unit}" if np.isfinite(value) else "never" for key, value in values.items()
    }
    return ", ".join(f"{text} ({key})" for key, text in texts.items())
