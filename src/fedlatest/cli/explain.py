"""`explain`: the paper's theory, computed and played."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from fedlatest.availability import alternating
from fedlatest.cli.app import app, out
from fedlatest.cli.device import use_device
from fedlatest.errors import ConfigError
from fedlatest.recipes.example1 import Ending, Errors, explain_example1, theorem2_errors
from fedlatest.report.example1 import Path1, draw_example1
from fedlatest.theory import Example1, accumulated_bias

TOLERANCE = 1e-6
DEFAULT = Example1()

explain = typer.Typer(no_args_is_help=True, help="The paper's theory, computed and played.", rich_markup_mode=None)
app.add_typer(explain, name="explain")


@explain.command("example1")
def example1(
    t1: Annotated[int, typer.Option(help="Rounds that client 1 is here.")] = DEFAULT.t1,
    t2: Annotated[int, typer.Option(help="Rounds that client 2 is here.")] = DEFAULT.t2,
    e1: Annotated[float, typer.Option(help="Client 1's mean.")] = DEFAULT.e1,
    e2: Annotated[float, typer.Option(help="Client 2's mean.")] = DEFAULT.e2,
    learning_rate: Annotated[float, typer.Option(help="gamma, below 1/2.")] = 0.01,
    to: Annotated[Path, typer.Option("--out", help="The figure: .png or .pdf.")] = Path("example1.png"),
) -> None:
    """Two clients take turns: FedAvg circles a wrong point, FedLaAvg finds the optimum (Theorems 1 and 2)."""
    check_figure(to)
    use_device("cpu")
    example = Example1(t1, t2, e1, e2)
    endings = explain_example1(example, learning_rate=learning_rate)
    out.print(_endings_table(example, endings))
    for sentence in _sentences(example, endings, learning_rate):
        out.print(Text(sentence), soft_wrap=True)
    errors = theorem2_errors(example)
    out.print("", _errors_table(errors))
    out.print(f"figure: {_draw(example, endings, errors, learning_rate, to)}", soft_wrap=True)


def _endings_table(example: Example1, endings: list[Ending]) -> Table:
    table = Table("at the end of a period", box=None, header_style="bold", pad_edge=False)
    for column in ("played", "formula", "difference", "off the optimum"):
        table.add_column(column, justify="right")
    for title, _, iterates, predicted in endings:
        last = float(iterates[-1])
        table.add_row(
            title, f"{last:.7f}", f"{predicted:.7f}", f"{abs(last - predicted):.1e}",
            f"{last - example.optimum:+.7f}",
        )  # fmt: skip
    return table


def _sentences(example: Example1, endings: list[Ending], learning_rate: float) -> list[str]:
    rounds = len(endings[0].iterates) - 1
    turning, limit = example.fedavg_turning_point(learning_rate), example.fedavg_limit(learning_rate)
    said = [
        f"{rounds} rounds from x = 0. The optimum is {example.optimum:g}. FedAvg circles between {turning:.6g} and "
        f"{limit:.6g}; with ever smaller steps it would settle at {example.small_step_limit:.6g}."
    ]
    if example.e1 == example.e2:
        said.append("The clients agree (e1 = e2), so everybody is right.")
    elif example.t1 == example.t2:
        said.append("The blocks are equally long, so FedAvg is right, but only as the step goes to 0.")
    here = alternating([True, False], t1=example.t1, t2=example.t2).table(rounds)
    biased = accumulated_bias(here)
    said.append(f"Flexible participation: M_R = {biased} of R = {rounds} rounds are biased, so its guarantee is void.")
    scale = max(1.0, abs(example.e1), abs(example.e2))
    off = [ending.title for ending in endings if abs(ending.simulated - ending.predicted) > TOLERANCE * scale]
    if off == ["FedLaAvg"]:
        said.append(
            f"FedLaAvg has not settled: {learning_rate:g} is a long step for blocks of {max(example.t1, example.t2)} "
            "rounds, in which x runs to where a stored gradient points. Theorem 2 is about short ones; take a smaller "
            "--learning-rate."
        )
    elif off:
        said.append(f"Play and formula differ by more than {TOLERANCE:g}: {', '.join(off)}.")
    else:
        said.append(f"Play and formulas agree to {TOLERANCE:g}.")
    return said


def _errors_table(errors: Errors) -> Table:
    title = "FedLaAvg's squared errors with gamma = 1 / (2 sqrt T)"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, header_style="dim", pad_edge=False)
    for column in ("T", "best", "mean", "mean * sqrt T", "Theorem 2's bound"):
        table.add_column(column, justify="right")
    for rounds, mean, best, bound in zip(*errors, strict=True):
        table.add_row(str(rounds), f"{best:.1e}", f"{mean:.3e}", f"{mean * rounds**0.5:.3f}", f"{bound:.3e}")
    return table


def _draw(example: Example1, endings: list[Ending], errors: Errors, learning_rate: float, to: Path) -> Path:
    levels = {
        "optimum": example.optimum,
        "X: FedAvg's limit": example.fedavg_limit(learning_rate),
        "its limit for small steps": example.small_step_limit,
    }
    shown = min(len(endings[0].iterates) - 1, 12 * example.period)
    return draw_example1(
        [Path1(ending.title, ending.algorithm, ending.iterates) for ending in endings],
        levels,
        errors.rounds,
        {"Theorem 2's bound": errors.bound, "mean over the iterates": errors.mean},
        to,
        shown=shown,
    )


def check_figure(to: Path) -> None:
    """Before any work."""
    if to.suffix not in (".png", ".pdf"):
        raise ConfigError(f"--out {to}: a figure's name ends in .png or .pdf")
