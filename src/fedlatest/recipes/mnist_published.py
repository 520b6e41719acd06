"""The authors' published MNIST runs: what they are called, and the figures to compare with.

The figures are read off the training histories that the authors of the paper published (test accuracy over rounds
(3000, 4000]); the histories themselves are not part of this package, `--published FILE` reads them.
"""

from fedlatest.recipes.histories import Window
from fedlatest.recipes.mnist_figures import Pattern, run
from fedlatest.recipes.published import NEVER, PublishedRuns, Summary, names

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
