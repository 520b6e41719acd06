"""`list`, `run` and `plot`."""

import hashlib
import inspect
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from fedlatest.cli.app import app, err, out, use_device
from fedlatest.cli.progress import Bars, Loading, Stop
from fedlatest.errors import ConfigError, RunFolderError
from fedlatest.experiments import RECIPES, FederationBuilder, Recipe
from fedlatest.experiments.settings import CHOICES, keywords
from fedlatest.report import RunRecord, draw_curves, draw_sleep, has_sleep, read_runs
from fedlatest.reproduction.papers import REPRODUCTIONS
from fedlatest.runs import RunFolder
from fedlatest.simulation import ExperimentSpec, simulate_spec
from fedlatest.simulation import Progress as Heard


@app.command("list")
def list_all() -> None:
    """What can be run: recipes, algorithms, availability models, and their keys."""
    recipes = [(recipe.name, _pairs(recipe.defaults), recipe.summary) for recipe in RECIPES.values()]
    _print_rows("recipe", recipes)
    figures = [
        (f"{paper} --figure {name}", "", _first_line(make))
        for paper, reproduction in REPRODUCTIONS.items()
        for name, make in reproduction.figures.items()
    ]
    _print_rows("reproduce", figures)
    for what, factories in CHOICES.items():
        _print_rows(f"{what}=", [(name, _keys(make), _first_line(make)) for name, make in factories.items()])


