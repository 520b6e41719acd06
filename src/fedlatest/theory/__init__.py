"""The paper's theorems as functions of plain numbers: where FedAvg ends up, how old updates get, how fast FedLaAvg is.

Everything here is float64 arithmetic; nothing trains.
"""

from fedlatest.theory.bounds import PARTS, Bound, Problem, cold_start, staleness_bound, theorem3, theorem4
from fedlatest.theory.example1 import Example1, accumulated_bias
from fedlatest.theory.steps import StepSize, best_step, needed_rounds, step_size

__all__ = [
    "PARTS",
    "Bound",
    "Example1",
    "Problem",
    "StepSize",
    "accumulated_bias",
    "best_step",
    "cold_start",
    "needed_rounds",
    "staleness_bound",
    "step_size",
    "theorem3",
    "theorem4",
]
