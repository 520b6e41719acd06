"""`explain`: the paper's theory, computed and played."""

from pathlib import Path
from typing import Annotated, cast, get_args

import numpy as np
import numpy.typing as npt
import typer
from rich.table import Table
from rich.text import Text

from fedlatest.availability import alternating
from fedlatest.cli.app import app, out, use_device
from fedlatest.errors import ConfigError
from fedlatest.experiments.example1_simulation import Ending, Errors, explain_example1, theorem2_errors
from fedlatest.experiments.rate_simulation import Kind, RatePoint, RateSetting, fit_exponents, simulate_rate
from fedlatest.report.theory_figures import Measured, Path1, draw_example1, draw_rate
from fedlatest.theory import Example1, accumulated_bias

TOLERANCE = 1e-6
NUM_CLIENTS, NUM_ROUNDS = (4, 16, 64), (1024, 4096, 16384)
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


@explain.command("rate")
def rate(
    kind: Annotated[str, typer.Option(help="logcosh: G and sigma are known; quadratic: G is measured.")] = "logcosh",
    seeds: Annotated[int, typer.Option(help="Run seeds 0 .. N-1.")] = 5,
    period: Annotated[int, typer.Option(help="Rounds of a block of availability.")] = 2,
    heterogeneity: Annotated[float, typer.Option(help="How far the two kinds of clients are apart.")] = 1.0,
    noise: Annotated[float, typer.Option(help="sigma.")] = 1.0,
    to: Annotated[Path, typer.Option("--out", help="The figure: .png or .pdf.")] = Path("rate.png"),
) -> None:
    """FedLaAvg with Corollary 1's step for several N and T: its gradients against Theorem 3's bound and its rate."""
    check_figure(to)
    if kind not in get_args(Kind):
        raise ConfigError(f"--kind {kind}: choose one of {', '.join(get_args(Kind))}")
    if seeds < 1:
        raise ConfigError(f"--seeds {seeds}: must be at least 1")
    use_device("cpu")
    points = [
        simulate_rate(RateSetting(num_clients, rounds, cast(Kind, kind), period, heterogeneity, noise), range(seeds))
        for num_clients in NUM_CLIENTS
        for rounds in NUM_ROUNDS
    ]
    out.print(_rate_table(points))
    for sentence in _rate_sentences(points):
        out.print(Text(sentence), soft_wrap=True)
    measured = [Measured(p.setting.num_clients, p.setting.rounds, p.mean_squared, p.bound.total) for p in points]
    out.print(f"figure: {draw_rate(measured, to)}", soft_wrap=True)


def _rate_table(points: list[RatePoint]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("N", "T", "T enough", "measured", "bound", "staleness", "variance", "distance", "times"):
        table.add_column(column, justify="right")
    for point in points:
        setting, bound, mean = point.setting, point.bound, float(point.mean_squared.mean())
        table.add_row(
            str(setting.num_clients), str(setting.rounds), "yes" if setting.enough_rounds else "no",
            f"{mean:.4f}", f"{bound.total:.4f}", *(f"{part:.4f}" for part in bound), f"{bound.total / mean:.1f}",
        )  # fmt: skip
    return table


def _rate_sentences(points: list[RatePoint]) -> list[str]:
    fitted, first = fit_exponents(points), points[0]
    held, seeds = sum(point.holds for point in points), len(first.mean_squared)
    known = first.setting.kind == "logcosh"
    stalest = max(point.largest_staleness for point in points)
    enough = sum(point.setting.enough_rounds for point in points)
    nearly = [float(p.mean_squared.mean()) / (p.bound.distance / 4) for p in points]
    return [
        f"L = 1, sigma = {first.problem.noise:g}, G "
        + ("bounded by construction" if known else "measured along the trajectories, not bounded")
        + f": {first.problem.gradient:.4g}"
        + ("." if known else " for the first row."),
        f"{held} of {len(points)} settings stay under Theorem 3's bound for every one of {seeds} seeds.",
        f"Fitted: N^({_band(fitted.by_clients)}) and T^({_band(fitted.by_rounds)}); Corollary 1 promises N^(-0.25) and "
        f"T^(-0.5) where T is enough, in {enough} of these {len(points)} settings.",
        f"Where the bound is loose: the gradients sum to {min(nearly):.2f} to {max(nearly):.2f} times B / (gamma T), "
        "what the objective can fall, of which the bound takes 4"
        + ("; the exponents are those of the step." if all(0.9 <= ratio <= 1.1 for ratio in nearly) else ".")
        + f" And nobody gets older than {stalest} rounds here, where Lemma 1 allows {first.setting.staleness}.",
    ]


def _band(values: npt.NDArray[np.float64]) -> str:
    return f"{values.mean():.3f}, {values.min():.3f} .. {values.max():.3f} over seeds"


def _endings_table(example: Example1, endings: list[Ending]) -> Table:
    table = Table("at the end of a period", box=None, header_style="bold", pad_edge=False)
    for column in ("played", "formula", "difference", "off the optimum"):
        table.add_column(column, justify="right")
    for title, _, iterates, predicted in endings:
        last = float(iterates[-1])
        table.add_row(
            title, f"{last:.7f}", f"{predicted:.7f}", f"{abs(last - predicted):.1e}",
            f"{round(last - example.optimum, 7) + 0.0:+.7f}",
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
        return [
            f"{rounds} rounds from x = 0. The clients agree (e1 = e2), so every algorithm is right: all settle at "
            f"{example.optimum:g}."
        ]
    if example.t1 == example.t2:
        said.append("The blocks are equally long: FedAvg's limit is right as the step goes to 0, and only then.")
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
    elif (left := (1 - 2 * learning_rate) ** rounds) > TOLERANCE:
        said.append(
            f"After {rounds} rounds of so small a step {left:.2g} of the start still counts, "
            "so play is not at the formulas yet; take a larger --learning-rate."
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
