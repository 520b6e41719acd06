"""`advise --epsilon`: the noise, the clip norm and the rounds for a guarantee of differential privacy."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.table import Table

from fedlatest.cli.app import out, print_prose, use_device
from fedlatest.errors import ConfigError

if TYPE_CHECKING:
    from fedlatest.privacy.advice import MethodNoise


class Guarantee(NamedTuple):
    """The guarantee as given by the user; None where a default is used."""

    epsilon: float
    delta: float | None
    clip_norm: float | None
    min_separation: int | None
    max_participations: int | None


class Setting(NamedTuple):
    """The sizes that the noise depends on."""

    num_clients: int
    cohort_size: int
    rounds: int
    num_parameters: int
    clip_norm: float
    clip_source: str


def advise_privacy(
    guarantee: Guarantee,
    recipe: str | None,
    settings: list[str] | None,
    data: Path | None,
    clients: int | None,
    cohort: int | None,
    participation: float | None,
    rounds: int | None,
    parameters: int | None,
) -> None:
    """Print the noise of each method for a guarantee; the arguments are those of `advise`.

    Raises:
        ConfigError: If a number is missing or out of range.
    """
    from fedlatest.privacy import Privacy
    from fedlatest.privacy.advice import compare_methods

    if recipe is None:
        if settings or data:
            raise ConfigError("--set, --data: need a recipe; name one, or leave them out")
        setting = _from_numbers(guarantee, clients, cohort, participation, rounds, parameters)
    else:
        numbers = {"--clients": clients, "--cohort": cohort, "--participation": participation,
                   "--parameters": parameters}  # fmt: skip
        for name, value in numbers.items():
            if value is not None:
                raise ConfigError(f"{name}: is set by the recipe {recipe}; change it with --set KEY=VALUE")
        setting = _from_recipe(guarantee, recipe, settings, data, rounds)
    delta = setting.num_clients**-1.1 if guarantee.delta is None else guarantee.delta
    if delta >= 1 / setting.num_clients:
        raise ConfigError(f"--delta {delta:g}: must be below 1 / (number of clients) = {1 / setting.num_clients:g}")
    privacy = Privacy(
        epsilon=guarantee.epsilon,
        delta=delta,
        clip_norm=setting.clip_norm,
        rounds=setting.rounds,
        min_separation=guarantee.min_separation or max(1, setting.num_clients // setting.cohort_size),
        max_participations=guarantee.max_participations,
    )
    methods = compare_methods(
        privacy,
        num_clients=setting.num_clients,
        cohort_size=setting.cohort_size,
        num_parameters=setting.num_parameters,
    )
    out.print(_setting_table(setting, privacy.delta, privacy.min_separation, privacy.participations, guarantee))
    out.print()
    out.print(_method_table(methods))
    for sentence in _sentences(methods, setting.clip_source):
        print_prose(sentence)


def _from_numbers(
    guarantee: Guarantee,
    clients: int | None,
    cohort: int | None,
    participation: float | None,
    rounds: int | None,
    parameters: int | None,
) -> Setting:
    from fedlatest.simulation.experiment_spec import cohort_size

    needed = {"--clients": clients, "--rounds": rounds, "--parameters": parameters, "--clip-norm": guarantee.clip_norm}
    missing = [name for name, value in needed.items() if value is None]
    if clients is None or rounds is None or parameters is None or guarantee.clip_norm is None:
        raise ConfigError(f"{', '.join(missing)}: needed with --epsilon; give them, or a recipe that determines them")
    if parameters < 1:
        raise ConfigError(f"--parameters {parameters}: must be at least 1")
    size = cohort_size(clients, cohort, participation)
    if not 1 <= size <= clients:
        raise ConfigError(f"--cohort {size}: choose 1 .. {clients} (the number of clients)")
    return Setting(clients, size, rounds, parameters, guarantee.clip_norm, "given")


def _from_recipe(
    guarantee: Guarantee, name: str, settings: list[str] | None, data: Path | None, rounds: int | None
) -> Setting:
    from fedlatest.cli.progress import LoadingBars
    from fedlatest.cli.run import find_recipe, with_rounds
    from fedlatest.experiments import FederationBuilder
    from fedlatest.experiments.update_norms import median_update_norm, num_parameters

    experiment = find_recipe(name).experiments(with_rounds(settings, rounds))[0]
    use_device("cpu")
    with LoadingBars() as loading:
        builder = FederationBuilder(find_recipe(name).load(data, on_progress=loading.update))
    spec = experiment.spec(builder)
    clip, source = guarantee.clip_norm, "given"
    if clip is None:
        clip, source = float(f"{median_update_norm(spec):.2g}"), "median norm of first updates"
    return Setting(spec.federation.num_clients, spec.cohort_size, spec.rounds, num_parameters(spec), clip, source)


def _setting_table(setting: Setting, delta: float, separation: int, participations: int, given: Guarantee) -> Table:
    table = Table("quantity", box=None, header_style="bold", pad_edge=False)
    table.add_column("value", justify="right")
    table.add_column("source")
    rows = [
        ("epsilon", f"{given.epsilon:g}", "given"),
        ("delta", f"{delta:.2g}", "N^-1.1" if given.delta is None else "given"),
        ("clients, cohort size", f"{setting.num_clients:,}, {setting.cohort_size:,}", ""),
        ("rounds", f"{setting.rounds:,}", ""),
        ("parameters of the model", f"{setting.num_parameters:,}", ""),
        ("clip norm", f"{setting.clip_norm:g}", setting.clip_source),
        ("rounds between participations", f"{separation:,}", "N / K" if given.min_separation is None else "given"),
        ("participations at the most", f"{participations:,}", "FedLaAvg needs neither"),
    ]
    for row in rows:
        table.add_row(*row)
    return table


def _method_table(methods: list["MethodNoise"]) -> Table:
    table = Table("method", box=None, header_style="bold", pad_edge=False)
    for name in ("noise per round", "in the last model", "share"):
        table.add_column(name, justify="right")
    table.add_column("")
    for method in methods:
        numbers = f"{method.plan.stddev:.4g}", f"{method.model_stddev:.3g}", f"{method.share:.3g}"
        table.add_row(method.title, *numbers, method.verdict)
    return table


def _sentences(methods: list["MethodNoise"], clip_source: str) -> list[str]:
    best = min(methods, key=lambda method: method.share)
    sentences = [
        "The noise is given by its standard deviations, in the sum that it is added to in each round (the total of all "
        "clients' updates for FedLaAvg) and in each number of the last model. The share is the norm of the noise in "
        "the last model, divided by the distance that the model moves if all updates have the same direction. Real "
        "updates partly cancel, so that the real share is larger.",
        f"{best.title} has the least noise in the last model, a share of {best.share:.2g}.",
        "For FedLaAvg and FedAvg the share hardly depends on the number of rounds: choose as many as training needs, "
        "before it starts. It is about proportional to 1 / epsilon, and for FedLaAvg to 1 / N.",
    ]
    if best.verdict == "large":
        sentences.append("No method is likely to learn with this noise; use more clients or a larger epsilon.")
    if clip_source != "given":
        sentences.append(
            "The clip norm was measured on the data, which the guarantee does not account for; a smaller one, which "
            "means less noise, often trains as well."
        )
    return sentences
