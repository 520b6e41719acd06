"""The authors' published Sentiment140 runs: what they are called, and the figures to compare with.

The figures are read off the training histories that the authors of the paper published (test accuracy over rounds
(9000, 10000], on the full data); the histories themselves are not part of this package, `--published FILE` reads them.
They were evaluated every 20 rounds, Naive every 200. Not among them: FedProx at alpha = 0.5, Naive at E = 24 beyond
round 9800, and anything at alpha = 0.25, at E = 240, with fewer clients or more participants.
"""

from fedlatest.recipes.histories import Window
from fedlatest.recipes.published import NEVER, PublishedRuns, Summary, names
from fedlatest.recipes.sentiment140_figures import Day, run

NAMES = names(run, {"E24_fv0": Day(24, 0), "E120_fv0": Day(120, 0), "E120_fv0.5": Day(120, 0.5)})
"""Our run's name -> theirs. Sequential SGD is theirs at alpha = 0: its history begins on that test set."""
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
PUBLISHED = PublishedRuns(NAMES, QUOTED, window=Window(9000, 10000), level=0.70)
