"""Accuracy against epsilon on MNIST, for FedLaAvg, FedLaAvg fresh and FedAvg under diurnal availability.

    python -m benchmarks.privacy [--data DIR] [--out runs/privacy]     the table and the figure
    python -m benchmarks.privacy --search                              the search of the clip norm and the limits

Both continue where they were stopped. The search runs every candidate on a seed that the table does not use, for three
values of epsilon, and prints the one with the highest mean training accuracy; the chosen ones are `CHOSEN` below. The
guarantee does not account for the search.
"""

import argparse
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedlatest.cli.many_runs import ManyRuns, Resources
from fedlatest.experiments import Experiment
from fedlatest.experiments.mnist import mnist
from fedlatest.report.figures import algorithm_styles, canvas, save
from fedlatest.report.statistics import half_width
from fedlatest.runs import RunFolder

SETTINGS = {  # number of clients: other changes
    1000: "rounds=400 participation=0.1 weighting=none",
    10_000: "rounds=800 participation=0.01 weighting=none",
}
SEEDS = {1000: 5, 10_000: 1}
METHODS = {
    "FedLaAvg": "algorithm=fedlaavg",
    "FedLaAvg, fresh": "algorithm=fedlaavg_fresh",
    "FedAvg": "algorithm=fedavg mechanism=independent",
    "FedAvg, correlated noise": "algorithm=fedavg mechanism=correlated",
}
EPSILONS = ("1", "2", "4", "8", "16", "inf")
SEARCHED_EPSILONS, SEARCH_SEED = ("1", "4", "16"), 100
CLIP_NORMS = (0.05, 0.1, 0.2, 0.4)
LIMITS = {  # of FedAvg: rounds between participations, and their number, which is what the availability allows
    1000: (
        "min_separation=5 max_participations=40",
        "min_separation=10 max_participations=20",
        "min_separation=20 max_participations=10",
    ),
    10_000: ("min_separation=40 max_participations=12", "min_separation=100 max_participations=4"),
}
CHOSEN = {  # by --search
    (1000, "FedLaAvg"): "clip_norm=0.2",
    (1000, "FedLaAvg, fresh"): "clip_norm=0.2",
    (1000, "FedAvg"): "clip_norm=0.2 min_separation=10 max_participations=20",
    (1000, "FedAvg, correlated noise"): "clip_norm=0.2 min_separation=20 max_participations=10",
    (10_000, "FedLaAvg"): "clip_norm=0.1",
    (10_000, "FedLaAvg, fresh"): "clip_norm=0.2",
    (10_000, "FedAvg"): "clip_norm=0.2 min_separation=100 max_participations=4",
    (10_000, "FedAvg, correlated noise"): "clip_norm=0.2 min_separation=100 max_participations=4",
}