@app.command()
def run(
    recipe: Annotated[str, typer.Argument(help="quickstart, mnist, tweets or sentiment140; see `fedlatest list`.")],
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds.")] = None,
    seed: Annotated[int | None, typer.Option(help="Run this one seed (default 0).")] = None,
    seeds: Annotated[int | None, typer.Option(help="Run seeds 0 .. N-1 side by side.")] = None,
    to: Annotated[Path | None, typer.Option("--out", help="Where the run goes.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with the data (or FEDLATEST_DATA).")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or gpu; JAX's choice if not given.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what is there.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace what is there.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also log for TensorBoard.")] = False,
) -> None:
    """Run a recipe and show what happened."""
    chosen = recipe_named(recipe)
    overrides = [*(settings or []), *([f"rounds={rounds}"] if rounds is not None else [])]
    experiments = chosen.experiments(overrides)
    if resume and force:
        raise ConfigError("--resume, --force: go on with what is there or replace it, not both")
    numbers = _seeds(seed, seeds)
    use_device(device)
    with Loading() as loading:
        builder = FederationBuilder(chosen.load(data, on_progress=loading.hear))
    specs = [experiment.spec(builder, numbers) for experiment in experiments]  # complains about nonsense early
    show_notes(builder.notes)
    root = to or Path("runs") / _folder_name(chosen.name, [*overrides, *([] if numbers == [0] else [f"{numbers}"])])
    folders = [root if len(experiments) == 1 else root / experiment.name for experiment in experiments]
    _refuse_what_is_in_the_way(root, folders, allowed=resume or force)
    options = {"resume": resume, "force": force, "tensorboard": tensorboard}
    try:
        _run_all([experiment.name for experiment in experiments], specs, folders, options)
    except KeyboardInterrupt:
        again = "with --resume instead of --force" if force else "with --resume"
        err.print(f"stopped; the same command {again} goes on from the last checkpoint in {root}", soft_wrap=True)
        raise typer.Exit(130) from None
    _show(folders, root / "figure.png")


def _run_all(names: list[str], specs: list[ExperimentSpec], folders: list[Path], options: dict[str, Any]) -> None:
    """Run one experiment after the other, each with its progress bar and figure."""
    with Stop() as stop, Bars() as bars:
        for name, spec, folder in zip(names, specs, folders, strict=True):
            bars.begin(name, spec.rounds)
            rest = folders[1:] if options["force"] and folder == folders[0] else []

            def listen(heard: Heard, rest: list[Path] = rest) -> None:
                while rest:  # the first run has passed all checks: what is old goes now, so that a cut can be resumed
                    RunFolder(rest.pop()).remove_run()
                bars.hear(heard)
                if stop.asked:
                    raise KeyboardInterrupt

            simulate_spec(spec, folder, on_progress=listen, **options)
            [record] = read_runs([folder])
            draw_curves([record], folder / "figure.png")
            if has_sleep(record):
                draw_sleep(record, folder / "sleep.png")


@app.command()
def plot(
    folders: Annotated[list[Path], typer.Argument(help="Run folders, or folders of them.")],
    to: Annotated[Path, typer.Option("--out", help="The figure: .png or .pdf.")] = Path("figure.png"),
) -> None:
    """Draw training loss and test accuracy of runs in one figure."""
    _show(folders, to)


def _show(folders: list[Path], figure: Path) -> None:
    """The runs as a figure and a table."""
    records = read_runs(folders)
    draw_curves(records, figure)
    out.print(_table(records))
    out.print(f"figure: {figure}", soft_wrap=True)


def _table(records: list[RunRecord]) -> Table:
    table = Table("algorithm", box=None, header_style="bold", pad_edge=False)
    for column in ("final test accuracy", "mean of the last quarter", "swing there", "largest staleness"):
        table.add_column(column, justify="right")
    for record in records:
        table.add_row(
            record.title,
            f"{record.final_accuracy:.4f}",
            f"{record.late_accuracy:.4f}",
            "-" if math.isnan(record.swing) else f"{record.swing:.4f}",
            str(record.largest_staleness),
        )
    return table


def recipe_named(name: str) -> Recipe:
    """A recipe, or a complaint."""
    if name not in RECIPES:
        raise ConfigError(f"recipe {name}: unknown; choose one of {', '.join(RECIPES)}")
    return RECIPES[name]


def _seeds(seed: int | None, seeds: int | None) -> list[int]:
    if seed is not None and seeds is not None:
        raise ConfigError("--seed, --seeds: give one seed or a number of seeds, not both")
    if seeds is not None and seeds < 1:
        raise ConfigError(f"--seeds {seeds}: must be at least 1")
    return [seed or 0] if seeds is None else list(range(seeds))


def _refuse_what_is_in_the_way(root: Path, folders: list[Path], *, allowed: bool) -> None:
    """Before any work; with --resume or --force only a run where several should go is in the way."""
    if len(folders) > 1:
        refuse_a_run_at(root, "this recipe")
    for folder in map(RunFolder, folders):
        if folder.exists and not allowed:
            folder.raise_exists()


def show_notes(notes: list[str]) -> None:
    """What a user should know of the data."""
    for note in notes:
        err.print(Text(note, style="yellow"), soft_wrap=True)


def refuse_a_run_at(root: Path, what: str) -> None:
    """Where several runs should go, one must not be."""
    if RunFolder(root).exists:
        raise RunFolderError(f"{root}: is itself a run; {what} makes several, so choose another --out")


def _folder_name(recipe: str, overrides: list[str]) -> str:
    """A name that says the recipe and, when keys were changed, tells one choice of keys from another."""
    if not overrides:
        return recipe
    return f"{recipe}-{hashlib.sha256(' '.join(sorted(overrides)).encode()).hexdigest()[:8]}"


def _print_rows(title: str, rows: list[tuple[str, str, str]]) -> None:
    table = Table(title, "keys (default)", "what it is", box=None, header_style="bold", pad_edge=False)
    for row in rows:
        table.add_row(*map(Text, row))
    out.print(table, "")


def _pairs(values: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in values.items())


def _keys(factory: Callable[..., Any]) -> str:
    defaults = {name: key.default for name, key in keywords(factory).items()}
    return _pairs({name: "..." if value is inspect.Parameter.empty else value for name, value in defaults.items()})


def _first_line(factory: Callable[..., Any]) -> str:
    return (factory.__doc__ or "").strip().splitlines()[0]
