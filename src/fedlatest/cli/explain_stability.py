"""`explain stability`: up to which gain a step along remembered updates is stable, and how long its swings are."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.table import Table

from fedlatest.cli.app import out, print_prose, show_notes, use_device
from fedlatest.cli.explain import check_figure, explain
from fedlatest.cli.sweep import parse_over
from fedlatest.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from fedlatest.availability import Availability
    from fedlatest.theory.method_stability import LocalTraining, MethodStability


class Setting(NamedTuple):
    """One value of the key that is varied, and what determines its cohorts and gains."""

    label: str
    availability: "Availability"
    training: "LocalTraining"
    cohort_size: int
    rounds_per_day: int | None
    ids: "npt.NDArray[np.int32] | None" = None
    curvature: float | None = None


@explain.command("stability")
def stability(
    recipe: Annotated[str | None, typer.Argument(help="A recipe; without one, give a --trace.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the recipe; repeatable.")
    ] = None,
    over: Annotated[
        str | None, typer.Option(metavar="KEY=V1,V2,...", help="A key of the recipe to vary, and its values.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with the recipe's data (or FEDLATEST_DATA).")] = None,
    recorded: Annotated[
        Path | None, typer.Option("--trace", help="A trace (CSV), repeated, instead of a recipe.")
    ] = None,
    round_length: Annotated[float, typer.Option(help="Length of a round, in the trace's unit of time.")] = 1.0,
    cohort: Annotated[int | None, typer.Option(help="K, the number of clients in a cohort; with a trace.")] = None,
    participation: Annotated[float | None, typer.Option(help="K / N, instead of K.")] = None,
    local_steps: Annotated[int | None, typer.Option(help="C, with a trace; 1 if not given.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="gamma; by default the recipe's.")] = None,
    curvature: Annotated[
        float | None, typer.Option(help="h, the largest curvature of the objective; estimated if not given.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="A finished run of the recipe, at whose final model h is estimated.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds of availability that are examined.")] = 4000,
    to: Annotated[Path, typer.Option("--out", help="The figure: .png or .pdf.")] = Path("stability.png"),
) -> None:
    """Predict whether FedLaAvg and FedVARP converge or swing.

    The prediction follows from the availability and the size of the cohorts.
    """
    from fedlatest.experiments.stability_prediction import predict_stability

    check_figure(to)
    for name, value in {
        "--learning-rate": learning_rate,
        "--curvature": curvature,
        "--round-length": round_length,
    }.items():
        if value is not None and not (math.isfinite(value) and value > 0):
            raise ConfigError(f"{name} {value:g}: must be a finite number above 0")
    if rounds < 100:
        raise ConfigError(f"--rounds {rounds}: must be at least 100, of which half are a transient")
    if (recipe is None) == (recorded is None):
        raise ConfigError("give a recipe, or a --trace without a recipe")
    use_device("cpu")
    if recipe is not None:
        numbers = {"--cohort": cohort, "--participation": participation, "--local-steps": local_steps}
        for name, given in numbers.items():
            if given is not None:
                raise ConfigError(f"{name}: is set by the recipe {recipe}; change it with --set KEY=VALUE")
        found = _from_recipe(recipe, settings or [], over, data, learning_rate, curvature, model)
    else:
        if settings or over or data or model:
            raise ConfigError("--set, --over, --data, --model: need a recipe; name one, or leave them out")
        assert recorded is not None
        found = [
            _from_trace(recorded, round_length, (cohort, participation), local_steps or 1, learning_rate, curvature)
        ]
    results = [
        predict_stability(
            each.availability, each.training, cohort_size=each.cohort_size, rounds=rounds, ids=each.ids
        )
        for each in found
    ]  # fmt: skip
    out.print(_table(found, results, over))
    for sentence in _sentences(found, results, has_model=model is not None, given=curvature is not None):
        print_prose(sentence)
    out.print(f"figure: {_draw(found, results, over, to)}", soft_wrap=True)


def _from_recipe(
    name: str,
    overrides: list[str],
    over: str | None,
    data: Path | None,
    learning_rate: float | None,
    curvature: float | None,
    model: Path | None,
) -> list[Setting]:
    """Build one setting for each value of --over; the curvature is estimated once."""
    from fedlatest.cli.progress import LoadingBars
    from fedlatest.cli.run import find_recipe
    from fedlatest.experiments import FederationBuilder, estimates
    from fedlatest.experiments.stability_prediction import local_training
    from fedlatest.simulation import load_model

    key, values = _split_over(over)
    labels = [f"{key}={value}" for value in values] or ["as set"]
    chosen = [find_recipe(name).experiments([*overrides, *([label] if key else [])])[0] for label in labels]
    with LoadingBars() as loading:
        builder = FederationBuilder(find_recipe(name).load(data, on_progress=loading.update))
    found: list[Setting] = []
    for label, experiment in zip(labels, chosen, strict=True):
        spec = experiment.spec(builder)
        if curvature is None:
            params = None if model is None else load_model(model, model=spec.model).params
            curvature = estimates.curvature(spec, params)
        step = experiment.values["learning_rate"] if learning_rate is None else learning_rate
        found.append(
            Setting(
                label, spec.availability, local_training(spec, step), spec.cohort_size,
                experiment.values.get("rounds_per_day"), spec.federation.ids, curvature,
            )
        )  # fmt: skip
    show_notes(builder.notes)
    return found


def _from_trace(
    path: Path,
    round_length: float,
    cohort_or_participation: tuple[int | None, float | None],
    local_steps: int,
    learning_rate: float | None,
    curvature: float | None,
) -> Setting:
    import numpy as np

    from fedlatest.availability import read_trace, trace
    from fedlatest.availability.trace_files import number_clients
    from fedlatest.simulation.experiment_spec import cohort_size
    from fedlatest.theory.method_stability import LocalTraining

    if local_steps < 1:
        raise ConfigError(f"--local-steps {local_steps}: must be at least 1")
    if curvature is not None and learning_rate is None:
        raise ConfigError("--curvature: the gain also needs the step; add --learning-rate")
    intervals, num_devices = number_clients(read_trace(path))
    clients = max(num_devices, 1)
    model = trace(intervals, num_clients=clients, round_length=round_length, wrap=True)
    training = LocalTraining(np.ones(clients), local_steps, learning_rate)
    return Setting(path.name, model, training, cohort_size(clients, *cohort_or_participation), None, None, curvature)


def _split_over(over: str | None) -> tuple[str, list[str]]:
    """Split KEY=V1,V2,... into the key and its values."""
    if over is None:
        return "", []
    [(key, values)] = parse_over([over]).items()
    return key, values


def _table(settings: list[Setting], results: list[list["MethodStability"]], over: str | None) -> Table:
    title = f"over {key}" if (key := _split_over(over)[0]) else None
    table = Table(
        "", title=title, title_justify="left", title_style="bold", box=None, header_style="dim", pad_edge=False
    )
    table.add_column("method", no_wrap=True)
    for column in ("gain <", "h <", "swing", "days", "staleness", "this step"):
        table.add_column(column, justify="right")
    for setting, methods in zip(settings, results, strict=True):
        training = setting.training
        for number, result in enumerate(methods):
            stable, label = result.stable, setting.label.partition("=")[2] or setting.label
            limit = training.curvature(stable.gain)
            day = setting.rounds_per_day
            table.add_row(
                label if number == 0 else "",
                result.method.title,
                f"{stable.gain:.2f}" if stable.exists else f"(> {stable.gain:.2f})",
                "-" if limit is None else f"{limit:.3g}" if stable.exists else f"(> {limit:.3g})",
                f"{stable.swing:.1f}" if stable.exists else "-",
                f"{stable.swing / day:.2f}" if stable.exists and day else "-",
                f"{result.mean_staleness:.1f}",
                _verdict(setting, result),
            )  # fmt: skip
    return table


def _verdict(setting: Setting, result: "MethodStability") -> str:
    if setting.curvature is None or setting.training.learning_rate is None:
        return "-"
    gain = setting.training.gain(setting.curvature)
    return "stable" if gain < result.stable.gain or not result.stable.exists else "unstable"


def _sentences(
    settings: list[Setting], results: list[list["MethodStability"]], *, has_model: bool, given: bool
) -> list[str]:
    """State where the gain comes from, and what the table does not know."""
    first = settings[0]
    sentences = [
        "A deviation from the optimum decays below the gain in the table and grows above it. The gain of a round is "
        f"1 - (1 - step * h)^C for a curvature h and C = {first.training.num_local_steps} local steps. In brackets: "
        "the largest gain examined, if all are stable. The swing is in rounds; the staleness is a mean."
    ]
    if first.curvature is None or first.training.learning_rate is None:
        return [*sentences, "Your gain is unknown: give --learning-rate and --curvature."]
    source = "given" if given else "estimated at the final model of the run" if has_model else "at the initial model"
    gains = [each.training.gain(first.curvature) for each in settings]
    shown = f"{min(gains):.3g}" if min(gains) == max(gains) else f"{min(gains):.3g} .. {max(gains):.3g}"
    sentences.append(
        f"With this step: gain {shown}, for the largest curvature of the objective, {first.curvature:.3g} ({source})."
    )
    if not (has_model or given):
        sentences.append(
            "The curvature changes during training: that of neural networks often grows many times. Use --model RUN to "
            "compute it for a trained model."
        )
    return sentences


def _draw(settings: list[Setting], results: list[list["MethodStability"]], over: str | None, to: Path) -> Path:
    from fedlatest.report.theory_figures import StabilityCurve, draw_stability

    curves = [
        StabilityCurve(
            setting.label, result.method.title, result.method.algorithm, result.stable.gains, result.stable.rates,
            result.stable.gain if result.stable.exists else math.nan,
        )
        for setting, methods in zip(settings, results, strict=True)
        for result in methods
    ]  # fmt: skip
    gains = {
        each.training.gain(each.curvature)
        for each in settings
        if each.curvature is not None and each.training.learning_rate is not None
    }
    return draw_stability(curves, to, over=_split_over(over)[0], gain=gains.pop() if len(gains) == 1 else None)
