"""The diagnosis of the arena's availability cases, beside how far FedAvg is behind the best method in each of them.

    python -m benchmarks.diagnosis_cases --data DIR

DIR contains mnist/ and traces/. The accuracies are those of docs/leaderboards.md. The table is in docs/diagnose.md.
"""

import argparse
import dataclasses
from pathlib import Path

from fedlatest.cli.run import find_recipe
from fedlatest.diagnosis import Association, Diagnosis, Training, diagnose, fleet_of_table
from fedlatest.experiments import FederationBuilder
from fedlatest.experiments.arena_choices import CASES

LEADERBOARDS = Path(__file__).parents[1] / "docs/leaderboards.md"
ROUNDS, COHORT, LOCAL_STEPS = 2000, 100, 10  # of the leaderboard
HEAD = (
    "case", "FedAvg is behind by (points)", "weight at wrong clients", "at wrong labels", "labels, part of the cycle",
    "FedLaAvg is stable below a gain of", "recommended",
)  # fmt: skip


def behind(text: str) -> dict[str, float]:
    """Return by how many points FedAvg is behind the best method in each case of the first table of leaderboards.md."""
    rows = [[cell.strip(" *") for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    first = next(number for number, row in enumerate(rows) if row[:2] == ["method", "mean rank"])
    head = rows[first]
    methods: dict[str, list[str]] = {}
    for row in rows[first + 2 :]:
        if len(row) != len(head) or row[0] in methods or row[0] == "method":
            break
        methods[row[0]] = row
    best = {case: max(float(row[number]) for row in methods.values()) for number, case in enumerate(head) if number > 1}
    return {case: 100 * (best[case] - float(methods["FedAvg"][head.index(case)])) for case in best}


def diagnose_case(builder: FederationBuilder, name: str) -> Diagnosis:
    """Return the diagnosis of a case with the arena's clients and their digits."""
    [experiment, *_] = find_recipe("mnist").experiments([*CASES[name].split(), f"rounds={ROUNDS}"])
    spec = experiment.spec(builder)
    table = spec.availability.table(ROUNDS, 0)
    fleet = fleet_of_table(table, names=[str(client) for client in range(table.shape[1])], source=name)
    labels = [str(label) for label in spec.federation.client_labels()]
    return diagnose(
        dataclasses.replace(fleet, labels=labels), Training(cohort_size=COHORT, num_local_steps=LOCAL_STEPS)
    )


def row(found: Diagnosis, points: float) -> tuple[str, ...]:
    """Return the cells of a case."""
    bias, resonance = found.bias, found.resonance
    assert resonance is not None
    return (
        f"`{found.source}`", f"{points:.1f}", f"{bias.total_variation:.2f}", strength(bias.label_variation),
        strength(bias.label_window_variation), f"{resonance.stable_gain:.2f}" if resonance.swings else "all",
        f"`{found.recommendation.choice('algorithm')}`",
    )  # fmt: skip


def strength(association: Association | None) -> str:
    """Return the strength of an association, in bold if it is significant."""
    if association is None:
        return "0.00"
    text = f"{association.strength:.2f}"
    return f"**{text}**" if association.p_value <= 0.05 and association.strength >= 0.005 else text


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with mnist/ and traces/")
    builder = FederationBuilder(find_recipe("mnist").load(parser.parse_args().data))
    points = behind(LEADERBOARDS.read_text(encoding="utf-8"))
    print(f"| {' | '.join(HEAD)} |")
    print("|" + "---|" * len(HEAD))
    for name in CASES:
        print(f"| {' | '.join(row(diagnose_case(builder, name), points[name]))} |", flush=True)


if __name__ == "__main__":
    main()
