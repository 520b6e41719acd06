"""Numbers of one curve: where it is in the end, how much it swings, when it has arrived. Curves are [evaluations]."""

import math

import numpy as np
import numpy.typing as npt

Rounds = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]


def stays_above(rounds: Rounds, values: Values, level: float) -> float:
    """The first round from which the curve never falls below a level again; infinite if it ends below.

    >>> stays_above(np.array([0, 20, 40, 60]), np.array([0.1, 0.91, 0.89, 0.92]), 0.9)
    60.0
    """
    below = np.flatnonzero(values < level)
    if below.size == 0:
        return float(rounds[0])
    return math.inf if below[-1] == len(values) - 1 else float(rounds[below[-1] + 1])


def arrives_below(rounds: Rounds, values: Values, level: float) -> float:
    """The first round at which the curve is at or below a level; infinite if it never is."""
    there = np.flatnonzero(values <= level)
    return float(rounds[there[0]]) if there.size else math.inf


def cycle(rounds: Rounds, values: Values) -> float:
    """The length, in rounds, of the strongest cycle in an evenly spaced curve without its trend; NaN for a flat one.

    >>> rounds = np.arange(0, 800, 20)
    >>> cycle(rounds, np.sin(2 * np.pi * rounds / 200) + 0.001 * rounds)
    200.0
    """
    steps = np.diff(rounds)
    if len(rounds) < 4 or (steps != steps[0]).any():
        return math.nan
    flat = values - np.polyval(np.polyfit(rounds, values, 1), rounds)
    strength = np.abs(np.fft.rfft(flat))[1:]
    if strength.max() < 1e-12:
        return math.nan
    return float(len(rounds) * steps[0] / (1 + strength.argmax()))
