"""The command `diagnose`: what a fleet's availability means for training, and what to use."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from fedlatest.cli.app import app, out, print_next, print_prose
from fedlatest.cli.job import print_next_run
from fedlatest.errors import ConfigError

if TYPE_CHECKING:
    from fedlatest.diagnosis import Diagnosis


@app.command()
def diagnose(
    source: Annotated[Path, typer.Argument(help="A trace (CSV, .csv.gz, Parquet), or the folder of a job.")],
    round_length: Annotated[
        float | None,
        typer.Option(
            help="Length of a round in the trace's unit of time (default: 300 seconds, or 1 if the unit is unknown)."
        ),
    ] = None,
    unit: Annotated[
        float | None, typer.Option(help="Seconds in the trace's unit of time: 1, 60, 3600; guessed if not given.")
    ] = None,
    cohort: Annotated[int | None, typer.Option(help="K, the number of clients in a cohort.")] = None,
    deadline: Annotated[float | None, typer.Option(help="A deadline of rounds in seconds, to be examined.")] = None,
    delays: Annotated[
        Path | None, typer.Option(help="Seconds that clients take (CSV); a job has recorded its own.")
    ] = None,
    clients: Annotated[Path | None, typer.Option(help="Labels and sizes (CSV: client, label and num_samples).")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="gamma, for the gain of a step.")] = None,
    curvature: Annotated[float | None, typer.Option(help="h, the largest curvature of the objective.")] = None,
    local_steps: Annotated[int, typer.Option(help="C, the number of local steps per round.")] = 1,
    to: Annotated[
        Path | None, typer.Option("--out", help="Folder for diagnosis.json, diagnosis.png and report.html.")
    ] = None,
) -> None:
    """Analyse what a fleet's availability means for training.

    How available the clients are, what FedAvg and FedLaAvg would do with them, and what to use.
    """
    from fedlatest.cli.diagnose_input import read_fleet
    from fedlatest.diagnosis import Training
    from fedlatest.diagnosis import diagnose as diagnose_fleet

    if to is not None and to.exists() and not to.is_dir():
        raise ConfigError(f"--out {to}: is a file; name a folder")
    training = Training(cohort, deadline, learning_rate, curvature, local_steps)
    fleet = read_fleet(source, round_length=round_length, unit=unit, delays=delays, clients=clients)
    found = diagnose_fleet(fleet, training)
    _print(found)
    if to is not None:
        _write(found, to)
    if fleet.job is not None:
        print_next("replay", source)
    else:
        print_next_run(source, fleet.num_clients, round_length=fleet.length / fleet.num_rounds)


def _write(found: "Diagnosis", folder: Path) -> None:
    """Write diagnosis.json, the figure and the page, and print their paths."""
    from fedlatest.diagnosis import write_diagnosis
    from fedlatest.report.diagnosis_figure import draw_diagnosis
    from fedlatest.report.diagnosis_page import write_diagnosis_page

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {folder}: cannot be created ({error.strerror})") from error
    paths = {
        "facts": write_diagnosis(found, folder),
        "figure": draw_diagnosis(found, folder / "diagnosis.png"),
        "report": write_diagnosis_page(found, folder / "report.html"),
    }
    for name, path in paths.items():
        out.print(f"{name}: {path}", soft_wrap=True)


def _print(found: "Diagnosis") -> None:
    from fedlatest.diagnosis.summary import summary

    for group in summary(found):
        out.print(Text(group.title, style="bold"))
        out.print(_table([], group.rows))
        out.print("")
    if found.rates:
        out.print(Text("How many rounds a day are possible?", style="bold"))
        out.print(_rates_table(found))
        out.print("")
    out.print(Text("What should I use?", style="bold"))
    out.print(_table([], [(advice.topic, advice.choice) for advice in found.recommendation.advice]))
    for advice in found.recommendation.advice:
        print_prose(f"{advice.topic}: {advice.reason} [{advice.evidence}].")
    for warning in found.recommendation.warnings:
        print_prose(warning)
    print_prose(f"Confidence: {found.recommendation.confidence} ({found.recommendation.confidence_reason}).")
    print_prose(f"Assumed: {' '.join(found.recommendation.assumptions)}")


def _rates_table(found: "Diagnosis") -> Table:
    deadlines = sorted({rate.deadline for rate in found.rates if rate.deadline is not None})
    excluded = {rate.deadline: rate.num_excluded for rate in found.rates}
    heads = [f"{deadline:g} s" for deadline in deadlines]
    rows = []
    for size in sorted({rate.cohort_size for rate in found.rates}):
        own = {rate.deadline: rate for rate in found.rates if rate.cohort_size == size}
        cells = [f"{own[deadline].rounds_per_day:,.0f}" for deadline in deadlines]
        rows.append((f"cohort of {size}", *cells, f"{next(iter(own.values())).possible:.0%}"))
    rows.append(("clients that are too slow", *(f"{excluded[deadline]}" for deadline in deadlines), ""))
    return _table(["deadline", *heads, "time possible"], rows)


def _table(head: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Table:
    table = Table(box=None, show_header=bool(head), header_style="dim", pad_edge=False)
    for number in range(max(map(len, rows))):
        table.add_column(head[number] if head else "", justify="right" if head and number else "left")
    for row in rows:
        table.add_row(*row)
    return table
