"""`explain`: evaluate the paper's theorems and compare them with simulations."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer
from rich.table import Table

from fedlatest.cli.app import app, out, print_prose, use_device
from fedlatest.cli.command_groups import CorrectingGroup
from fedlatest.errors import ConfigError
from fedlatest.theory import Example1, accumulated_bias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from fedlatest.experiments.example1_simulation import Ending, Errors
    from fedlatest.experiments.rate_simulation import RatePoint

TOLERANCE = 1e-6
NUM_CLIENTS, NUM_ROUNDS = (4, 16, 64), (1024, 4096, 16384)
DEFAULT = Example1()

explain = typer.Typer(
    cls=CorrectingGroup,
    no_args_is_help=True,
    help="Compare the paper's theorems with simulations.",
    rich_markup_mode=None,
)
app.add_typer(explain, name="explain")


@explain.command("example1")
def example1(
    t1: Annotated[int, typer.Option(help="Rounds in which client 1 is available.")] = DEFAULT.t1,
    t2: Annotated[int, typer.Option(help="Rounds in which client 2 is available.")] = DEFAULT.t2,
    e1: Annotated[float, typer.Option(help="Client 1's mean.")] = DEFAULT.e1,
    e2: Annotated[float, typer.Option(help="Client 2's mean.")] = DEFAULT.e2,
    learning_rate: Annotated[float, typer.Option(help="gamma, below 1/2.")] = 0.01,
    to: Annotated[Path, typer.Option("--out", help="The figure: .png or .pdf.")] = Path("example1.png"),
) -> None:
    """Let two clients alternate: the paper's Example 1.

    FedAvg converges to a wrong cycle, FedLaAvg to the optimum (Theorems 1 and 2).
    """
    from fedlatest.experiments.example1_simulation import explain_example1, theorem2_errors

    check_figure(to)
    use_device("cpu")
    example = Example1(t1, t2, e1, e2)
    endings = explain_example1(example, learning_rate=learning_rate)
    out.print(_endings_table(example, endings))
    for sentence in _sentences(example, endings, learning_rate):
        print_prose(sentence)
    errors = theorem2_errors(example)
    out.print("", _errors_table(errors))
    out.print(f"figure: {_draw(example, endings, errors, learning_rate, to)}", soft_wrap=True)


@explain.command("rate")
def rate(
    kind: Annotated[
        str, typer.Option(help="logcosh (G and sigma are known) or quadratic (G is measured).")
    ] = "logcosh",
    seeds: Annotated[int, typer.Option(help="Run seeds 0 .. N-1.")] = 5,
    period: Annotated[int, typer.Option(help="Rounds in a block of availability.")] = 2,
    heterogeneity: Annotated[float, typer.Option(help="Distance between the two kinds of clients.")] = 1.0,
    noise: Annotated[float, typer.Option(help="sigma, the noise of a stochastic gradient.")] = 1.0,
    to: Annotated[Path, typer.Option("--out", help="The figure: .png or .pdf.")] = Path("rate.png"),
) -> None:
    """Compare FedLaAvg's gradients with the bound of Theorem 3.

    FedLaAvg runs with the step of Corollary 1, for several N and T.
    """
    from fedlatest.experiments.rate_simulation import Kind, RateSetting, simulate_rate
    from fedlatest.report.theory_figures import MeasuredRate, draw_rate

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
        print_prose(sentence)
    measured = [MeasuredRate(p.setting.num_clients, p.setting.rounds, p.mean_squared, p.bound.total) for p in points]
    out.print(f"figure: {draw_rate(measured, to)}", soft_wrap=True)


def check_figure(to: Path) -> None:
    """Raise ConfigError if a figure cannot be written under this name."""
    if to.suffix not in (".png", ".pdf"):
        raise ConfigError(f"--out {to}: the name of a figure must end in .png or .pdf")


def _endings_table(example: Example1, endings: list["Ending"]) -> Table:
    table = Table("at the end of a period", box=None, header_style="bold", pad_edge=False)
    for column in ("simulated", "formula", "difference", "distance to the optimum"):
        table.add_column(column, justify="right")
    for title, _, iterates, predicted in endings:
        last = float(iterates[-1])
        table.add_row(
            title, f"{last:.7f}", f"{predicted:.7f}", f"{abs(last - predicted):.1e}",
            f"{round(last - example.optimum, 7) + 0.0:+.7f}",
        )  # fmt: skip
    return table


def _sentences(example: Example1, endings: list["Ending"], learning_rate: float) -> list[str]:
    """Summarise the simulation of Example 1, and state whether it agrees with the formulas."""
    rounds = len(endings[0].iterates) - 1
    if example.e1 == example.e2:
        return [
            f"{rounds} rounds from x = 0. Both clients have the same mean (e1 = e2), so all formulas give the optimum, "
            f"{example.optimum:g}.",
            _agreement_sentence(example, endings, learning_rate),
        ]
    turning_point, limit = example.fedavg_turning_point(learning_rate), example.fedavg_limit(learning_rate)
    sentences = [
        f"{rounds} rounds from x = 0. The optimum is {example.optimum:g}. FedAvg cycles between {turning_point:.6g} "
        f"and {limit:.6g}; as the step goes to 0 it converges to {example.small_step_limit:.6g}."
    ]
    if example.t1 == example.t2:
        sentences.append(
            "Both blocks have the same length: FedAvg's limit is the optimum only in the limit of small steps."
        )
    sentences.append(_bias_sentence(example, rounds))
    sentences.append(_agreement_sentence(example, endings, learning_rate))
    return sentences


def _bias_sentence(example: Example1, rounds: int) -> str:
    from fedlatest.availability import alternating

    available = alternating([True, False], t1=example.t1, t2=example.t2).table(rounds)
    return (
        f"Flexible participation: M_R = {accumulated_bias(available)} of R = {rounds} rounds are biased, so its "
        "convergence guarantee does not apply."
    )


def _agreement_sentence(example: Example1, endings: list["Ending"], learning_rate: float) -> str:
    rounds = len(endings[0].iterates) - 1
    scale = max(1.0, abs(example.e1), abs(example.e2))
    different = [
        ending.title
        for ending in endings
        if not abs(ending.simulated - ending.predicted) <= TOLERANCE * scale  # NaN is different, too
    ]
    if different == ["FedLaAvg"]:
        return (
            f"FedLaAvg has not converged: the step {learning_rate:g} is too large for blocks of "
            f"{max(example.t1, example.t2)} rounds, because x follows the remembered gradient of the unavailable "
            "client for a whole block. Theorem 2 is about small steps; use a smaller --learning-rate."
        )
    remaining = (1 - 2 * learning_rate) ** rounds
    if remaining > TOLERANCE:
        return (
            f"The step is so small that after {rounds} rounds a share of {remaining:.2g} of the initial value remains, "
            "so the simulation has not reached the formulas yet; use a larger --learning-rate."
        )
    if different:
        return f"Simulation and formula differ by more than {TOLERANCE:g}: {', '.join(different)}."
    return f"Simulation and formulas agree to {TOLERANCE:g}."


def _errors_table(errors: "Errors") -> Table:
    title = "FedLaAvg's squared errors with gamma = 1 / (2 sqrt T)"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, header_style="dim", pad_edge=False)
    for column in ("T", "best", "mean", "mean * sqrt T", "Theorem 2's bound"):
        table.add_column(column, justify="right")
    for rounds, mean, best, bound in zip(*errors, strict=True):
        table.add_row(str(rounds), f"{best:.1e}", f"{mean:.3e}", f"{mean * rounds**0.5:.3f}", f"{bound:.3e}")
    return table


def _draw(example: Example1, endings: list["Ending"], errors: "Errors", learning_rate: float, to: Path) -> Path:
    from fedlatest.report.theory_figures import Iterates, draw_example1

    levels = {
        "optimum": example.optimum,
        "X: FedAvg's limit": example.fedavg_limit(learning_rate),
        "its limit for small steps": example.small_step_limit,
    }
    shown = min(len(endings[0].iterates) - 1, 12 * example.period)
    return draw_example1(
        [Iterates(ending.title, ending.algorithm, ending.iterates) for ending in endings],
        levels,
        errors.rounds,
        {"Theorem 2's bound": errors.bound, "mean over the iterates": errors.mean},
        to,
        shown=shown,
    )


def _rate_table(points: list["RatePoint"]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    columns = ("N", "T", "T sufficient", "measured", "bound", "staleness", "variance", "distance", "bound / measured")
    for column in columns:
        table.add_column(column, justify="right")
    for point in points:
        setting, bound, mean = point.setting, point.bound, float(point.mean_squared.mean())
        table.add_row(
            str(setting.num_clients), str(setting.rounds), "yes" if setting.enough_rounds else "no",
            f"{mean:.4f}", f"{bound.total:.4f}", *(f"{part:.4f}" for part in bound), f"{bound.total / mean:.1f}",
        )  # fmt: skip
    return table


def _rate_sentences(points: list["RatePoint"]) -> list[str]:
    """State the constants, whether the bound holds, the fitted exponents, and where the bound is loose."""
    from fedlatest.experiments.rate_simulation import fit_exponents

    exponents, first = fit_exponents(points), points[0]
    num_held, num_seeds = sum(point.holds for point in points), len(first.mean_squared)
    is_bounded = first.setting.kind == "logcosh"
    largest_staleness = max(point.largest_staleness for point in points)
    num_sufficient = sum(point.setting.enough_rounds for point in points)
    ratios = [float(p.mean_squared.mean()) / (p.bound.distance / 4) for p in points]
    return [
        f"L = 1, sigma = {first.problem.noise:g}, G "
        + ("bounded by construction" if is_bounded else "measured along the iterates, not bounded")
        + f": {first.problem.gradient:.4g}"
        + ("." if is_bounded else " for the first row."),
        f"{num_held} of {len(points)} settings stay below Theorem 3's bound for all {num_seeds} seeds.",
        f"Fitted: N^({_format_range(exponents.by_clients)}) and T^({_format_range(exponents.by_rounds)}); Corollary 1 "
        f"promises N^(-0.25) and T^(-0.5) where T is sufficient, in {num_sufficient} of these {len(points)} settings.",
        f"Where the bound is loose: the mean squared gradient is {min(ratios):.2f} to {max(ratios):.2f} times "
        "B / (gamma T), the value that corresponds to the largest possible decrease of the objective; the bound "
        "contains 4 times that value"
        + ("; the exponents are those of the step." if all(0.9 <= ratio <= 1.1 for ratio in ratios) else ".")
        + f" The largest staleness is {largest_staleness} rounds, while Lemma 1 allows {first.setting.staleness}.",
    ]


def _format_range(values: "npt.NDArray[np.float64]") -> str:
    return f"{values.mean():.3f}, {values.min():.3f} .. {values.max():.3f} over seeds"
