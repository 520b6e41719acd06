"""`advise`: apply the paper's theorems to a recipe, a trace or given numbers."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.table import Table

from fedlatest.cli.app import app, out, print_prose, use_device
from fedlatest.errors import ConfigError

if TYPE_CHECKING:
    from fedlatest.availability import Assumption, Availability
    from fedlatest.theory import Problem
    from fedlatest.theory.advice import Advice, Resonance, TrainingSetting


class Constants(NamedTuple):
    """L, G, sigma and B as given by the user; None if not given."""

    smoothness: float | None
    gradient: float | None
    noise: float | None
    distance: float | None


class AdviceInput(NamedTuple):
    """What the theorems are applied to, and where the numbers come from."""

    setting: "TrainingSetting"
    source: str
    """How E was obtained: given, measured, or measured on the repeated trace."""
    smoothness: float
    problem: "Problem | None"
    """None if G, sigma and B are unknown."""
    learning_rate: float | None
    note: str = ""
    estimated: frozenset[str] = frozenset()
    """Names of the constants that are estimates."""
    resonance: "Resonance | None" = None
    """The stability of FedLaAvg's step; None if the availability is unknown."""


@app.command()
def advise(
    recipe: Annotated[str | None, typer.Argument(help="A recipe; without one, give the numbers below.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the recipe; repeatable.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with the recipe's data (or FEDLATEST_DATA).")] = None,
    clients: Annotated[int | None, typer.Option(help="N, the number of clients.")] = None,
    cohort: Annotated[int | None, typer.Option(help="K, the number of clients in a cohort.")] = None,
    participation: Annotated[float | None, typer.Option(help="K / N, instead of K.")] = None,
    e: Annotated[
        int | None, typer.Option("--e", help="E: every client is available at least once in any E rounds.")
    ] = None,
    recorded: Annotated[Path | None, typer.Option("--trace", help="A trace (CSV) from which E is measured.")] = None,
    round_length: Annotated[float, typer.Option(help="Length of a round, in the trace's unit of time.")] = 1.0,
    rounds: Annotated[int | None, typer.Option(help="T or R, the number of rounds.")] = None,
    local_steps: Annotated[int | None, typer.Option(help="C, the number of local steps per round.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="A step size to compare with the theorem's.")] = None,
    smoothness: Annotated[float | None, typer.Option(help="L, the smoothness of the losses.")] = None,
    gradient: Annotated[float | None, typer.Option(help="G, the bound on the norm of gradients.")] = None,
    noise: Annotated[float | None, typer.Option(help="sigma, the noise of a stochastic gradient.")] = None,
    distance: Annotated[float | None, typer.Option(help="B = f(x0) - f(x*).")] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Show the noise for differential privacy instead; see docs/privacy.md.")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="delta of the guarantee (default: N^-1.1).")] = None,
    clip_norm: Annotated[float | None, typer.Option(help="Largest norm of an update (a recipe: measured).")] = None,
    min_separation: Annotated[
        int | None, typer.Option(help="Rounds from one participation of a client to its next (default: N / K).")
    ] = None,
    max_participations: Annotated[int | None, typer.Option(help="Largest number of rounds of a client.")] = None,
    parameters: Annotated[int | None, typer.Option(help="Size of the model, with --epsilon and no recipe.")] = None,
) -> None:
    """Show what the paper's theorems promise, and what to change.

    Without --epsilon: E, the bound on the staleness, the step size and the bound on the gradient.

    With --epsilon: the noise, the clip norm and the rounds for a guarantee of differential privacy.
    """
    from fedlatest.theory.advice import advise as advise_on

    constants = Constants(smoothness, gradient, noise, distance)
    for name, count in {"--clients": clients, "--rounds": rounds, "--local-steps": local_steps}.items():
        if count is not None and count < 1:
            raise ConfigError(f"{name} {count}: must be at least 1")
    for name, size in {"--learning-rate": learning_rate, "--round-length": round_length}.items():
        if size is not None and not (math.isfinite(size) and size > 0):
            raise ConfigError(f"{name} {size:g}: must be a finite number above 0")
    private: dict[str, object] = {
        "--delta": delta, "--clip-norm": clip_norm, "--min-separation": min_separation,
        "--max-participations": max_participations, "--parameters": parameters,
    }  # fmt: skip
    if epsilon is None:
        for name, given in private.items():
            if given is not None:
                raise ConfigError(f"{name}: is about differential privacy; add --epsilon")
    else:
        from fedlatest.cli.advise_privacy import Guarantee, advise_privacy

        theorems: dict[str, object] = {
            "--e": e, "--trace": recorded, "--local-steps": local_steps, "--learning-rate": learning_rate,
            **{f"--{name}": value for name, value in constants._asdict().items()},
        }  # fmt: skip
        for name, given in theorems.items():
            if given is not None:
                raise ConfigError(f"{name}: is not used with --epsilon; leave it out")
        guarantee = Guarantee(epsilon, delta, clip_norm, min_separation, max_participations)
        advise_privacy(guarantee, recipe, settings, data, clients, cohort, participation, rounds, parameters)
        return
    if recipe is not None:
        numbers = {"--clients": clients, "--cohort": cohort, "--participation": participation, "--e": e,
                   "--trace": recorded, "--local-steps": local_steps}  # fmt: skip
        for name, value in numbers.items():
            if value is not None:
                raise ConfigError(f"{name}: is set by the recipe {recipe}; change it with --set KEY=VALUE")
        from fedlatest.cli.run import with_rounds

        known = _from_recipe(recipe, with_rounds(settings, rounds), data, constants, learning_rate)
    else:
        if settings or data:
            raise ConfigError("--set, --data: need a recipe; name one, or leave them out")
        known = _from_numbers(
            clients, (cohort, participation), e, recorded, round_length, rounds, local_steps or 1, learning_rate,
            constants,
        )  # fmt: skip
    advice = advise_on(
        known.setting, smoothness=known.smoothness, problem=known.problem, learning_rate=known.learning_rate,
        resonance=known.resonance,
    )  # fmt: skip
    out.print(_table(known, advice))
    for sentence in [*([known.note] if known.note else []), *advice.sentences]:
        print_prose(sentence)
    if known.problem is None:
        print_prose("To compute the bound, give G, sigma and B with --gradient, --noise and --distance.")


def _from_recipe(
    name: str, overrides: list[str], data: Path | None, constants: Constants, learning_rate: float | None
) -> AdviceInput:
    """Measure E on a recipe's availability, and estimate the constants that are not given."""
    from fedlatest.cli.progress import LoadingBars
    from fedlatest.cli.run import find_recipe
    from fedlatest.experiments import FederationBuilder
    from fedlatest.experiments.estimates import curvature, estimate
    from fedlatest.experiments.stability_prediction import local_training, predict_resonance
    from fedlatest.simulation.recorder import clients_to_check
    from fedlatest.theory import Problem
    from fedlatest.theory.advice import TrainingSetting

    experiments = find_recipe(name).experiments(overrides)
    experiment = next((each for each in experiments if each.values["algorithm"] == "fedlaavg"), experiments[0])
    if experiment.values["algorithm"] != "fedlaavg":
        raise ConfigError(f"algorithm={experiment.values['algorithm']}: the theorems are about fedlaavg")
    use_device("cpu")
    with LoadingBars() as loading:
        builder = FederationBuilder(find_recipe(name).load(data, on_progress=loading.update))
    spec = experiment.spec(builder)
    assumption = spec.availability.assumption(spec.rounds, max_clients=clients_to_check(spec.rounds))
    estimates = estimate(spec)
    problem = Problem(
        *(estimated if given is None else given for given, estimated in zip(constants, estimates.problem, strict=True))
    )
    setting = TrainingSetting(
        spec.federation.num_clients,
        spec.cohort_size,
        _measured_e(assumption, f"recipe {name}"),
        spec.rounds,
        spec.num_local_steps,
    )
    estimated = frozenset(constant for constant, given in constants._asdict().items() if given is None)
    note = estimates.describe(estimated) if estimated else ""
    step = experiment.values["learning_rate"] if learning_rate is None else learning_rate
    source = "measured"
    if assumption.is_sample:
        source = f"a lower bound: {assumption.clients.size:,} clients examined"
    resonance = predict_resonance(
        spec.availability,
        local_training(spec, step),
        cohort_size=spec.cohort_size,
        curvature=curvature(spec) if constants.smoothness is None else constants.smoothness,
        ids=spec.federation.ids,
        rounds_per_day=experiment.values.get("rounds_per_day"),
    )
    return AdviceInput(setting, source, problem.smoothness, problem, step, note, estimated, resonance)


def _from_numbers(
    clients: int | None,
    cohort_or_participation: tuple[int | None, float | None],
    e: int | None,
    recorded: Path | None,
    round_length: float,
    rounds: int | None,
    local_steps: int,
    learning_rate: float | None,
    constants: Constants,
) -> AdviceInput:
    """Combine the given numbers; with a trace, E and the missing counts are measured from it."""
    import numpy as np

    from fedlatest.experiments.stability_prediction import predict_resonance
    from fedlatest.simulation.experiment_spec import cohort_size
    from fedlatest.theory import Problem
    from fedlatest.theory.advice import TrainingSetting
    from fedlatest.theory.method_stability import LocalTraining

    if e is not None and recorded is not None:
        raise ConfigError("--e, --trace: give E or a trace to measure it from, not both")
    if e is None and recorded is None:
        raise ConfigError(
            "E is unknown: Assumption 4 requires that every client is available at least once in any E rounds; "
            "give --e, or a --trace to measure it"
        )
    source, model = "given", None
    if recorded is not None:
        clients, rounds, e, source, model = _measure_trace(recorded, clients, rounds, round_length)
    if clients is None or rounds is None or e is None:
        missing = "--clients" if clients is None else "--rounds"
        raise ConfigError(f"{missing}: is missing; give it, or a recipe or a trace that determines it")
    if constants.smoothness is None:
        raise ConfigError("L is unknown: give --smoothness, or a recipe whose model and data it is estimated from")
    others = constants[1:]
    if None in others and any(value is not None for value in others):
        raise ConfigError("--gradient, --noise, --distance: the bound needs all three")
    problem = None if None in others else Problem(*(float(value) for value in constants if value is not None))
    setting = TrainingSetting(clients, cohort_size(clients, *cohort_or_participation), e, rounds, local_steps)
    resonance = None
    if model is not None:
        training = LocalTraining(np.ones(clients), local_steps, learning_rate)
        resonance = predict_resonance(
            model, training, cohort_size=setting.cohort_size, curvature=constants.smoothness
        )  # fmt: skip
    return AdviceInput(setting, source, constants.smoothness, problem, learning_rate, resonance=resonance)


def _measure_trace(
    path: Path, clients: int | None, rounds: int | None, round_length: float
) -> tuple[int, int, int, str, "Availability"]:
    """Return the number of clients, the number of rounds, E, the source of E, and the repeated trace.

    The trace is repeated if it is shorter than the given number of rounds.
    """
    from fedlatest.availability import read_trace, trace
    from fedlatest.availability.trace_files import number_clients

    intervals, num_devices = number_clients(read_trace(path))
    clients = max(num_devices, 1) if clients is None else clients
    length = math.ceil(max((interval.end for interval in intervals), default=1) / round_length)
    rounds = length if rounds is None else rounds
    model = trace(intervals, num_clients=clients, round_length=round_length, wrap=rounds > length)
    e = _measured_e(model.assumption(rounds), f"trace {path}")
    repeated = trace(intervals, num_clients=clients, round_length=round_length, wrap=True)
    return clients, rounds, e, "measured, repeated" if rounds > length else "measured", repeated


def _measured_e(assumption: "Assumption", subject: str) -> int:
    """Return E; raise ConfigError if a client is never available, so that Assumption 4 holds with no E."""
    if assumption.smallest_e is None:
        never = assumption.never_available
        others = f" and {never.size - 1} others are" if never.size > 1 else " is"
        raise ConfigError(
            f"{subject}: Assumption 4 fails, client {never[0]}{others} never available in {assumption.horizon} rounds; "
            "remove such clients, or use more rounds"
        )
    return assumption.smallest_e


def _table(known: AdviceInput, advice: "Advice") -> Table:
    setting = known.setting
    table = Table("quantity", "symbol", box=None, header_style="bold", pad_edge=False)
    table.add_column("value", justify="right")
    table.add_column("source")
    rows = [
        ("clients", "N", f"{setting.num_clients:,}", ""),
        ("cohort size", "K", f"{setting.cohort_size:,}", ""),
        ("rounds, local steps", "R, C", f"{setting.rounds:,}, {setting.num_local_steps}", ""),
        ("every client is available once in", "E", f"{setting.smallest_e:,}", known.source),
        ("staleness bound", "I", f"{advice.staleness:,}", "Lemma 1"),
        ("rounds needed for the speed-up", "", f"{advice.needed_rounds:,}", "Theorem 4"),
        ("  enough rounds", "", "yes" if setting.rounds >= advice.needed_rounds else "no", ""),
        ("smoothness", "L", f"{known.smoothness:.4g}", _source(known, "smoothness")),
        ("step size", "gamma", f"{advice.step.learning_rate:.4g}", "Theorem 4" if advice.step.allowed else "1/(4L)"),
        ("  formula's step within 1/(4L)", "", "yes" if advice.step.allowed else "no", ""),
    ]
    if known.problem is not None and advice.bound is not None:
        problem = known.problem
        constants = f"{problem.gradient:.3g}, {problem.noise:.3g}, {problem.distance:.3g}"
        sources = dict.fromkeys(_source(known, name) for name in ("gradient", "noise", "distance"))
        rows.append(("gradient, noise, distance", "G, s, B", constants, " and ".join(sources)))
        theorem = "Theorem 3" if setting.num_local_steps == 1 else "Theorem 4"
        rows.append(("bound on ||grad f||^2, mean", "", f"{advice.bound.total:.4g}", theorem))
        rows += [(f"  {part}", "", f"{value:.4g}", "") for part, value in advice.bound._asdict().items()]
        rows.append(("to add for the first I rounds", "", f"{advice.cold_start:.4g}", "not in the theorem"))
    for row in rows:
        table.add_row(*row)
    return table


def _source(known: AdviceInput, name: str) -> str:
    return "estimated" if name in known.estimated else "given"
