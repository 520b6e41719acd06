"""The paper's theorems as functions of plain numbers.

They give the limit of FedAvg (Theorem 1), the error of FedLaAvg in Example 1 (Theorem 2), the largest staleness
(Lemma 1), and the convergence bounds and step sizes of FedLaAvg (Theorems 3 and 4, Corollary 1). `stability`, which is
not from the paper, tells for which steps the remembered updates make x swing. NumPy and float64 only; nothing is
trained. May import `errors`.
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
