"""Synthetic run records with histories of known shape, for which the verdict of a check is known."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedlatest.experiments import Experiment
from fedlatest.report import Claim, RunRecord
from fedlatest.reproduction.judging import STATEMENTS
from fedlatest.runs import Metrics, Row

Values = npt.NDArray[np.float64]
Shape = Callable[[Values], Values]
"""Rounds -> values of a curve."""


def synthetic_run(
    experiment: Callable[[str], Experiment],
    overrides: str,
    *,
    accuracy: Shape,
    loss: Shape,
    rounds: int,
    every: int,
    seeds: int = 1,
    status: str = "finished",
    data: str = "synthetic",
) -> RunRecord:
    """Return a run that is evaluated every `every` rounds; seed s has 0.0001 s more test accuracy."""
    evaluated = np.arange(0, rounds + 1, every, dtype=float)
    losses, accuracies = loss(evaluated), accuracy(evaluated)
    rows = [
        Row(seed, int(evaluated[i]), 0.0, float(losses[i]), 0.9, 1.0, float(accuracies[i]) + 0.0001 * seed)
        for seed in range(seeds)
        for i in range(len(evaluated))
    ]
    made = experiment(overrides).with_values(rounds=rounds)
    values = dict(made.values)
    config = {"algorithm": {"name": values["algorithm"]}, "rounds": rounds, "recipe": values}
    manifest = {"status": status, "config": config, "data": {"name": data}}
    return RunRecord(Path("anywhere") / made.name, manifest, Metrics(rows))


def falling(end: float, rate: float = 300) -> Shape:
    """end + 2 exp(-round / rate)."""
    return lambda rounds: end + 2 * np.exp(-rounds / rate)


def rising(end: float, rate: float = 300) -> Shape:
    """end - 0.8 exp(-round / rate)."""
    return lambda rounds: end - 0.8 * np.exp(-rounds / rate)


def triangle_wave(middle: float, swing: float, length: float) -> Shape:
    """A triangle wave between middle - swing/2 and middle + swing/2 that repeats every `length` rounds."""
    return lambda rounds: middle + swing * (np.abs((rounds / length) % 1 - 0.5) * 2 - 0.5)


def flat(level: float, swing: float = 0.0) -> Shape:
    """A constant level, or a triangle wave around it with a length of 200 rounds."""
    return triangle_wave(level, swing, 200)


def verdicts(claims: Sequence[Claim]) -> dict[str, bool | None]:
    """Return statement -> verdict, for the claims that are statements of the paper."""
    return {claim.claim: claim.holds for claim in claims if claim.group == STATEMENTS}
