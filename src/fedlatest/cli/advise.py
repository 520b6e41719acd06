"""`advise`: what the theorems say of a recipe, a trace or plain numbers."""

import math
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.table import Table
from rich.text import Text

from fedlatest.availability import Assumption, read_trace, trace
from fedlatest.cli.app import app, out, use_device
from fedlatest.cli.progress import LoadingBars
from fedlatest.cli.run import find_recipe
from fedlatest.errors import ConfigError
from fedlatest.experiments import Experiment, FederationBuilder
from fedlatest.experiments.estimates import estimate
from fedlatest.simulation.experiment_spec import cohort_size
from fedlatest.theory import Problem
from fedlatest.theory.advice import Advice, Setting
from fedlatest.theory.advice import advise as advise_on


class Known(NamedTuple):
    """A federation, where its E comes from, and what is known of the problem."""

    setting: Setting
    source: str
    smoothness: float
    problem: Problem | None
    learning_rate: float | None
    note: str = ""
    guessed: frozenset[str] = frozenset()
    """Names of the constants that are estimates."""


class Given(NamedTuple):
    """The constants that a user gave."""

    smoothness: float | None
    gradient: float | None
    noise: float | None
    distance: float | None


@app.command()
def advise(
    recipe: Annotated[str | None, typer.Argument(help="A recipe to advise on; or give numbers below.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with the recipe's data (or FEDLATEST_DATA).")] = None,
    clients: Annotated[int | None, typer.Option(help="N, the number of clients.")] = None,
    cohort: Annotated[int | None, typer.Option(help="K, how many take part in a round.")] = None,
    participation: Annotated[float | None, typer.Option(help="K / N, in place of K.")] = None,
    e: Annotated[int | None, typer.Option("--e", help="E: all are here once in any E rounds.")] = None,
    recorded: Annotated[Path | None, typer.Option("--trace", help="A trace (CSV) to measure E from.")] = None,
    round_length: Annotated[float, typer.Option(help="Of a round, in the trace's unit of time.")] = 1.0,
    rounds: Annotated[int | None, typer.Option(help="T or R, the number of rounds.")] = None,
    local_steps: Annotated[int | None, typer.Option(help="C, local steps a round.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="A step of yours to compare.")] = None,
    smoothness: Annotated[float | None, typer.Option(help="L.")] = None,
    gradient: Annotated[float | None, typer.Option(help="G.")] = None,
    noise: Annotated[float | None, typer.Option(help="sigma.")] = None,
    distance: Annotated[float | None, typer.Option(help="B = f(x0) - f(x*).")] = None,
) -> None:
    """What the theorems promise: E, the staleness bound, the step size, the bound and what to change."""
    given = Given(smoothness, gradient, noise, distance)
    least = {"--clients": clients, "--rounds": rounds, "--local-steps": local_steps}
    for name, count in least.items():
        if count is not None and count < 1:
            raise ConfigError(f"{name} {count}: must be at least 1")
    for name, size in {"--learning-rate": learning_rate, "--round-length": round_length}.items():
        if size is not None and not (math.isfinite(size) and size > 0):
            raise ConfigError(f"{name} {size:g}: must be above 0")
    if recipe is not None:
        numbers = {"--clients": clients, "--cohort": cohort, "--participation": participation, "--e": e,
                   "--trace": recorded, "--local-steps": local_steps}  # fmt: skip
        for name, value in numbers.items():
            if value is not None:
                raise ConfigError(f"{name}: the recipe {recipe} says that; change it with --set KEY=VALUE")
        overrides = [*(settings or []), *([f"rounds={rounds}"] if rounds is not None else [])]
        known = _from_recipe(recipe, overrides, data, given, learning_rate)
    else:
        if settings or data:
            raise ConfigError("--set, --data: are about a recipe; name one, or leave them out")
        known = _from_numbers(
            clients, (cohort, participation), e, recorded, round_length, rounds, local_steps or 1, learning_rate, given
        )
    advice = advise_on(
        known.setting, smoothness=known.smoothness, problem=known.problem, learning_rate=known.learning_rate
    )
    out.print(_table(known, advice))
    for sentence in [*([known.note] if known.note else []), *advice.words]:
        out.print(Text(sentence), soft_wrap=True)
    if known.problem is None:
        out.print("The bound needs G, sigma and B: give --gradient, --noise and --distance.")


def _from_recipe(
    name: str, overrides: list[str], data: Path | None, given: Given, learning_rate: float | None
) -> Known:
    experiments = find_recipe(name).experiments(overrides)
    experiment: Experiment = next((x for x in experiments if x.values["algorithm"] == "fedlaavg"), experiments[0])
    if experiment.values["algorithm"] != "fedlaavg":
        raise ConfigError(f"algorithm={experiment.values['algorithm']}: the theorems are about fedlaavg")
    use_device("cpu")
    with LoadingBars() as loading:
        builder = FederationBuilder(find_recipe(name).load(data, on_progress=loading.update))
    spec = experiment.spec(builder)
    found = spec.availability.assumption(spec.rounds)
    guess = estimate(spec)
    problem = Problem(*(own if own is not None else guessed for own, guessed in zip(given, guess.problem, strict=True)))
    setting = Setting(
        spec.federation.num_clients,
        spec.training.cohort_size,
        _measured_e(found, f"recipe {name}"),
        spec.rounds,
        spec.training.num_local_steps,
    )
    guessed = frozenset(name for name, own in given._asdict().items() if own is None)
    note = guess.describe(guessed) if guessed else ""
    step = spec.training.learning_rate if learning_rate is None else learning_rate
    return Known(setting, "measured", problem.smoothness, problem, step, note, guessed)


def _from_numbers(
    clients: int | None,
    who: tuple[int | None, float | None],
    e: int | None,
    recorded: Path | None,
    round_length: float,
    rounds: int | None,
    local_steps: int,
    learning_rate: float | None,
    given: Given,
) -> Known:
    if e is not None and recorded is not None:
        raise ConfigError("--e, --trace: give E or a trace to measure it from, not both")
    if e is None and recorded is None:
        raise ConfigError(
            "E is unknown: Assumption 4 wants everybody here once in any E rounds; give --e, or a --trace to measure it"
        )
    source = "given"
    if recorded is not None:
        intervals = read_trace(recorded)
        if clients is None:
            clients = 1 + max((interval.client for interval in intervals), default=0)
        length = math.ceil(max((interval.end for interval in intervals), default=1) / round_length)
        rounds = length if rounds is None else rounds
        model = trace(intervals, num_clients=clients, round_length=round_length, wrap=rounds > length)
        e = _measured_e(model.assumption(rounds), f"trace {recorded}")
        source = "measured, repeated" if rounds > length else "measured"
    if clients is None or rounds is None or e is None:
        missing = "--clients" if clients is None else "--rounds"
        raise ConfigError(f"{missing}: is missing; give it, or a recipe or a trace that says it")
    if given.smoothness is None:
        raise ConfigError("L is unknown: give --smoothness, or a recipe, whose model and data it is estimated from")
    rest = given[1:]
    if None in rest and any(value is not None for value in rest):
        raise ConfigError("--gradient, --noise, --distance: the bound needs all three")
    problem = None if None in rest else Problem(*(float(value) for value in given if value is not None))
    setting = Setting(clients, cohort_size(clients, *who), e, rounds, local_steps)
    return Known(setting, source, given.smoothness, problem, learning_rate)


def _measured_e(found: Assumption, where: str) -> int:
    if found.smallest_e is None:
        never = found.never_available
        others = f" and {never.size - 1} others are" if never.size > 1 else " is"
        raise ConfigError(
            f"{where}: Assumption 4 fails, client {never[0]}{others} never available in {found.horizon} rounds; "
            "no E makes it hold. Leave such clients out, or plan more rounds"
        )
    return found.smallest_e


def _source(known: Known, name: str) -> str:
    return "estimated" if name in known.guessed else "given"


def _table(known: Known, advice: Advice) -> Table:
    setting = known.setting
    table = Table("what", "symbol", box=None, header_style="bold", pad_edge=False)
    table.add_column("value", justify="right")
    table.add_column("from")
    rows = [
        ("clients", "N", f"{setting.num_clients:,}", ""),
        ("participants a round", "K", f"{setting.cohort_size:,}", ""),
        ("rounds, local steps", "R, C", f"{setting.rounds:,}, {setting.num_local_steps}", ""),
        ("all are here once in", "E", f"{setting.smallest_e:,}", known.source),
        ("staleness bound", "I", f"{advice.staleness:,}", "Lemma 1"),
        ("rounds for the speed-up", "", f"{advice.needed_rounds:,}", "Theorem 4"),
        ("  are there so many", "", "yes" if setting.rounds >= advice.needed_rounds else "no", ""),
        ("smoothness", "L", f"{known.smoothness:.4g}", _source(known, "smoothness")),
        ("step size", "gamma", f"{advice.step.learning_rate:.4g}", "Theorem 4" if advice.step.allowed else "1/(4L)"),
        ("  is the formula's within 1/(4L)", "", "yes" if advice.step.allowed else "no", ""),
    ]
    if known.problem is not None and advice.bound is not None:
        rest = known.problem
        constants = f"{rest.gradient:.3g}, {rest.noise:.3g}, {rest.distance:.3g}"
        sources = dict.fromkeys(_source(known, name) for name in ("gradient", "noise", "distance"))
        rows.append(("gradient, noise, distance", "G, s, B", constants, " and ".join(sources)))
        rows.append(("bound on ||grad f||^2, mean", "", f"{advice.bound.total:.4g}", "Theorem 4"))
        rows += [(f"  {part}", "", f"{value:.4g}", "") for part, value in advice.bound._asdict().items()]
    for row in rows:
        table.add_row(*row)
    return table
