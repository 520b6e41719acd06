"""Runs that never were: histories of which the answer is known."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedlatest.experiments import Experiment
from fedlatest.report import Claim, RunRecord
from fedlatest.reproduction.judging import STATEMENTS
from fedlatest.runs import Metrics, Row

Numbers = npt.NDArray[np.float64]
Shape = Callable[[Numbers], Numbers]


def record(
    named: Callable[[str], Experiment],
    changes: str,
    *,
    accuracy: Shape,
    loss: Shape,
    rounds: int,
    every: int,
    seeds: int = 1,
    status: str = "finished",
    data: str = "made up",
) -> RunRecord:
    """A run evaluated every so many rounds; seed s is 0.0001 s more accurate."""
    at = np.arange(0, rounds + 1, every, dtype=float)
    losses, accuracies = loss(at), accuracy(at)
    rows = [
        Row(seed, int(at[i]), 0.0, float(losses[i]), 0.9, 1.0, float(accuracies[i]) + 0.0001 * seed)
        for seed in range(seeds)
        for i in range(len(at))
    ]
    experiment = named(changes).with_values(rounds=rounds)
    values = dict(experiment.values)
    config = {"algorithm": {"name": values["algorithm"]}, "rounds": rounds, "recipe": values}
    manifest = {"status": status, "config": config, "data": {"name": data}}
    return RunRecord(Path("anywhere") / experiment.name, manifest, Metrics(rows))


def falling(end: float, rate: float = 300) -> Shape:
    """From 2 above its end."""
    return lambda rounds: end + 2 * np.exp(-rounds / rate)


def rising(end: float, rate: float = 300) -> Shape:
    """From 0.8 below its end."""
    return lambda rounds: end - 0.8 * np.exp(-rounds / rate)


def wave(middle: float, swing: float, length: float) -> Shape:
    """A triangle between middle - swing/2 and middle + swing/2."""
    return lambda rounds: middle + swing * (np.abs((rounds / length) % 1 - 0.5) * 2 - 0.5)


def flat(level: float, swing: float = 0.0) -> Shape:
    """At a level, but for a swing every 200 rounds."""
    return wave(level, swing, 200)


def verdicts(claims: Sequence[Claim]) -> dict[str, bool | None]:
    """What was found of the paper's statements."""
    return {claim.claim: claim.holds for claim in claims if claim.group == STATEMENTS}