class Case(NamedTuple):
    """One run: a method with a guarantee for a number of clients."""

    num_clients: int
    method: str
    privacy: str
    epsilon: str

    @property
    def experiment(self) -> Experiment:
        changes = [f"num_clients={self.num_clients}", SETTINGS[self.num_clients], METHODS[self.method], self.privacy]
        [experiment] = mnist.experiments(" ".join([*changes, f"epsilon={self.epsilon}"]).split())
        return experiment

    @property
    def name(self) -> str:
        method = METHODS[self.method].replace("algorithm=", "").replace("mechanism=", "")
        return "-".join([str(self.num_clients), method, self.privacy, self.epsilon]).replace(" ", "-")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with MNIST; by default FEDLATEST_DATA")
    parser.add_argument("--out", type=Path, default=Path("runs/privacy"), help="folder of the runs")
    parser.add_argument("--figure", type=Path, default=Path("docs/images/privacy-mnist.png"))
    parser.add_argument("--seeds", type=int, help="number of seeds; by default 5 for N = 1000 and 1 for N = 10,000")
    parser.add_argument("--clients", type=int, nargs="*", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--device", default="cpu", choices=["cpu", "gpu"])
    parser.add_argument("--search", action="store_true", help="search the clip norm and the limits")
    options = parser.parse_args()
    root = options.out / "search" if options.search else options.out
    many = ManyRuns("mnist", mnist.load, options.data, root, Resources(options.device, None, None))
    if options.search:
        print_search(many, options.clients)
        return
    found: dict[Case, np.ndarray] = {}
    for num in options.clients:
        cases = [Case(num, method, CHOSEN[num, method], epsilon) for method in METHODS for epsilon in EPSILONS]
        accuracies = late(many, cases, range(options.seeds or SEEDS[num]), "test_accuracy")
        found.update(zip(cases, accuracies, strict=True))
    print_table(found)
    print(f"figure: {draw(found, options.figure)}")


def late(many: ManyRuns, cases: Sequence[Case], seeds: Sequence[int], metric: str) -> list[np.ndarray]:
    """Run the cases; return the mean of a metric over the last quarter of the rounds, [seeds] for each."""
    folders = [many.root / case.name for case in cases]
    many.run([case.experiment for case in cases], folders, seeds, brief=True)
    return [RunFolder(folder).metrics().late(metric).mean(axis=1) for folder in folders]


def print_search(many: ManyRuns, numbers: Sequence[int]) -> None:
    candidates = {
        (num, method): [
            f"clip_norm={clip} {limits}".strip()
            for clip in CLIP_NORMS
            for limits in (LIMITS[num] if "fedavg" in METHODS[method] else ("",))
        ]
        for num, method in itertools.product(numbers, METHODS)
    }
    cases = [
        Case(*key, candidate, epsilon)
        for key, found in candidates.items()
        for candidate in found
        for epsilon in SEARCHED_EPSILONS
    ]
    accuracy = dict(zip(cases, late(many, cases, [SEARCH_SEED], "train_accuracy"), strict=True))
    print(f"| N | method | candidate | {' | '.join(f'epsilon {epsilon}' for epsilon in SEARCHED_EPSILONS)} | mean |")
    print(f"|---|---|---|{'---|' * (len(SEARCHED_EPSILONS) + 1)}")
    for key, found in candidates.items():
        scores = {
            each: [float(accuracy[Case(*key, each, epsilon)].mean()) for epsilon in SEARCHED_EPSILONS] for each in found
        }
        best = max(scores, key=lambda each: np.mean(scores[each]))
        for each, values in scores.items():
            cells = " | ".join(f"{value:.3f}" for value in [*values, float(np.mean(values))])
            print(f"| {key[0]} | {key[1]} | {each}{' (best)' if each == best else ''} | {cells} |")


def print_table(found: dict[Case, np.ndarray]) -> None:
    print(f"| N | method | {' | '.join(f'epsilon {epsilon}' for epsilon in EPSILONS)} |")
    print(f"|---|---|{'---|' * len(EPSILONS)}")
    for num, method in dict.fromkeys((case.num_clients, case.method) for case in found):
        own = [values for case, values in found.items() if (case.num_clients, case.method) == (num, method)]
        cells = [_cell(values) for values in own]
        print(f"| {num} | {method} | {' | '.join(cells)} |")


def _cell(values: np.ndarray) -> str:
    """Return the mean in percent, with half of its 95% confidence interval if there are several seeds."""
    interval = f" ± {100 * half_width(values):.1f}" if values.size > 1 else ""
    return f"{100 * values.mean():.1f}{interval}"


def draw(found: dict[Case, np.ndarray], path: Path) -> Path:
    """Draw a panel for each number of clients; epsilon is on a logarithmic axis, without noise at its end."""
    styles = algorithm_styles(["fedlaavg", "fedlaavg_fresh", "fedavg"])
    lines = [styles["fedlaavg"], styles["fedlaavg_fresh"], styles["fedavg"], (styles["fedavg"][0], ":")]
    numbers = list(dict.fromkeys(case.num_clients for case in found))
    with canvas(8, 3.4) as figure:
        panels = figure.subplots(1, len(numbers), sharey=True, squeeze=False)[0]
        for axes, num in zip(panels, numbers, strict=True):
            for method, (colour, dashes) in zip(METHODS, lines, strict=True):
                own = [v for case, v in found.items() if (case.num_clients, case.method) == (num, method)]
                means, bars = [v.mean() for v in own], [np.nan_to_num(half_width(v)) for v in own]
                axes.errorbar(
                    range(len(own)), means, yerr=bars, color=colour, linestyle=dashes, marker="o", markersize=3.5,
                    linewidth=1.2, capsize=2, label=method,
                )  # fmt: skip
            axes.set(title=f"N = {num:,}", xlabel="epsilon", xticks=range(len(EPSILONS)), xticklabels=EPSILONS)
            axes.grid(axis="y", alpha=0.3)
        panels[0].set_ylabel("late test accuracy")
        panels[-1].legend(frameon=False, fontsize=7, loc="lower right")
        return save(figure, path)


if __name__ == "__main__":
    main()
