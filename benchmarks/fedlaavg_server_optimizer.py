"""Does a server optimizer on the latest average help FedLaAvg? MNIST, under the availability cases of the arena.

For each optimizer and case, nine pairs of client and server step run on one seed; the best by training accuracy runs on
five fresh seeds, as in `fedlatest arena`, whose rows for `fedlaavg` it can be compared with:

    python -m benchmarks.fedlaavg_server_optimizer --data DIR [--rounds 2000]
"""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import optax

from fedlatest.algorithms import fedlaavg
from fedlatest.errors import DivergedError
from fedlatest.experiments import FederationBuilder
from fedlatest.experiments.arena import FIRST_SEARCH_SEED
from fedlatest.experiments.arena_choices import CASES
from fedlatest.experiments.experiment import Experiment
from fedlatest.experiments.mnist import DEFAULTS, mnist
from fedlatest.experiments.settings import resolve
from fedlatest.simulation import ExperimentSpec, Result, simulate_together

OPTIMIZERS: Mapping[str, tuple[optax.GradientTransformation, tuple[float, ...]]] = {  # with server steps to try
    "none": (optax.identity(), (1.0, 3.16, 10.0)),
    "momentum": (optax.trace(0.9), (0.03, 0.1, 0.3)),
    "adam": (optax.scale_by_adam(), (0.001, 0.003, 0.01)),
}
CLIENT_STEPS = (0.01, 0.0316, 0.1)
CHOSEN = ("always", "bernoulli", "markov", "sine", "diurnal", "departures")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with MNIST")
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--cases", nargs="*", default=CHOSEN)
    options = parser.parse_args()
    builder = FederationBuilder(mnist.load(options.data))
    print("| case | optimizer | test accuracy | swing | client step | server step |\n|---|---|---|---|---|---|")
    for name, (optimizer, steps) in OPTIMIZERS.items():
        grid = [(client, server) for client in CLIENT_STEPS for server in steps]
        specs = {
            case: [_spec(builder, case, options.rounds, optimizer, *point) for point in grid] for case in options.cases
        }
        found = _simulate([spec for case in options.cases for spec in specs[case]])
        best = [
            int(np.argmax([_score(result) for result in found[i * len(grid) : (i + 1) * len(grid)]]))
            for i in range(len(options.cases))
        ]
        winners = [
            replace(specs[case][number], seeds=range(5)) for case, number in zip(options.cases, best, strict=True)
        ]
        for case, number, result in zip(options.cases, best, _simulate(winners), strict=True):
            client, server = grid[number]
            print(f"| {case} | {name} | {_describe(result)} | {client} | {server} |", flush=True)


def _spec(
    builder: FederationBuilder,
    case: str,
    rounds: int,
    optimizer: optax.GradientTransformation,
    client: float,
    server: float,
) -> ExperimentSpec:
    values = resolve(
        DEFAULTS, [*CASES[case].split(), f"rounds={rounds}", f"learning_rate={client}", "evaluate_every=40"]
    )
    spec = Experiment(case, values, tabulated=True).spec(builder, [FIRST_SEARCH_SEED])
    return replace(spec, algorithm=fedlaavg(server_optimizer=optimizer, server_step=server))


def _simulate(specs: list[ExperimentSpec]) -> list[Result | DivergedError]:
    return simulate_together(specs)


def _score(result: Result | DivergedError) -> float:
    if isinstance(result, DivergedError):
        return -np.inf
    return float(np.nan_to_num(result.metrics.late("train_accuracy").mean(), nan=-np.inf))


def _describe(result: Result | DivergedError) -> str:
    if isinstance(result, DivergedError):
        return "diverged | "
    late = result.metrics.late("test_accuracy")
    return f"{late.mean():.4f} | {np.ptp(late, axis=1).mean():.4f}"


if __name__ == "__main__":
    main()
